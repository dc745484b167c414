"""Arithmetic of a node, and the number of terms that one element of its output adds up.

    depth(MatMul [.., m, k] x [.., k, n]) = k      depth(Conv, W [o, c, h, w]) = c * h * w
    depth(ReduceSum) = elements per output         depth(LayerNormalization) = elements per mean

Matrix products, convolutions, attention, recurrences, Reduce operators, Softmax and norms count; all others are 1 deep
and cost one operation for each element that they write. Unknown dimensions count 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx_ir as ir

from truehalf.ir.facts import constant_of
from truehalf.ir.ops import Trait, has

Shapes = Mapping[ir.Value, tuple[int, ...]]


def reduction_depth(node: ir.Node, shapes: Shapes | None = None) -> int:
    """How many terms one output element accumulates; 1 for operators that accumulate nothing, and for unknown ones.

    Args:
        shapes: shapes that replace those of the values, for instance at a profile's opt shape.
    """
    rule = _DEPTHS.get(node.op_type) if node.domain == "" else None
    return max(1, rule(_Seen(node, shapes or {}))) if rule else 1


def flops(node: ir.Node, shapes: Shapes | None = None) -> float:
    """Arithmetic of a node, in operations.

    2 * depth * output elements for matrix products and convolutions (a multiplication and an addition a term), one for
    each element that a Reduce operator or a global pool reads or another one writes, 0 for moves, casts and shapes.
    """
    if has(node, Trait.NO_ARITHMETIC):
        return 0.0
    seen = _Seen(node, shapes or {})
    if node.domain == "" and node.op_type in _PRODUCTS:
        return _PRODUCTS[node.op_type](seen)
    written = max((seen.elements(value) for value in node.outputs), default=0)
    if all(value.shape is None for value in node.outputs):  # where inference knows nothing: as much as is read
        written = max(written, seen.elements(seen.input(0)))
    if node.domain == "" and node.op_type.startswith(("Reduce", "Global")):
        return float(max(written, seen.elements(seen.input(0))))
    return float(written)


def reduced_axes(node: ir.Node) -> tuple[int, ...] | None:
    """The axes of a Reduce operator; None: all, or not known before a run; (): it reduces nothing."""
    if (attribute := node.attributes.get_ints("axes")) is not None:
        return tuple(attribute) or None
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        axes = constant_of(node.inputs[1])
        if axes is None or axes.size:
            return None if axes is None else tuple(int(axis) for axis in axes.ravel())
    return () if node.attributes.get_int("noop_with_empty_axes", 0) else None


class _Seen:
    """A node with shapes: dimensions as integers, 1 where unknown, () for a tensor of unknown rank."""

    def __init__(self, node: ir.Node, shapes: Shapes) -> None:
        self.node, self._shapes = node, shapes

    def input(self, index: int) -> ir.Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def shape(self, value: ir.Value | None) -> tuple[int, ...]:
        if value is None:
            return ()
        if value in self._shapes:
            return self._shapes[value]
        return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape or ())

    def of(self, index: int) -> tuple[int, ...]:
        return self.shape(self.input(index))

    def elements(self, value: ir.Value | None) -> int:
        return math.prod(self.shape(value))

    def number(self, name: str, default: int) -> int:
        return self.node.attributes.get_int(name, default)


# --- matrix products and convolutions ---------------------------------------------------------------------------------


def _matmul(seen: _Seen) -> int:
    left, right = seen.of(0), seen.of(1)
    return max(left[-1] if left else 1, (right[-2] if len(right) > 1 else right[0]) if right else 1)


def _gemm(seen: _Seen) -> int:
    left, right = seen.of(0), seen.of(1)
    return max(
        (left[0] if seen.number("transA", 0) else left[1]) if len(left) == 2 else 1,
        (right[1] if seen.number("transB", 0) else right[0]) if len(right) == 2 else 1,
    )


def _conv(seen: _Seen) -> int:
    return math.prod(seen.of(1)[1:])


def _conv_transpose(seen: _Seen) -> int:
    """At stride 1; with a larger one an output sees fewer taps."""
    weight = seen.of(1)
    return weight[0] // max(1, seen.number("group", 1)) * math.prod(weight[2:]) if weight else 1


def _einsum(seen: _Seen) -> int:
    """Sizes of the letters that the output lacks; it has what an ellipsis stands for."""
    left, arrow, right = seen.node.attributes.get_string("equation", "").replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for index, term in enumerate(left.split(",")):
        head, _, tail = term.partition("...")
        shape = seen.of(index)
        from_left, from_right = zip(head, shape, strict=False), zip(tail[::-1], shape[::-1], strict=False)
        for letter, size in (*from_left, *from_right):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(
        size for letter, size in sizes.items() if letter not in right and (arrow or left.count(letter) > 1)
    )


def _attention_sizes(seen: _Seen) -> tuple[int, int, int]:
    """Length of a key, of a value, and number of keys."""
    keys, values = seen.of(1), seen.of(2)
    if len(keys) < 3 or len(values) < 3:
        return 1, 1, 1
    heads = 1 if len(keys) == 4 else max(1, seen.number("kv_num_heads", 1))
    past = seen.of(4)
    return keys[-1] // heads, values[-1] // heads, keys[-2] + (past[-2] if len(past) == 4 else 0)


def _attention(seen: _Seen) -> int:
    key, _, number = _attention_sizes(seen)
    return max(key, number)


def _attention_flops(seen: _Seen) -> float:
    key, value, number = _attention_sizes(seen)
    queries = seen.of(0)
    heads = 1 if len(queries) == 4 else max(1, seen.number("q_num_heads", 1))
    rows = math.prod(queries[:-1]) * heads
    return 2.0 * rows * number * (key + value)


def _recurrent(seen: _Seen) -> int:
    """W [directions, gates * h, input_size], R [directions, gates * h, h], h = hidden_size: a gate sums over both."""
    return math.prod(seen.of(1)[2:]) + math.prod(seen.of(2)[2:])


def _recurrent_flops(seen: _Seen) -> float:
    steps = math.prod(seen.of(0)[:2])
    return 2.0 * steps * (seen.elements(seen.input(1)) + seen.elements(seen.input(2)))


def _conv_transpose_flops(seen: _Seen) -> float:
    return 2.0 * seen.elements(seen.input(0)) * math.prod(seen.of(1)[1:])


def _product_flops(seen: _Seen) -> float:
    return 2.0 * max(1, _DEPTHS[seen.node.op_type](seen)) * seen.elements(seen.node.outputs[0])


def _reduce(seen: _Seen) -> int:
    shape, axes = seen.of(0), reduced_axes(seen.node)
    return math.prod(shape if axes is None else (shape[axis] for axis in axes if -len(shape) <= axis < len(shape)))


def _softmax(seen: _Seen) -> int:
    return math.prod(seen.of(0)[seen.number("axis", -1) :][:1])


def _norm_from_axis(seen: _Seen) -> int:
    return math.prod(seen.of(0)[seen.number("axis", -1) :])


_DEPTHS: dict[str, Callable[[_Seen], int]] = {
    name: rule
    for names, rule in (
        ("Attention", _attention),
        ("CausalConvWithState Conv DeformConv", _conv),
        ("ConvTranspose", _conv_transpose),
        ("Einsum", _einsum),
        ("GRU LSTM RNN", _recurrent),
        ("Gemm", _gemm),
        ("LayerNormalization RMSNormalization", _norm_from_axis),
        ("LogSoftmax Softmax", _softmax),
        ("MatMul", _matmul),
        ("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare", _reduce),
    )
    for name in names.split()
}

_PRODUCTS: dict[str, Callable[[_Seen], float]] = {
    name: rule
    for names, rule in (
        ("Attention", _attention_flops),
        ("CausalConvWithState Conv DeformConv Einsum Gemm MatMul", _product_flops),
        ("ConvTranspose", _conv_transpose_flops),
        ("GRU LSTM RNN", _recurrent_flops),
    )
    for name in names.split()
}
