"""dynamic-topk: TopK whose k is no constant, unless it sorts the whole axis.

torch.sort and topk of all leave k to the graph as the size of the axis that is looked at. Exporters write that size in
several ways: of the very tensor, of what was flattened to it, of another tensor with the same named size.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from stages.graph.facts import is_op, made_by
from stages.graph.lint.base import Place, Rule, Subject, rank
from stages.graph.lint.integers import constant
from stages.graph.lint.support import TOPK_MAX
from stages.graph.lint.values import Origin

DYNAMIC_TOPK = Rule(
    "dynamic-topk",
    "warning",
    "topk with a k that is no constant",
    "TensorRT's operator matrix (TopK)",
)

_MOVES = {"Cast", "Concat", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
_VARIES = {
    Origin.SHAPE: "Its k varies with a size",
    Origin.INPUT: "Its k is the value of an input",
    Origin.ROUND: "Its k varies with the number of the loop's round",
}


def topks(subject: Subject) -> Iterator[Place]:
    for node in subject.of_type("TopK"):
        k = node.inputs[1] if len(node.inputs) > 1 else None
        origin = subject.values.origin(k)
        if origin is Origin.CONSTANT or (origin is Origin.SHAPE and _sorts(node)):
            continue
        yield DYNAMIC_TOPK.at(
            node,
            f"{_VARIES[origin]}; TensorRT builds for the largest, refuses more than {TOPK_MAX}, and all that follows "
            "has a size that varies."
            if origin in _VARIES
            else "Its k is computed on the device; TensorRT wants it on the host, as a shape.",
            "Give topk a number.",
            None if origin in _VARIES else "error",
        )


def _sorts(node: ir.Node) -> bool:
    """Whether k is the size of the axis that is looked at."""
    source, sized = node.inputs[0], _sized(node.inputs[1])
    return source is not None and sized is not None and _same(source, node.attributes.get_int("axis", -1), *sized)


def _sized(k: ir.Value | None) -> tuple[ir.Value, int] | None:
    """The tensor and the axis of it whose size k is."""
    node = k.producer() if k is not None else None
    while node is not None and is_op(node, *_MOVES) and (node.op_type != "Concat" or len(node.inputs) == 1):
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    picked = node if is_op(node, "Gather") else None
    shape = made_by(picked.inputs[0], "Shape") if picked is not None else node
    if shape is None or not is_op(shape, "Shape") or shape.inputs[0] is None:
        return None
    start, end = shape.attributes.get_int("start", 0), shape.attributes.get_int("end")
    if picked is not None:
        index = constant(picked.inputs[1])
        if start or end is not None or index is None or index.size != 1:
            return None
        return shape.inputs[0], int(index.numpy().ravel()[0])
    axes = list(range(rank(shape.inputs[0]) or 0))[start:end]
    return (shape.inputs[0], axes[0]) if len(axes) == 1 else None


def _same(a: ir.Value, axis: int, b: ir.Value, other: int) -> bool:
    """Whether two axes have one size: one axis of one tensor, all of one tensor's elements, or one name of a size."""
    if a is b and axis == other:
        return True
    if a.shape is None or b.shape is None or not -len(a.shape) <= axis < len(a.shape):
        return False
    if not -len(b.shape) <= other < len(b.shape):
        return False
    if a is b:
        return axis % len(a.shape) == other % len(b.shape)
    if len(a.shape) == len(b.shape) == 1 and _unflattened(a) is _unflattened(b):
        return True
    sizes = a.shape[axis], b.shape[other]
    return isinstance(sizes[0], ir.SymbolicDim) and sizes[0].value is not None and sizes[0] == sizes[1]


def _unflattened(value: ir.Value) -> ir.Value:
    """What Reshape(-1) made a value from."""
    while (node := made_by(value, "Reshape", "Identity", "Cast")) is not None and node.inputs[0] is not None:
        sizes = constant(node.inputs[1]) if node.op_type == "Reshape" else None
        if node.op_type == "Reshape" and (sizes is None or sizes.numpy().tolist() != [-1]):
            break
        value = node.inputs[0]
    return value
