"""Normalisations, spelt out in smaller FLOAT16 nodes (the table is in pessimistic.py).

Types that a node states for its inside (stash_type) are overruled: engines have overruled them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from truehalf.emulation.half_nodes import HALF, HalfNodes, NotSplitError, source_of


def layer_normalization(build: HalfNodes) -> list[ir.Value]:
    """LayerNormalization, with its Mean and InvStdDev, and RMSNormalization."""
    node = build.node
    source, dims = source_of(build)
    axes = range(node.attributes.get_int("axis", -1) % len(dims), len(dims))
    centred, mean = source, None
    if node.op_type == "LayerNormalization":
        mean = build.mean(source, dims, axes)
        centred = build.op("Sub", source, mean)
    inverse = _inverse_deviation(build, centred, dims, axes)
    result = _scaled(build, build.op("Mul", centred, inverse), node.inputs[1:])
    results = [result, mean, inverse]
    return [
        value if output.dtype in (HALF, None) else build.cast(value, output.dtype)
        for value, output in zip(results, node.outputs, strict=False)
        if value is not None
    ]


def instance_normalization(build: HalfNodes) -> list[ir.Value]:
    source, dims = source_of(build)
    normalized = _normalized(build, source, dims, range(2, len(dims)))
    return [_scaled(build, normalized, [_per_channel(build, value, len(dims)) for value in build.node.inputs[1:]])]


def group_normalization(build: HalfNodes) -> list[ir.Value]:
    """Below opset 21 the operator is withdrawn: its scales were those of groups."""
    node = build.node
    source, dims = source_of(build)
    if build.opset < 21:
        raise NotSplitError(f"GroupNormalization of opset {build.opset}; expected 21 or more")
    groups = node.attributes["num_groups"].as_int()
    lengths = [dim for dim in dims[1:] if dim is not None]
    length = math.prod(lengths) // groups if len(lengths) == len(dims) - 1 else None
    parted = build.op("Reshape", source, build.ints([0, groups, -1]))
    normalized = _normalized(build, parted, [dims[0], groups, length], [2])
    whole = build.op("Reshape", normalized, build.shape(source))
    return [_scaled(build, whole, [_per_channel(build, value, len(dims)) for value in node.inputs[1:]])]


def _normalized(build: HalfNodes, value: ir.Value, dims: Sequence[int | None], axes: Sequence[int]) -> ir.Value:
    centred = build.op("Sub", value, build.mean(value, dims, axes))
    return build.op("Mul", centred, _inverse_deviation(build, centred, dims, axes))


def _inverse_deviation(
    build: HalfNodes, centred: ir.Value, dims: Sequence[int | None], axes: Sequence[int]
) -> ir.Value:
    return _inverse_root(build, build.mean(build.op("Mul", centred, centred), dims, axes))


def _inverse_root(build: HalfNodes, variance: ir.Value | None) -> ir.Value:
    epsilon = build.half(build.node.attributes.get_float("epsilon", 1e-5))
    return build.op("Reciprocal", build.op("Sqrt", build.op("Add", variance, epsilon)))


def _scaled(build: HalfNodes, value: ir.Value, parameters: Sequence[ir.Value | None]) -> ir.Value:
    """value * scale + bias, where these are given."""
    for op_type, parameter in zip(("Mul", "Add"), parameters, strict=False):
        if parameter is not None:
            value = build.op(op_type, value, parameter)
    return value


def _per_channel(build: HalfNodes, value: ir.Value | None, rank: int) -> ir.Value | None:
    """One number for each channel, to be combined with [N, C, ...]."""
    if value is None or rank <= 2:
        return value
    return build.op("Unsqueeze", value, build.ints(range(1, rank - 1)))
