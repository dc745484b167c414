"""Lint of onnx's own test models: whatever a model holds, rules find or do not find, and none breaks."""

from __future__ import annotations

import contextlib

import onnx_ir as ir
import pytest

from tests.onnx_backend import SAMPLE_AND_WHOLE, sampled
from truehalf.ir.normalize import InferTypes
from truehalf.patterns import RULES, lint


@pytest.mark.parametrize("whole", SAMPLE_AND_WHOLE)
def test_no_rule_breaks_on_any_operator(whole: bool) -> None:
    from onnx.backend.test.case.node import collect_testcases

    looked_at, rules, found = 0, set[str](), collect_testcases(None)
    kept = sampled((case.name, case.model) for case in found)
    for case in found:
        if not whole and case.name not in kept:
            continue
        try:
            model = ir.from_proto(case.model)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError):
            continue  # types that onnx_ir cannot read: no file of them gets here either
        with contextlib.suppress(Exception):  # some cases are not valid on purpose
            InferTypes()(model)
        rules |= {finding.rule for finding in lint(model)}
        looked_at += 1
    assert looked_at > (1500 if whole else 187)
    assert rules <= set(RULES) and len(rules) > 12
