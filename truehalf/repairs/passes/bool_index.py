"""Indexing with a mask without positions, where the result has a size that is known before the run.

    x[m] = v       ->  Where(m, v, x)                        v of one element
    x[m] = y[m]    ->  Where(m, y, x)                        y of the sizes of x after the axes of the mask
    sum(x[m], 0)   ->  sum(Where(m, x, 0), axes of m)        up to the order of the sum

Positions come in the order of the elements, the same for x and y; each is written once.

Refused: x[m] that something else reads, as its size is the number of true elements; other values that are written; a
mask that is not known to have the sizes of the axes that it indexes, by numbers or by names: positions in a shorter one
do not select the other rows, and a Where would broadcast it over them.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.ir.facts import lengths_of, producer_of
from truehalf.repairs.masks_by_position import (
    covers,
    flattened_source,
    mask_of_positions,
    masked_sum,
    narrowed,
    same_inner_sizes,
    same_sizes,
    summed_rows,
)
from truehalf.repairs.rewrite import Build, NotEqualError, Repair, Writer

_WRITE = "what it writes is neither one value nor another tensor under the same mask; write x * (1 - m) + v * m"
_READ = "the number of rows that it gives is the number of true elements; weigh with the mask, or take topk rows"
_SIZES = coded(
    "sizes-unknown",
    "its mask is not known to have the sizes of the axes that it indexes, which positions need not and a Where must; "
    "give both the same name among the dynamic axes, or fixed sizes",
)


class BoolIndex(Repair):
    """Replaces each boolean index."""

    op_types = ("ScatterND", "GatherND")
    since = 13

    def rewrite(self, node: ir.Node, writer: Writer) -> None:
        x, mask = node.inputs[0], mask_of_positions(node.inputs[1])
        if mask is None or not _is_plain(node):
            return
        old = node if node.op_type == "ScatterND" else summed_rows(node)
        if old is node:
            if x is None or not covers(narrowed(mask, x), x):
                raise NotEqualError(_SIZES)
            result, why = _written(writer.at(node), node), _WRITE
        else:
            result = masked_sum(writer.at(old), node, old, mask) if old is not None else None
            why = _READ if old is None or x is None or covers(mask, x) else _SIZES
        if old is None or result is None:
            raise NotEqualError(why)
        writer.replace(old, result)


def _is_plain(node: ir.Node) -> bool:
    """Whether positions are of all axes, and each is written as it is."""
    added = node.attributes.get_string("reduction", "none") != "none"
    return not added and node.attributes.get_int("batch_dims", 0) == 0


def _written(build: Build, node: ir.Node) -> ir.Value | None:
    """Where(m, v, x) for ScatterND(x, positions of m, v); None: v is not such a value."""
    x, updates = node.inputs[0], flattened_source(node.inputs[2])
    mask, dims = mask_of_positions(node.inputs[1]), lengths_of(x)
    if x is None or updates is None or mask is None or dims is None:
        return None
    mask = narrowed(mask, x)
    source = updates
    while (expand := producer_of(source, "Expand", "Reshape")) is not None and expand.inputs[0] is not None:
        source = expand.inputs[0]
    sizes = lengths_of(source)
    if sizes is not None and all(size == 1 for size in sizes):
        value = source if not sizes else build.op("Reshape", source, build.ints([], "scalar"))
        value.type = source.type
        return build.op("Where", mask.over(build, len(dims)), value, x)  # type: ignore[no-any-return]
    gather = producer_of(updates, "GatherND")
    other = mask_of_positions(gather.inputs[1]) if gather is not None else None
    y = gather.inputs[0] if gather is not None else None
    if gather is None or other is None or y is None or not _is_plain(gather):
        return None
    other = narrowed(other, y)
    if other.value is not mask.value or not covers(other, y):
        return None
    if not same_sizes(x, y, mask.axes) or not same_inner_sizes(x, y, mask.axes):
        return None
    return build.op("Where", mask.over(build, len(dims)), y, x)  # type: ignore[no-any-return]
