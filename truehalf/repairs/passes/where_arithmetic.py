"""Arithmetic in place of Where: TensorRT may make an IffCondition of it, whose branches it cannot always build.

    Where(c, x, y)  ->  c * x + (1 - c) * y          c as a number, 0 or 1

Equal where x and y are finite (0 * inf is NaN, 0 * NaN, too), and in FP16 where they fit it; -0.0 may become 0.0.

Left as it is: a Where whose condition no input changes, and one that computes a shape.

Refused: branches that are not proven to be at most 65504 and never NaN (truehalf.repairs.bounds), whatever finite
numbers the graph's inputs hold: DETR's anchors of 3.4e38 for invalid cells, and Where(x > 0, sigmoid(log(x)), 0), whose
Where is there to hide a NaN; a condition that looks for NaN or Inf, as it says that there may be some; other types than
floats and integers.
"""

from __future__ import annotations

from collections.abc import Container

import onnx_ir as ir

from truehalf.float16 import MAX
from truehalf.ir.facts import constant_of, is_op, upstream
from truehalf.repairs.bounds import bounds
from truehalf.repairs.rewrite import FLOATS, INTEGERS, Build, NotEqualError, Repair, Writer, from_data

_CHECKS = {"IsNaN", "IsInf"}


class WhereArithmetic(Repair):
    """Replaces each Where whose condition a run decides."""

    op_types = ("Where",)

    def rewrite(self, node: ir.Node, writer: Writer) -> None:
        if from_data(node.inputs[0]):
            _check(writer.inputs, *node.inputs)
            condition, x, y = (value for value in node.inputs if value is not None)
            writer.replace(node, _mixed(writer.at(node), condition, x, y))


def chosen(build: Build, condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """Where(c, x, y) as arithmetic where that is equal, else as Where."""
    try:
        _check(build.inputs, condition, x, y)
    except NotEqualError:
        return build.op("Where", condition, x, y)  # type: ignore[no-any-return]
    return _mixed(build, condition, x, y)


def _check(inputs: Container[ir.Value], condition: ir.Value | None, *branches: ir.Value | None) -> None:
    """Raise NotEqualError, with the reason, unless Where(c, x, y) may be arithmetic."""
    if (checked := _looks_for_nonfinite(condition)) is not None:
        raise NotEqualError(f"its condition asks {checked} for NaN or Inf, which a product would keep")
    for value in branches:
        if value is None or value.dtype not in FLOATS | INTEGERS:
            raise NotEqualError(
                f"{value.name if value else ''!r} is {value.dtype if value else None}: expected numbers"
            )
        if value.dtype in INTEGERS:
            continue
        found = bounds(value, inputs)
        if found is None and constant_of(value) is not None:
            raise NotEqualError(f"constant {value.name!r} holds Inf or NaN: 0 * inf is NaN")
        if found is None:
            raise NotEqualError(
                f"{value.name!r} is not proven to be finite and at most 65504, and never NaN, where the Where leaves "
                "it out, too: 0 * inf and 0 * NaN are NaN; bound what it is computed from (a Sqrt of max(x, 0), a "
                "divisor of max(x, 1e-6)) and the result, or write the mix in the model"
            )
        if (largest := max(map(abs, found))) > MAX:
            raise NotEqualError(f"{value.name!r} reaches |x| = {largest:.4g} > 65504, float16's largest")


def _mixed(build: Build, condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """c * x + (1 - c) * y."""
    dtype = x.dtype or ir.DataType.FLOAT
    share = build.cast(condition, dtype, "share")
    rest = build.op("Sub", build.constant(1, dtype, "one"), share, label="rest")
    taken, other = build.op("Mul", share, x, label="taken"), build.op("Mul", rest, y, label="other")
    result: ir.Value = build.op("Add", taken, other, label="mixed")
    return result


def _looks_for_nonfinite(condition: ir.Value | None) -> str | None:
    """The node that asks whether something is finite: IsNaN, IsInf, or x == x."""
    for value in upstream(condition, lambda node: True):
        node = value.producer()
        same = is_op(node, "Equal") and node is not None and node.inputs[0] is node.inputs[1]
        if node is not None and (node.op_type in _CHECKS or same):
            return repr(node.name)
    return None
