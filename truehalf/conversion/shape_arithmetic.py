"""Float arithmetic whose result becomes a shape, an index, a trip count or a branch.

300 * 2/3 is 200. With 2/3 as float16 it is 199.95, and where that becomes a size, an axis has 199 elements or 200,
depending on where a kernel rounds. FP16 holds no integer above 2048 exactly, a size of 4097 is none, and TensorRT has
no FP16 shape tensors. So what decides how many elements there are, or which, is computed in FP32.

    sinks    inputs that say where or how many (`deciding_input`), the condition that a Loop's subgraph returns, and
             two that are computed only from sizes and constants: graph outputs of integers and bools, and what
             operators read that onnx does not know
    region   all nodes upstream of a sink (Cast, Floor, Mul, Sqrt, Greater, Concat, ReduceSum, ...), across the borders
             of If, Loop and Scan. It ends at
               Shape and Size           they read no values
               TopK, ArgMax, ArgMin,    a choice: which element is the largest is no arithmetic
               MaxPool, NonMaxSuppression
               a layer                  products, convolutions, normalizations, pools, samplers, custom operators with
                                        more than SMALL elements a sample: what a network predicts is rounded like any
                                        activation. A product of at most COORDINATES_DEEP terms is none: positions go
                                        through a matrix, however many they are
               declared nodes           the pass that made them says what must be FP32
               (truehalf.conversion.rules.custom)
             A choice among sizes and constants, or a layer of these, is arithmetic, and does not end it

An integer that ends as data (a label, a quantized value) is no sink: nothing upstream of it is kept FP32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir.facts import all_nodes, is_op, label_of, named_ends, reached, subgraphs
from truehalf.ir.inlining import InlineFunctions
from truehalf.ir.normalize import OpsetsOfSubgraphs
from truehalf.ir.ops import Trait, has, row_of
from truehalf.ir.slots import half_slots, schema_of

SMALL = 256  # elements; an operator with no more of them at any of its inputs and outputs costs nothing in FP32
COORDINATES_DEEP = 4  # terms; a transformation of homogeneous coordinates in three dimensions accumulates four

_INTEGERS = {"tensor(int32)", "tensor(int64)", "tensor(bool)"}
_FLOAT = "tensor(float)"
_LAYERS = Trait.PRODUCT | Trait.NORMALIZES | Trait.POOLS | Trait.SAMPLES


@dataclass(frozen=True)
class ShapeArithmetic:
    """The region of a model.

    Attributes:
        nodes: each with a description of the sink that it is upstream of; nodes that compute integers among them.
        values: what they write and read, constants and graph inputs among them; of any type.
        ends_at_counts: whether it ends at what NonZero and its like leave of data.
    """

    ends_at_counts: bool = False
    nodes: dict[ir.Node, str] = field(default_factory=dict)
    values: set[ir.Value] = field(default_factory=set)


def shape_arithmetic(model: ir.Model, of_data: bool = True) -> ShapeArithmetic:
    """Find the region.

    Args:
        model: normalized, without functions. Types and shapes need not be known; then no custom operator has a sink,
            and every layer ends the region.
        of_data: whether data that NonZero and its like count is a sink, too.
    """
    found, sources = ShapeArithmetic(ends_at_counts=not of_data), _sources(model)
    for node in all_nodes(model):
        for index, value in enumerate(node.inputs):
            if found.ends_at_counts and value is not None and _counts_data(node, value, sources):
                continue
            if value is not None and (name := deciding_input(node, index)) is not None:
                what = f"{name} of {node.op_type} {node.name!r}"
                _walk_back(value, what, sources, found)
                if index in half_slots(node).inputs:
                    found.nodes.setdefault(node, what)
            elif value is not None and schema_of(node) is None and _sizes_upstream(value, sources):
                _walk_back(value, f"input {index} of {node.op_type} {node.name!r}, a size", sources, found)
        if is_op(node, "Loop"):
            condition = subgraphs(node)[0].outputs[0]
            _walk_back(condition, f"condition of Loop {node.name!r}", sources, found)
    for value in model.graph.outputs:
        if value.dtype is not None and not value.dtype.is_floating_point() and _sizes_upstream(value, sources):
            _walk_back(value, f"output {value.name!r}, a size", sources, found)
    return found


def float16_shape_arithmetic(model: ir.Model) -> list[str]:
    """List the nodes of the region that write FLOAT16, by name; of data counted by NonZero and its like none.

    Args:
        model: as loaded. Of an output whose type the file does not state, what a Cast makes is known.
    """
    if model.functions:
        model = model.clone()
        InlineFunctions()(model)
    OpsetsOfSubgraphs()(model)
    half = ir.DataType.FLOAT16
    return [
        label_of(node)
        for node in shape_arithmetic(model, of_data=False).nodes
        if any(value.dtype == half for value in node.outputs)
        or (is_op(node, "Cast") and node.attributes.get_int("to") == half)
    ]


def deciding_input(node: ir.Node, index: int) -> str | None:
    """The name of an input that says where or how many; None for data.

    It is one that the operator's schema allows to be an integer or bool, and not to be a float. Of an operator that
    onnx does not know, every integer may be one.
    """
    schema = schema_of(node)
    if schema is None:
        value = node.inputs[index]
        dtype = value.dtype if value is not None else None
        return f"input {index}" if dtype in (ir.DataType.INT32, ir.DataType.INT64) else None
    if not schema.inputs:
        return None
    parameter = schema.inputs[min(index, len(schema.inputs) - 1)]  # the last one repeats when it is variadic
    row, types = row_of(node), set(parameter.types)
    if parameter.name in (*row.coordinates, *row.decides):
        return parameter.name
    decides = not row.traits & Trait.INTEGER_DATA and _FLOAT not in types and bool(types & _INTEGERS)
    return parameter.name if decides else None


def _walk_back(
    value: ir.Value, sink: str, sources: dict[ir.Value, list[ir.Value | None]], found: ShapeArithmetic
) -> None:
    waiting: list[ir.Value | None] = [value]
    while waiting:
        value_or_none = waiting.pop()
        if value_or_none is None or value_or_none in found.values:
            continue
        value, node = value_or_none, value_or_none.producer()
        if node is None or subgraphs(node):
            found.values.add(value)
            waiting += sources.get(value, [])
        elif not _is_end(node, value, sources) and not (found.ends_at_counts and _counts_data(node, value, sources)):
            found.values.add(value)
            found.nodes.setdefault(node, sink)
            waiting += node.inputs


def _is_end(node: ir.Node, value: ir.Value, sources: dict[ir.Value, list[ir.Value | None]]) -> bool:
    if has(node, Trait.SHAPE_ONLY) or KEEP_FLOAT32 in node.metadata_props:
        return True
    is_layer = schema_of(node) is None or has(node, _LAYERS)
    if row_of(node).choice != value.index() and (not is_layer or _is_small(node) or _is_of_coordinates(node)):
        return False
    return _sizes_upstream(value, sources) is None


def _counts_data(node: ir.Node, value: ir.Value, sources: dict[ir.Value, list[ir.Value | None]]) -> bool:
    """Whether how many elements there are depends on data, of which a value of the node is made."""
    return has(node, Trait.COUNTS) and _sizes_upstream(value, sources) is None


def _is_small(node: ir.Node) -> bool:
    """Whether every tensor of a node has few elements; those of a first axis without a number are samples."""
    return all(value.shape is not None and _elements(value.shape) <= SMALL for value in named_ends(node))


def _elements(shape: ir.Shape) -> float:
    sides = list(shape)
    if sides and not isinstance(sides[0], int):
        sides = sides[1:]
    return math.prod(side if isinstance(side, int) else math.inf for side in sides)


def _is_of_coordinates(node: ir.Node) -> bool:
    """Whether a product is known to accumulate few terms."""
    if node.op_type not in ("MatMul", "Gemm") or len(node.inputs) < 2:
        return False
    left, right = (value.shape if value is not None else None for value in node.inputs[:2])
    sides = [
        None if left is None or not len(left) else left[0 if node.attributes.get_int("transA", 0) else -1],
        None
        if right is None or not len(right)
        else right[-1 if node.attributes.get_int("transB", 0) else max(-2, -len(right))],
    ]
    return any(isinstance(side, int) and side <= COORDINATES_DEEP for side in sides)


def _sizes_upstream(value: ir.Value, sources: dict[ir.Value, list[ir.Value | None]]) -> int | None:
    """How many sizes a value is computed from; None where data is upstream, or an operator that onnx does not know.
    What chooses a branch, or says how often a loop runs, may be data.
    """

    def read(value: ir.Value) -> Sequence[ir.Value | None]:
        node = value.producer()
        if node is None or subgraphs(node):
            return sources.get(value, ())
        return () if has(node, Trait.SHAPE_ONLY) else node.inputs

    sizes = 0
    for each in reached([value], read):
        node = each.producer()
        if node is not None and not subgraphs(node):
            sizes += has(node, Trait.SHAPE_ONLY)
            if schema_of(node) is None:
                return None
        elif not sources.get(each) and (node is not None or each.const_value is None):
            return None
    return sizes


def _sources(model: ir.Model) -> dict[ir.Value, list[ir.Value | None]]:
    """What an output of If, Loop or Scan, or an input of their subgraphs, may hold."""
    found: dict[ir.Value, list[ir.Value | None]] = {}
    for node in all_nodes(model):
        if not is_op(node, "If", "Loop", "Scan"):
            continue
        is_loop = is_op(node, "Loop")
        read, made = (2, 1) if is_loop else (0, 0)  # beside the turn and the condition of a Loop
        for subgraph in subgraphs(node):
            given, written = list(node.inputs)[read:], list(subgraph.outputs)[made:]
            inside = list(subgraph.inputs)[read:]
            if inside and len(inside) != len(given):  # Scan before opset 9
                continue
            states = len(inside) if is_loop else len(inside) - node.attributes.get_int("num_scan_inputs", 0)
            for index, value in enumerate(inside):
                found[value] = [*given[index : index + 1], *(written[index : index + 1] if index < states else [])]
            for index, value in enumerate(node.outputs):
                carried = given[index : index + 1] if index < states else []
                found.setdefault(value, []).extend([*written[index : index + 1], *carried])
    return found
