"""Indexing with a mask without positions, where the result has a size that is known before the run.

    x[m] = v       ->  Where(m, v, x)                        v of one element
    x[m] = y[m]    ->  Where(m, y, x)                        y of the sizes of x behind the mask
    sum(x[m], 0)   ->  sum(Where(m, x, 0), axes of m)        up to the order of the sum

Positions come in the order of the elements, the same for x and y; each is written once. Where x and v are proven to be
bounded and never NaN, the Where of an assignment is arithmetic (truehalf.repairs.passes.where_arithmetic).

Refused: x[m] that something else reads, as its size is the number of true elements; other values that are written; a
mask that is not known to have the sizes of the axes that it indexes, by numbers or by names: positions in a shorter one
leave the other rows alone, and a Where would broadcast it over them.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.ir.facts import all_nodes, is_op, made_by
from truehalf.repairs.masks_by_position import (
    covers,
    flattened_source,
    mask_behind,
    masked_sum,
    narrowed,
    same_sizes,
    same_sizes_behind,
    summed_rows,
)
from truehalf.repairs.passes.where_arithmetic import chosen
from truehalf.repairs.rewrite import Build, Done, Writer, dims_of, opset, replace

_WRITE = "what it writes is neither one value nor another tensor under the same mask; write x * (1 - m) + v * m"
_READ = "the number of rows that it gives is the number of true elements; weigh with the mask, or take topk rows"
_SIZES = coded(
    "sizes-unknown",
    "its mask is not known to have the sizes of the axes that it indexes, which positions need not and a Where must; "
    "give both the same name among the dynamic axes, or fixed sizes",
)


def bool_index(model: ir.Model) -> Done:
    """Replace each boolean index of a typed model, in place."""
    done, writer = Done(), Writer(model)
    if opset(model) < 13:
        return done
    for node in [node for node in all_nodes(model) if is_op(node, "ScatterND")]:
        mask = mask_behind(node.inputs[1])
        if mask is None or node.attributes.get_string("reduction", "none") != "none":
            continue
        if (x := node.inputs[0]) is None or not covers(narrowed(mask, x), x):
            done.refuse(node, _SIZES)
            continue
        if (result := _written(writer.at(node), node)) is None:
            done.refuse(node, _WRITE)
            continue
        replace(node, [result], writer)
        done.changed += 1
    for node in [node for node in all_nodes(model) if is_op(node, "GatherND")]:
        mask = mask_behind(node.inputs[1]) if node.graph is not None else None
        if mask is None or node.attributes.get_int("batch_dims", 0) != 0:
            continue
        total = summed_rows(node)
        result = masked_sum(writer.at(total), node, total, mask) if total is not None else None
        if total is None or result is None:
            x = node.inputs[0]
            sized = total is None or x is None or covers(mask, x)
            done.refuse(node, _READ if sized else _SIZES)
            continue
        replace(total, [result], writer)
        done.changed += 1
    return done


def _written(build: Build, node: ir.Node) -> ir.Value | None:
    """Where(m, v, x) for ScatterND(x, positions of m, v); None: v is not such a value."""
    x, updates = node.inputs[0], flattened_source(node.inputs[2])
    mask, dims = mask_behind(node.inputs[1]), dims_of(x)
    if x is None or updates is None or mask is None or dims is None:
        return None
    mask = narrowed(mask, x)
    source = updates
    while (expand := made_by(source, "Expand", "Reshape")) is not None and expand.inputs[0] is not None:
        source = expand.inputs[0]
    sizes = dims_of(source)
    if sizes is not None and all(size == 1 for size in sizes):
        value = source if not sizes else build.op("Reshape", source, build.ints([], "scalar"))
        value.type = source.type
        return chosen(build, mask.over(build, len(dims)), value, x)
    gather = made_by(updates, "GatherND")
    other = mask_behind(gather.inputs[1]) if gather is not None else None
    y = gather.inputs[0] if gather is not None else None
    if gather is None or other is None or y is None or gather.attributes.get_int("batch_dims", 0) != 0:
        return None
    other = narrowed(other, y)
    if other.value is not mask.value or not covers(other, y):
        return None
    if not same_sizes(x, y, mask.axes) or not same_sizes_behind(x, y, mask.axes):
        return None
    return chosen(build, mask.over(build, len(dims)), y, x)
