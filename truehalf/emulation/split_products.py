"""Products that accumulate along an axis K, cut into blocks along it: FLOAT16 nodes -> smaller FLOAT16 nodes.

    MatMul(A, B)               ->  MatMul(A[:, 0:128], B[0:128]) + MatMul(A[:, 128:256], B[128:256]) + ...
    Gemm(A, B, C)              ->  the same, + beta * C
    Conv(X, W, B)              ->  Conv(X[:, 0:k], W[:, 0:k]) + Conv(X[:, k:2k], W[:, k:2k]) + ... + B,
    ConvTranspose(X, W, B)         k channels so that k * kernel is at most 128
    Einsum of two operands     ->  cut along the one letter that is summed

A node whose sum is no longer than a block is left as it is; one whose inner length is not known is not cut, and neither
are kernels of more than 128 elements and groups of more than 128 terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from truehalf.emulation.half_nodes import BLOCK, HalfNodes, NotSplitError, dims_of, known

Cut = tuple[int, int, int, int]  # axis of the first operand, of the second, its length, and length of a block


def product(build: HalfNodes) -> list[ir.Value] | None:
    node = build.node
    operands = [value for value in node.inputs[:2] if value is not None]
    if len(operands) != 2:
        raise NotSplitError(f"{node.op_type} of {len(operands)} operands")
    left, right = operands
    first, second, length, block = _CUTS[node.op_type](node, left, right)
    if length <= block:
        return None
    attributes: dict[str, Any] = {name: attribute for name, attribute in node.attributes.items() if name != "beta"}
    pairs = zip(build.pieces(left, first, length, block), build.pieces(right, second, length, block), strict=True)
    total = build.added([build.op(node.op_type, a, b, **attributes) for a, b in pairs])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return [total]
    if node.op_type == "Gemm":
        bias = build.op("Mul", bias, build.half(node.attributes.get_float("beta", 1.0)))
    else:
        bias = build.op("Unsqueeze", bias, build.ints(range(1, len(dims_of(right)) - 1)))
    return [build.op("Add", total, bias)]


def _length(left: ir.Value, first: int, right: ir.Value, second: int) -> int:
    length = dims_of(left)[first]
    return known(length if length is not None else dims_of(right)[second], "the length of its inner axis")


def _matmul(node: ir.Node, left: ir.Value, right: ir.Value) -> Cut:
    first, second = len(dims_of(left)) - 1, max(0, len(dims_of(right)) - 2)
    return first, second, _length(left, first, right, second), BLOCK


def _gemm(node: ir.Node, left: ir.Value, right: ir.Value) -> Cut:
    first, second = 1 - node.attributes.get_int("transA", 0), node.attributes.get_int("transB", 0)
    return first, second, _length(left, first, right, second), BLOCK


def _conv(node: ir.Node, left: ir.Value, right: ir.Value) -> Cut:
    """Conv and ConvTranspose."""
    dims, axis = dims_of(right), 0 if node.op_type == "ConvTranspose" else 1
    groups = node.attributes.get_int("group", 1)
    kernel, channels = (known(each, "the shape of its weights") for each in (_product(dims[2:]), dims[axis]))
    terms = kernel * (channels // groups if axis == 0 else channels)
    if terms > BLOCK and (groups > 1 or kernel > BLOCK):
        raise NotSplitError(f"{node.op_type} of {groups} groups, {terms} terms in each, and a kernel of {kernel}")
    return 1, axis, channels if terms > BLOCK else 0, max(1, BLOCK // kernel)


def _product(dims: list[int | None]) -> int | None:
    return None if None in dims else math.prod(dim or 0 for dim in dims)


def _einsum(node: ir.Node, left: ir.Value, right: ir.Value) -> Cut:
    equation = node.attributes["equation"].as_string().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    summed = sorted(set(terms) - {*result, ","})
    once = len(summed) == 1 and [each.count(summed[0]) for each in terms.split(",")] == [1, 1]
    if "." in equation or not arrow or not once:
        raise NotSplitError("an Einsum; expected two operands, and one letter that is summed, once in each")
    first, second = (each.index(summed[0]) for each in terms.split(","))
    return first, second, _length(left, first, right, second), BLOCK


_CUTS: dict[str, Callable[[ir.Node, ir.Value, ir.Value], Cut]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Einsum": _einsum,
}
