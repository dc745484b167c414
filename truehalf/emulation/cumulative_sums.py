"""FLOAT16 CumSum as a Scan that rounds after each term, as ONNX Runtime's CUDA provider adds (3000 ones give 2048).

Every evaluation has it so. A CumSum of more than TERMS terms, or along an axis that is no constant, is left as it is,
accumulates in FP32 and rounds once, and is listed.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.emulation.half_nodes import HALF, HalfNodes, NotSplitError, Rule, source_of
from truehalf.ir.facts import constant_of

TERMS = 4096


def cumulate(build: HalfNodes) -> list[ir.Value]:
    """A Scan along the axis; a step outputs its state after the addition, or before it (exclusive)."""
    node = build.node
    source, dims = source_of(build)
    if (constant := constant_of(node.inputs[1])) is None:
        raise NotSplitError("its axis is no constant")
    axis = int(constant.reshape(-1)[0]) % len(dims)
    terms = dims[axis]
    if terms is not None and terms > TERMS:
        raise NotSplitError(coded("sums-not-rounded", f"a sum of {terms} terms; {TERMS} at most"))
    start = build.op("Expand", build.half(0), build.shape(build.reduced("ReduceMax", source, [axis], keepdims=0)))
    way = [int(node.attributes.get_int("reverse", 0))]
    state, term = (ir.Value(name=build.fresh(name), type=ir.TensorType(HALF)) for name in ("state", "term"))
    outside, build.nodes = build.nodes, []
    added = build.op("Add", state, term)
    shown = build.op("Identity", state if node.attributes.get_int("exclusive", 0) else added)
    step = ir.Graph([state, term], [added, shown], nodes=build.nodes, name=build.fresh("step"))
    step.opset_imports.update({"": build.opset})
    build.nodes = outside
    attributes: dict[str, Any] = {
        **{"body": step, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_output_axes": [axis]},
        **{"scan_input_directions": way, "scan_output_directions": way},
    }
    return [build.ops(2, "Scan", start, source, **attributes)[1]]


RULES: dict[str, Rule] = {"CumSum": cumulate}
