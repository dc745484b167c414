"""Detectors as they are."""

from __future__ import annotations

import re

from tests.truehalf.models.detectors import built
from truehalf.exporting.source_lint import lint_source

D_FINE = "transformers/models/d_fine/modeling_d_fine.py"
OURS = "truehalf.models.architectures.ltdetr._detector_class.<locals>.Detector.forward"  # where reading begins


def test_what_is_found_in_dfine() -> None:
    """len(source_flatten) is the batch size, and baked by a trace; the comprehensions are over features and bins."""
    findings = lint_source(built("dfine"))
    assert [(f.rule, f.scope.rpartition("modeling_d_fine.")[2]) for f in findings] == [
        ("py-tensor-len", "DFineModel.forward"),
        ("py-list-comprehension", "weighting_function"),
        ("py-list-comprehension", "weighting_function"),
        ("py-list-comprehension", "DFineModel.forward"),
        ("py-not-followed", OURS),  # attention, from a table of functions
    ]
    assert re.findall(r"^\d+|[\w/]+\.py", findings[-1].message) == ["1", D_FINE]
    assert findings[0].file == D_FINE


def test_what_is_found_in_rtdetrv2() -> None:
    findings = lint_source(built("rtdetrv2"))
    assert [(f.rule, f.scope.rpartition("modeling_rt_detr_v2.")[2]) for f in findings] == [
        ("py-tensor-len", "RTDetrV2Model.forward"),
        ("py-list-comprehension", "RTDetrV2Model.forward"),
        ("py-not-followed", OURS),
    ]
    assert re.findall(r"^\d+", findings[-1].message) == ["1"]
