"""NonZero over a threshold, where its result is a TopK or a sum by construction.

    NonZero(Scatter(0, i, 1)), i the k positions of a TopK     ->  TopK(i, k) from the smallest: i in rising order
    sum(x[s > t], 0)                                           ->  sum(Where(s > t, x, 0), 0), which needs no positions

The k positions of a TopK are distinct, so k elements are set, and NonZero lists them in rising order.

Refused: a sum under a mask that is not known to have the sizes of x (truehalf.repairs.masks_by_position), and any
other NonZero over a comparison of floats. TopK gives a fixed number of rows and NonZero as many as pass;
that no more than k pass is known to the author of the model, not to the graph.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import constant_of, is_op, lengths_of, producer_of, upstream
from truehalf.ir.ops import Trait, has
from truehalf.repairs.masks_by_position import mask_of_positions, masked_sum, summed_rows
from truehalf.repairs.rewrite import FLOATS, Build, NotEqualError, Repair, Writer, ints_of

_KEEP_COMPARISONS = Trait.LOGIC | Trait.LAYOUT | Trait.SAME
_REASON = (
    "as many rows as pass the threshold; a TopK of k rows is equal only if never more than k pass. Write "
    "scores.topk(k), and threshold its values outside the engine, or threshold_topk of truehalf.exporting.torch_ops"
)


class NonzeroTopk(Repair):
    """Replaces each NonZero that is a TopK or a sum."""

    op_types = ("NonZero",)
    since = 13

    def rewrite(self, node: ir.Node, writer: Writer) -> None:
        if (index := _scattered(node.inputs[0])) is not None:
            writer.replace(node, _rising(writer.at(node), *index))
        elif _compares_floats(node.inputs[0]) and not _only_counted(node):
            changed = _replace_sums(node, writer)
            if not changed or node.graph is not None:
                raise NotEqualError(_REASON)


def _replace_sums(node: ir.Node, writer: Writer) -> bool:
    """Replace the sums of rows that a NonZero chooses; whether there were any."""
    changed = False
    transposes = [reader for reader, _ in node.outputs[0].uses() if is_op(reader, "Transpose")]
    gathers = [reader for each in transposes for reader, _ in each.outputs[0].uses() if is_op(reader, "GatherND")]
    for gather in gathers:
        mask, total = mask_of_positions(gather.inputs[1]), summed_rows(gather)
        if mask is None or total is None or gather.attributes.get_int("batch_dims", 0) != 0:
            continue
        if (result := masked_sum(writer.at(total), gather, total, mask)) is not None:
            writer.replace(total, result)
            changed = True
    return changed


def _scattered(mask: ir.Value | None) -> tuple[ir.Value, int] | None:
    """i and k where a vector is 1 at the k positions that a TopK found, and 0 at all others."""
    while (same := producer_of(mask, "Cast", "Identity")) is not None and _keeps_zeros_apart(same):
        mask = same.inputs[0]
    node = producer_of(mask, "ScatterElements", "ScatterND")
    if node is None or node.attributes.get_string("reduction", "none") != "none" or len(lengths_of(mask) or []) != 1:
        return None
    index = node.inputs[1]
    if node.op_type == "ScatterND":
        unsqueeze = producer_of(index, "Unsqueeze")
        index = unsqueeze.inputs[0] if unsqueeze is not None else None
    top = producer_of(index, "TopK")
    k = ints_of(top.inputs[1]) if top is not None else None
    one_axis = len(lengths_of(index) or []) == 1
    if index is None or top is None or index is not top.outputs[1] or not k or not one_axis:
        return None
    return (index, k[0]) if _is_all(node.inputs[0], 0) and _is_all(node.inputs[2], 1) else None


def _keeps_zeros_apart(node: ir.Node) -> bool:
    """Whether 0, and only 0, becomes 0: 0.5 is 0 as an integer, 1e-9 as a float16, and 256 as a uint8."""
    source = node.inputs[0]
    return node.op_type == "Identity" or ir.DataType.BOOL in (
        node.outputs[0].dtype,
        source.dtype if source is not None else None,
    )


def _is_all(value: ir.Value | None, number: int) -> bool:
    """Whether every element is this number; for 1, any constant that is not 0 will do."""
    array, filled = constant_of(value), producer_of(value, "ConstantOfShape", "Expand")
    if filled is not None and filled.op_type == "Expand":
        array = constant_of(filled.inputs[0])
    elif filled is not None:
        attribute = filled.attributes.get("value")
        array = attribute.as_tensor().numpy() if attribute is not None else None
        if array is None:
            return number == 0
    if array is None or array.dtype.kind not in "biuf":
        return False
    return bool((array == 0).all() if number == 0 else (array != 0).all())


def _rising(build: Build, index: ir.Value, k: int) -> ir.Value:
    """[1, k], as NonZero gives the positions of a vector."""
    _, order = build.op("TopK", build.op("Neg", index), build.ints([k]), count=2)
    rising = build.op("Gather", index, order, axis=0, label="rising")
    positions: ir.Value = build.op("Unsqueeze", rising, build.ints([0]))
    return positions


def _only_counted(node: ir.Node) -> bool:
    """Whether only Shape reads the positions: then it is a count, as range_to_shape makes it."""
    output = node.outputs[0]
    return not output.is_graph_output() and all(has(reader, Trait.SHAPE_ONLY) for reader, _ in output.uses())


def _compares_floats(mask: ir.Value | None) -> bool:
    comparisons = (value.producer() for value in upstream(mask, lambda node: has(node, _KEEP_COMPARISONS)))
    return any(
        operand is not None and operand.dtype in FLOATS
        for node in comparisons
        if node is not None and has(node, Trait.COMPARES)
        for operand in node.inputs
    )
