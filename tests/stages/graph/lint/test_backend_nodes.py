"""Lint of onnx's own test models: whatever a model holds, rules find or do not find, and none breaks."""

from __future__ import annotations

import contextlib

import onnx_ir as ir
import pytest

from stages.graph.lint import RULES, lint
from stages.graph.normalize import infer_types

pytestmark = pytest.mark.slow


def test_no_rule_breaks_on_any_operator() -> None:
    from onnx.backend.test.case.node import collect_testcases

    looked_at, rules = 0, set[str]()
    for case in collect_testcases(None):
        try:
            model = ir.from_proto(case.model)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError):
            continue  # types that onnx_ir cannot read: no file of them gets here either
        with contextlib.suppress(Exception):  # some cases are not valid on purpose
            infer_types(model)
        rules |= {finding.rule for finding in lint(model)}
        looked_at += 1
    assert looked_at > 1500
    assert rules <= set(RULES) and len(rules) > 12
