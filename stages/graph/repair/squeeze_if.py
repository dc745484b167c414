"""The If that torch's squeeze leaves becomes the Squeeze that was meant.

    If(Size(x, i) == 1) {Squeeze(x, i)} {x}  ->  Squeeze(x, i)   size known to be 1, or a reader needs the lower rank
                                             ->  x               size known not to be 1, or a reader needs the same rank

Branches of different rank are no TensorRT. Who needs a rank: Transpose (perm), Conv (its weights), Gemm, a Reduce or a
graph output whose rank is stated, also behind operators that keep the rank. With the other rank these fail, so where
the old graph ran, the new one gives the same.

Refused: nothing says which rank is meant.
"""

from __future__ import annotations

import onnx_ir as ir

from stages.graph.facts import all_nodes, bodies
from stages.graph.repair.rewrite import (
    Done,
    Writer,
    axes_of,
    constant_of,
    dims_of,
    ints_of,
    is_op,
    made_by,
    opset,
    replace,
)

_KEEP_RANK = (
    *("Abs", "BatchNormalization", "Cast", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("HardSwish", "Identity", "InstanceNormalization", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Neg"),
    *("Reciprocal", "Relu", "Round", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Tanh"),
)
_SPATIAL = ("Conv", "ConvTranspose")
_AXES_ARE_INPUT = 13


def squeeze_if(model: ir.Model) -> Done:
    """Replace each If from a squeeze in a typed model, in place."""
    done, writer = Done(), Writer(model)
    for node in [node for node in all_nodes(model) if is_op(node, "If")]:
        found = _squeezed(node)
        if found is None:
            continue
        x, axis = found
        squeezed = _meant(node, x, axis)
        if squeezed is None:
            done.refuse(node, f"nothing says whether axis {axis} of {x.name!r} is 1; write x[:, 0], or x.reshape(...)")
            continue
        build = writer.at(node)
        if not squeezed:
            result = build.op("Identity", x)
        elif opset(model) < _AXES_ARE_INPUT:
            result = build.op("Squeeze", x, axes=[axis])
        else:
            result = build.op("Squeeze", x, build.ints([axis], "axes"))
        for output in node.outputs:
            output.shape = None  # inferred anew: the branches had two
        replace(node, [result], writer)
        done.changed += 1
    return done


def _squeezed(node: ir.Node) -> tuple[ir.Value, int] | None:
    """x and i of If(Size(x, i) == 1) {Squeeze(x, i)} {x}."""
    equal = made_by(node.inputs[0], "Equal")
    squeeze = made_by(_result(node, "then_branch"), "Squeeze")
    if equal is None or squeeze is None or len(node.outputs) != 1:
        return None
    x, other = squeeze.inputs[0], _result(node, "else_branch")
    while (same := made_by(other, "Identity")) is not None:
        other = same.inputs[0]
    one = next((value for value in equal.inputs if constant_of(value) is not None), None)
    size = next((value for value in equal.inputs if value is not one), None)
    gather = made_by(size, "Gather", "Squeeze")
    while gather is not None and gather.op_type == "Squeeze":
        gather = made_by(gather.inputs[0], "Gather", "Squeeze")
    shape = made_by(gather.inputs[0], "Shape") if gather is not None else None
    if x is None or other is not x or gather is None or shape is None or shape.inputs[0] is not x or shape.attributes:
        return None
    rank = len(dims) if (dims := dims_of(x)) is not None else None
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
    dims = dims_of(x)
    if dims is None:
        return None
    size = dims[axis] if -len(dims) <= axis < len(dims) else None
    if size is not None:
        return size == 1
    needed = needed_rank(node.outputs[0])
    return {len(dims) - 1: True, len(dims): False}.get(needed) if needed is not None else None


def needed_rank(value: ir.Value, depth: int = 32) -> int | None:
    """The rank that a reader of a value needs; None: none says."""
    if value.is_graph_output():
        return None if value.shape is None else len(value.shape)
    for reader, position in value.uses() if depth else ():
        rank = _needed_by(reader, depth) if position == 0 and not bodies(reader) else None
        if rank is not None:
            return rank
    return None


def _needed_by(reader: ir.Node, depth: int) -> int | None:
    """The rank that a node needs of its first input."""
    if is_op(reader, *_KEEP_RANK):
        return needed_rank(reader.outputs[0], depth - 1)
    if is_op(reader, "Transpose") and (perm := reader.attributes.get_ints("perm")) is not None:
        return len(perm)
    if is_op(reader, "Gemm"):
        return 2
    if is_op(reader, *_SPATIAL):
        weight = dims_of(reader.inputs[1])
        return None if weight is None else len(weight)
    if reader.domain == "" and reader.op_type.startswith("Reduce"):
        behind, axes = needed_rank(reader.outputs[0], depth - 1), axes_of(reader, None)
        if behind is None or not axes:
            return None
        return behind if reader.attributes.get_int("keepdims", 1) else behind + len(axes)
    return None
