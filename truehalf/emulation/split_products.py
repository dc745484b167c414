"""Products that accumulate along an axis K, cut into blocks along it: FLOAT16 nodes -> smaller FLOAT16 nodes.

    MatMul(A, B)               ->  MatMul(A[:, 0:128], B[0:128]) + MatMul(A[:, 128:256], B[128:256]) + ...
    Gemm(A, B, C)              ->  the same, + beta * C
    Conv(X, W, B)              ->  Conv(X[:, 0:k], W[:, 0:k]) + Conv(X[:, k:2k], W[:, k:2k]) + ... + B,
    ConvTranspose(X, W, B)         k channels of each group so that k * kernel is at most 128, but at least one
    Einsum of two operands     ->  cut along the one letter that is summed

A node whose sum is no longer than a block is left as it is; one whose inner length is not known is not cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from truehalf.emulation.half_nodes import BLOCK, HalfNodes, NotSplitError, dims_of, known


def matmul(build: HalfNodes) -> list[ir.Value] | None:
    left, right = _operands(build.node)
    rows, columns = dims_of(left), dims_of(right)
    axis = len(columns) - 2 if len(columns) > 1 else 0
    length = known(rows[-1] if rows[-1] is not None else columns[axis], "the length of its inner axis")
    if length <= BLOCK:
        return None
    pairs = _pairs(build, (left, len(rows) - 1), (right, axis), length, BLOCK)
    return [build.added([build.op("MatMul", a, b) for a, b in pairs])]


def gemm(build: HalfNodes) -> list[ir.Value] | None:
    node = build.node
    left, right = _operands(node)
    flags: dict[str, Any] = {name: node.attributes.get_int(name, 0) for name in ("transA", "transB")}
    rows, columns = 0 if flags["transA"] else 1, 1 if flags["transB"] else 0
    length = dims_of(left)[rows]
    length = known(length if length is not None else dims_of(right)[columns], "the length of its inner axis")
    if length <= BLOCK:
        return None
    attributes: dict[str, Any] = flags | {"alpha": node.attributes.get_float("alpha", 1.0)}
    pairs = _pairs(build, (left, rows), (right, columns), length, BLOCK)
    total = build.added([build.op("Gemm", a, b, **attributes) for a, b in pairs])
    shift = node.inputs[2] if len(node.inputs) > 2 else None
    if shift is not None:
        beta = node.attributes.get_float("beta", 1.0)
        scaled = shift if beta == 1 else build.op("Mul", shift, build.half(beta))
        total = build.op("Add", total, scaled)
    return [total]


def conv(build: HalfNodes) -> list[ir.Value] | None:
    """Conv and ConvTranspose."""
    node = build.node
    source, weights = _operands(node)
    transposed = node.op_type == "ConvTranspose"
    dims = dims_of(weights)
    kernel = math.prod(known(dim, "the shape of its weights") for dim in dims[2:])
    groups = node.attributes.get_int("group", 1)
    channels = known(dims[0 if transposed else 1], "the shape of its weights")
    channels = channels // groups if transposed else channels  # of one group
    block = max(1, BLOCK // kernel)
    if channels <= block:
        if kernel > BLOCK:
            build.notes.append(f"a kernel of {kernel} terms is one block")
        return None
    if kernel > BLOCK:
        build.notes.append(f"a kernel of {kernel} terms is added up in blocks of that size")
    if groups == 1:
        pairs = _pairs(build, (source, 1), (weights, 0 if transposed else 1), channels, block)
    else:
        pairs = _grouped_pairs(build, channels, block)
    attributes: dict[str, Any] = dict(node.attributes)
    total = build.added([build.op(node.op_type, a, b, **attributes) for a, b in pairs])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        axes = build.ints(range(1, len(dims) - 1))
        total = build.op("Add", total, build.op("Unsqueeze", bias, axes))
    return [total]


def einsum(build: HalfNodes) -> list[ir.Value] | None:
    equation = build.node.attributes["equation"].as_string().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    summed = sorted(set(terms) - {*result, ","})
    if "." in equation or not arrow or terms.count(",") != 1 or len(summed) != 1:
        raise NotSplitError("an Einsum; expected two operands, and one letter that is summed")
    first, second = terms.split(",")
    (letter,) = summed
    if first.count(letter) != 1 or second.count(letter) != 1:
        raise NotSplitError(f"an Einsum; expected the letter {letter!r} once in each operand")
    left, right = _operands(build.node)
    axes = first.index(letter), second.index(letter)
    length = dims_of(left)[axes[0]]
    length = known(length if length is not None else dims_of(right)[axes[1]], f"the length of {letter!r}")
    if length <= BLOCK:
        return None
    pairs = _pairs(build, (left, axes[0]), (right, axes[1]), length, BLOCK)
    return [build.added([build.op("Einsum", a, b, equation=equation) for a, b in pairs])]


def _operands(node: ir.Node) -> tuple[ir.Value, ir.Value]:
    first, second = node.inputs[:2]
    assert first is not None and second is not None
    return first, second


def _pairs(
    build: HalfNodes, left: tuple[ir.Value, int], right: tuple[ir.Value, int], length: int, block: int
) -> list[tuple[ir.Value, ir.Value]]:
    """Two values, each cut along its axis."""
    return list(zip(*(build.pieces(value, axis, length, block) for value, axis in (left, right)), strict=True))


def _grouped_pairs(build: HalfNodes, channels: int, block: int) -> list[tuple[ir.Value, ir.Value]]:
    """The same channels of each group, and their weights."""
    source, weights = _operands(build.node)
    groups = build.node.attributes.get_int("group", 1)

    def picked(value: ir.Value, axis: int, chosen: Sequence[int]) -> ir.Value:
        indices = build.ints([g * channels + c for g in range(groups) for c in chosen])
        return build.op("Gather", value, indices, axis=axis)

    blocks = [range(start, min(start + block, channels)) for start in range(0, channels, block)]
    sources = [picked(source, 1, chosen) for chosen in blocks]
    if build.node.op_type == "ConvTranspose":
        return list(zip(sources, [picked(weights, 0, chosen) for chosen in blocks], strict=True))
    return list(zip(sources, build.pieces(weights, 1, channels, block), strict=True))
