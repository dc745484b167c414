"""arange(mask.sum()): a Range over a count becomes a Range over a shape, which TensorRT can compute on the host.

    Range(a, Sum(Cast(m)), d)  ->  Range(a, Shape(NonZero(m))[1], d)         m boolean, summed over all axes

The number of true elements is the number of their positions, exactly: the sum must be one of integers, as float32 ends
counting at 2^24. Squeezes and Reshapes of the single number in between are looked through, and casts that keep a count:
to INT64 and INT32, and one to the type of the limit itself, which the new count gets, too.

Refused: limits that are computed from data in another way (a largest element, a sum of integers, whether there is one:
a count cast to BOOL).
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import lengths_of, producer_of
from truehalf.ir.ops import Trait, with_trait
from truehalf.repairs.rewrite import INTEGERS, Build, NotEqualError, Repair, Writer, axes_of, drop, from_data

_NO_DATA = "its limits are computed from data; take the size of a tensor (x.shape[0]), or mask.nonzero().shape[0]"


class RangeToShape(Repair):
    """Restates the limit of each Range over a count."""

    op_types = ("Range",)

    def rewrite(self, node: ir.Node, writer: Writer) -> None:
        if not any(from_data(value) for value in node.inputs):
            return
        start, limit, step = node.inputs
        mask = _counted(limit)
        if mask is None or from_data(start) or from_data(step) or writer.opset < 13:
            raise NotEqualError(_NO_DATA)
        node.replace_input_with(1, _count(writer.at(node), mask, limit))
        drop(limit)
        writer.changed(node)


def _count(build: Build, mask: ir.Value, limit: ir.Value | None) -> ir.Value:
    positions = build.op("NonZero", mask)
    count: ir.Value = build.op("Gather", build.op("Shape", positions), build.ints(1), axis=0, label="count")
    if limit is not None and limit.dtype is not None and limit.dtype != ir.DataType.INT64:
        count = build.cast(count, limit.dtype)
    return count


def _counted(limit: ir.Value | None) -> ir.Value | None:
    """m where a limit is Sum(Cast(m)) over all axes, in integers."""
    total = _before_moves(limit)
    node = producer_of(total, "ReduceSum")
    cast = producer_of(node.inputs[0], "Cast") if node is not None else None
    mask = cast.inputs[0] if cast is not None else None
    if node is None or cast is None or mask is None or mask.dtype != ir.DataType.BOOL:
        return None
    if ir.DataType(cast.attributes.get_int("to", 0)) not in INTEGERS:
        return None
    dims = lengths_of(mask)
    axes = axes_of(node, len(dims) if dims is not None else None)
    whole = dims != [] and axes == [] and not node.attributes.get_int("noop_with_empty_axes", 0)
    every = dims is not None and axes is not None and sorted(set(axes)) == list(range(len(dims))) and bool(dims)
    return mask if whole or every else None


def _before_moves(limit: ir.Value | None) -> ir.Value | None:
    """What a limit is, before moves of it and casts that keep a count."""
    value, last = limit, limit.dtype if limit is not None else None
    while (node := producer_of(value, "Cast", *with_trait(Trait.VIEW))) is not None:
        if node.op_type == "Cast":
            to = ir.DataType(node.attributes.get_int("to", 0))
            if to not in INTEGERS and to != last:
                return None
            last = to if to in INTEGERS else last
        value = node.inputs[0]
    return value
