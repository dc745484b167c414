"""FLOAT16 CumSum as a Scan that rounds after each term, as ONNX Runtime's CUDA provider adds (3000 ones give 2048).

Every evaluation has it so. A CumSum of more than TERMS terms, or along an axis that is no constant, is left as it is,
accumulates in FP32 and rounds once, and is listed.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.emulation.half_nodes import HalfNodes, NotSplitError, Rule, source_of
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
    exclusive = node.attributes.get_int("exclusive", 0)

    def step(state: ir.Value, slices: list[ir.Value]) -> list[ir.Value]:
        added = build.op("Add", state, slices[0])
        return [added, build.op("Identity", state if exclusive else added)]

    start = build.filled_like(build.reduced("ReduceMax", source, [axis], keepdims=0), 0)
    way = [int(node.attributes.get_int("reverse", 0))]
    ways: dict[str, Any] = {"scan_input_directions": way, "scan_output_directions": way, "scan_output_axes": [axis]}
    return [build.scan(start, [source], [axis], step, **ways)[1]]


RULES: dict[str, Rule] = {"CumSum": cumulate}
