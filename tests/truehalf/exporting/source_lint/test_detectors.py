"""Detectors as they are."""

from __future__ import annotations

import torch

from tests.messages import expect
from tests.truehalf.models.detectors import architecture
from truehalf.exporting.source_lint import lint_source
from truehalf.models.architectures.ltdetr import build

Tensor = torch.Tensor


OURS = "truehalf.models.architectures.ltdetr._detector_class.<locals>.Detector.forward"  # where reading begins


def test_what_is_found_in_dfine() -> None:
    """len(source_flatten) is the batch size, and baked by a trace; the comprehensions are over features and bins."""
    findings = lint_source(build(architecture("dfine"), 0).eval())
    assert [(f.rule, f.scope.rpartition("modeling_d_fine.")[2]) for f in findings] == [
        ("py-tensor-len", "DFineModel.forward"),
        ("py-list-comprehension", "weighting_function"),
        ("py-list-comprehension", "weighting_function"),
        ("py-list-comprehension", "DFineModel.forward"),
        ("py-not-followed", OURS),  # attention, from a table of functions
    ]
    expect(findings[-1].message, None, 1, "(transformers/")
    assert findings[0].file == "transformers/models/d_fine/modeling_d_fine.py"


def test_what_is_found_in_rtdetrv2() -> None:
    findings = lint_source(build(architecture("rtdetrv2"), 0).eval())
    assert [(f.rule, f.scope.rpartition("modeling_rt_detr_v2.")[2]) for f in findings] == [
        ("py-tensor-len", "RTDetrV2Model.forward"),
        ("py-list-comprehension", "RTDetrV2Model.forward"),
        ("py-not-followed", OURS),
    ]
