"""Sums, reductions, pools and Softmax, in smaller FLOAT16 nodes (the table is in pessimistic.py)."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from truehalf.emulation.half_nodes import HalfNodes, NotSplitError, known, source_of
from truehalf.ir.arithmetic import reduced_axes
from truehalf.ir.facts import constant_of


def add(build: HalfNodes) -> list[ir.Value] | None:
    """Sum and Mean: their inputs one after the other."""
    values = [value for value in build.node.inputs if value is not None]
    if len(values) < 2:
        return None
    total = build.added(values)
    return [build.divided(total, len(values)) if build.node.op_type == "Mean" else total]


def reduce(build: HalfNodes) -> list[ir.Value] | None:
    node = build.node
    source, dims = source_of(build)
    axes = _reduced_axes(node, len(dims))
    if not axes:
        return None
    match node.op_type:
        case "ReduceMean":
            result = build.mean(source, dims, axes)
        case "ReduceSum":
            result = build.total(source, dims, axes)
        case _:
            result = build.total(build.op("Mul", source, source), dims, axes)
            result = build.op("Sqrt", result) if node.op_type == "ReduceL2" else result
    if not node.attributes.get_int("keepdims", 1):
        result = build.op("Squeeze", result, build.ints(axes))
    return [result]


def _reduced_axes(node: ir.Node, rank: int) -> list[int]:
    """Not negative; none when the node reduces nothing."""
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None and constant_of(given) is None:
        raise NotSplitError("its axes are no constant")
    axes = reduced_axes(node)
    return sorted(axis % rank for axis in (range(rank) if axes is None else axes))


def global_average_pool(build: HalfNodes) -> list[ir.Value]:
    source, dims = source_of(build)
    return [build.mean(source, dims, range(2, len(dims)))]


def average_pool(build: HalfNodes) -> list[ir.Value]:
    """The sum of a window is a convolution with ones; so is its number of terms where padding does not count."""
    node = build.node
    source, dims = source_of(build)
    channels = known(dims[1], "the number of its channels")
    if node.attributes.get_int("ceil_mode", 0):
        raise NotSplitError("AveragePool with ceil_mode")
    kernel = list(node.attributes["kernel_shape"].as_ints())
    attributes: dict[str, Any] = {
        name: attribute
        for name, attribute in node.attributes.items()
        if name in ("auto_pad", "dilations", "pads", "strides", "kernel_shape")
    }
    ones = build.op("Expand", build.half(1), build.ints([channels, 1, *kernel]))
    total = build.op("Conv", source, ones, group=channels, **attributes)
    same = node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME")
    padded = same or any(node.attributes.get_ints("pads", ()))
    counted: int = node.attributes.get_int("count_include_pad", 0)
    if not padded or counted:
        return [build.divided(total, math.prod(kernel))]
    present = build.op("Expand", build.half(1), build.shape(source))
    return [build.op("Div", total, build.op("Conv", present, ones, group=channels, **attributes))]
