"""The If that torch's squeeze leaves becomes the intended Squeeze.

    If(Size(x, i) == 1) {Squeeze(x, i)} {x}  ->  Squeeze(x, i)   size known to be 1, or a reader fails on the rank of x
                                             ->  x               size known not to be 1, or a reader fails on one less

Branches of different rank are no TensorRT. Who fails: Transpose (perm) and Conv (its weights) on any other rank, Gemm
on more than a matrix, also after operators that keep the rank, and after a Reduce, which removes its axes. They
must stand in the graph of the If itself, where they always run: so where the old graph ran, the new one gives the same.
A reader in a branch of another If may never run. The rank that is stated for an output of the graph says nothing:
ONNX Runtime hands over whatever comes.

Refused: nothing fails on one of the two ranks.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import constant_of, is_op, lengths_of, producer_of
from truehalf.ir.ops import Trait, has
from truehalf.repairs.rewrite import NotEqualError, Repair, Writer, axes_of, ints_of

_KEEP_RANK = Trait.UNARY | Trait.NORMALIZES
_SPATIAL = ("Conv", "ConvTranspose")
_AXES_ARE_INPUT = 13


class SqueezeIf(Repair):
    """Replaces each If from a squeeze."""

    op_types = ("If",)

    def rewrite(self, node: ir.Node, writer: Writer) -> None:
        if (found := _squeezed(node)) is None:
            return
        x, axis = found
        squeezed = _meant(node, x, axis)
        if squeezed is None:
            raise NotEqualError(
                f"nothing says whether axis {axis} of {x.name!r} is 1: its size is not known, and no operator after "
                "it fails on one of the two ranks; write x[:, 0], or x.reshape(...)"
            )
        build = writer.at(node)
        if not squeezed:
            result = build.op("Identity", x)
        elif writer.opset < _AXES_ARE_INPUT:
            result = build.op("Squeeze", x, axes=[axis])
        else:
            result = build.op("Squeeze", x, build.ints([axis], "axes"))
        for output in node.outputs:
            output.shape = None  # inferred anew: the branches had two
        writer.replace(node, result)


def _squeezed(node: ir.Node) -> tuple[ir.Value, int] | None:
    """x and i of If(Size(x, i) == 1) {Squeeze(x, i)} {x}."""
    equal = producer_of(node.inputs[0], "Equal")
    squeeze = producer_of(_result(node, "then_branch"), "Squeeze")
    if equal is None or squeeze is None or len(node.outputs) != 1:
        return None
    x, other = squeeze.inputs[0], _result(node, "else_branch")
    while (same := producer_of(other, "Identity")) is not None:
        other = same.inputs[0]
    one = next((value for value in equal.inputs if constant_of(value) is not None), None)
    size = next((value for value in equal.inputs if value is not one), None)
    gather = producer_of(size, "Gather", "Squeeze")
    while gather is not None and gather.op_type == "Squeeze":
        gather = producer_of(gather.inputs[0], "Gather", "Squeeze")
    shape = producer_of(gather.inputs[0], "Shape") if gather is not None else None
    if x is None or other is not x or gather is None or shape is None or shape.inputs[0] is not x or shape.attributes:
        return None
    rank = len(dims) if (dims := lengths_of(x)) is not None else None
    axes, index = axes_of(squeeze, rank), ints_of(gather.inputs[1])
    if ints_of(one) != [1] or axes is None or index is None or len(axes) != 1 or len(index) != 1:
        return None
    asked = index[0] if rank is None else index[0] % rank
    return (x, asked) if axes == [asked] else None


def _result(node: ir.Node, branch: str) -> ir.Value | None:
    attribute = node.attributes.get(branch)
    outputs = attribute.as_graph().outputs if attribute is not None else []
    return outputs[0] if len(outputs) == 1 else None


def _meant(node: ir.Node, x: ir.Value, axis: int) -> bool | None:
    """Whether the squeeze happens; None where neither a size nor a reader says."""
    dims = lengths_of(x)
    if dims is None:
        return None
    size = dims[axis] if -len(dims) <= axis < len(dims) else None
    if size is not None:
        return size == 1
    kept, squeezed = fails_on(node.outputs[0], len(dims)), fails_on(node.outputs[0], len(dims) - 1)
    return None if kept == squeezed else kept


def fails_on(value: ir.Value, rank: int, depth: int = 32) -> bool:
    """Whether a node of the same graph fails on a value of this rank, or on what becomes of it."""
    producer = value.producer()
    graph = producer.graph if producer is not None else None
    return depth > 0 and any(
        _reader_fails(reader, rank, depth - 1)
        for reader, position in value.uses()
        if position == 0 and reader.graph is graph
    )


def _reader_fails(reader: ir.Node, rank: int, depth: int) -> bool:
    """Whether a node fails on a first input of this rank."""
    if has(reader, _KEEP_RANK):
        return fails_on(reader.outputs[0], rank, depth)
    if is_op(reader, "Transpose"):
        perm = reader.attributes.get_ints("perm")
        return perm is not None and len(perm) != rank
    if is_op(reader, "Gemm"):
        return rank > 2  # ONNX Runtime takes a vector for a matrix of one row
    if is_op(reader, *_SPATIAL):
        weight = lengths_of(reader.inputs[1])
        return weight is not None and len(weight) != rank
    if reader.domain == "" and reader.op_type.startswith("Reduce"):
        axes = axes_of(reader, None)
        if not axes or len({axis % rank if rank else axis for axis in axes}) < len(axes):
            return False
        kept = reader.attributes.get_int("keepdims", 1)
        return fails_on(reader.outputs[0], rank if kept else rank - len(axes), depth)
    return False
