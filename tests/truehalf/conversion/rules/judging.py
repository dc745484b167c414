"""Decisions by node name, for a graph in ONNX text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from tests.measuring.converted import only
from truehalf.calibration.ranges_form import read_ranges
from truehalf.conversion.decide import decide
from truehalf.conversion.rules.base import Decision
from truehalf.ir.normalize import NORMALIZE

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def judge(
    text: str,
    tensors: Mapping[str, Mapping[str, Any]] | None = None,
    inner: Mapping[str, Any] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    inner_rule: bool = False,
    **rules: Any,
) -> dict[str, Decision]:
    """`tensors`, `inner`: of ranges.json, which is given when one of them is; `weights` replace initializers."""
    model = ir.from_onnx_text(text if text.startswith("<") else HEAD + text)
    NORMALIZE(model)
    for name, array in (weights or {}).items():
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    ranges = None
    if tensors is not None or inner is not None:
        ranges = read_ranges({"tensors": tensors or {}, "inner": inner or {}})
    return {
        node.name or "": decision
        for node, decision in decide(model, ranges, only(inner=inner_rule, **rules)).nodes.items()
    }


def rules_by_node(text: str, tensors: Mapping[str, Mapping[str, Any]] | None = None, **rules: Any) -> dict[str, str]:
    return {name: decision.rule for name, decision in judge(text, tensors, **rules).items()}
