"""dynamic-topk: TopK whose k is no constant, unless it sorts the whole axis.

torch.sort and topk of all leave k to the graph as the size of the axis that is looked at. Exporters compute that size
in several ways: of the tensor itself, of what was flattened to it (a product of sizes), of another one. Sizes are
compared as products of numbers and names:

    x: [n, 2]    Reshape(x, -1): [2 n]    Mul(Shape(x)[0], 2) = 2 n
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of
from truehalf.ir.ops import Trait, with_trait
from truehalf.linting.base import MOVES, Check, LocatedFinding, Rule, Subject, rank
from truehalf.linting.sizes import constant
from truehalf.linting.support import TOPK_MAX
from truehalf.linting.values import Origin


class DynamicTopk(Rule):
    """topk with a k that is no constant

    Warning where `k` varies with a size, or is the value of an input: TensorRT builds for the largest, refuses more
    than 3840, and all that follows varies; or is computed on the device. Sorting (`k` is the size of the axis) is no
    finding.

    ```python
    scores.topk(scores.shape[1] // 4)
    scores.topk(300)  # instead
    ```
    """

    id = "dynamic-topk"
    source = "TensorRT's operator matrix (TopK)"


_MOVES = MOVES | {"Concat"}
_KEEP_ELEMENTS = with_trait(Trait.PERMUTES) | {"Cast"}
Size = tuple[int, Counter[Hashable]]  # a number times named sizes; one without a name goes by its value and axis
_VARIES = {
    Origin.SHAPE: "Its k varies with a size",
    Origin.INPUT: "Its k is the value of an input",
    Origin.ROUND: "Its k varies with the number of the loop's round",
}


def topks(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("TopK"):
        k = node.inputs[1] if len(node.inputs) > 1 else None
        origin = subject.values.origin(k)
        if origin is Origin.CONSTANT or (origin is Origin.SHAPE and _sorts(node)):
            continue
        yield DynamicTopk.at(
            node,
            f"{_VARIES[origin]}; TensorRT builds for the largest, refuses more than {TOPK_MAX}, and all that follows "
            "has a size that varies."
            if origin in _VARIES
            else "Its k is computed on the device, so that only a run knows the size of all that follows.",
            "Give topk a number.",
        )


def _sorts(node: ir.Node) -> bool:
    """Whether k is the size of the axis that is looked at."""
    source = node.inputs[0]
    size = _axis(source, node.attributes.get_int("axis", -1)) if source is not None else None
    return size is not None and size == _number(node.inputs[1])


def _number(k: ir.Value | None) -> Size | None:
    """What k is, where it is a product of sizes."""
    tensor, node = constant(k), k.producer() if k is not None else None
    if tensor is not None:
        return (int(tensor.numpy().ravel()[0]), Counter()) if tensor.size == 1 else None
    if node is None or not node.inputs or (source := node.inputs[0]) is None:
        return None
    if is_op(node, *_MOVES) and (node.op_type != "Concat" or len(node.inputs) == 1):
        return _number(source)
    if is_op(node, "Mul"):
        return _product(map(_number, node.inputs))
    if is_op(node, "Size"):
        return _elements(source)
    picked = node if is_op(node, "Gather") else None
    shape = producer_of(source, "Shape") if picked is not None else node
    if shape is None or not is_op(shape, "Shape") or (source := shape.inputs[0]) is None:
        return None
    start, end = shape.attributes.get_int("start", 0), shape.attributes.get_int("end")
    if picked is not None:
        index = constant(picked.inputs[1])
        whole = start == 0 and end is None
        return _axis(source, int(index.numpy().ravel()[0])) if whole and index is not None and index.size == 1 else None
    axes = list(range(rank(source) or 0))[start:end]
    return _axis(source, axes[0]) if len(axes) == 1 else None


def _axis(value: ir.Value, axis: int) -> Size | None:
    """The size of an axis; the only one has as many as there are elements."""
    if value.shape is None:
        return 1, Counter([(value, axis)])
    if not -len(value.shape) <= axis < len(value.shape):
        return None
    return _elements(value) if len(value.shape) == 1 else _known(value, axis % len(value.shape))


def _elements(value: ir.Value) -> Size | None:
    """How many elements a tensor has: as many as what it was reshaped from."""
    while (node := producer_of(value, *_KEEP_ELEMENTS)) is not None and node.inputs[0] is not None:
        value = node.inputs[0]
    if value.shape is None:
        return 1, Counter([(value, None)])
    return _product(_known(value, axis) for axis in range(len(value.shape)))


def _known(value: ir.Value, axis: int) -> Size:
    dim = value.shape[axis] if value.shape is not None else None
    if isinstance(dim, int):
        return dim, Counter()
    return 1, Counter([dim.value if dim is not None and dim.value is not None else (value, axis)])


def _product(sizes: Iterable[Size | None]) -> Size | None:
    number, names = 1, Counter[Hashable]()
    for size in sizes:
        if size is None:
            return None
        number, names = number * size[0], names + size[1]
    return number, names


RULES: tuple[type[Rule], ...] = (DynamicTopk,)
CHECKS: tuple[Check, ...] = (topks,)
