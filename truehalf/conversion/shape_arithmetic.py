"""Float arithmetic whose result becomes a shape, an index, a trip count or a branch.

300 * 2/3 is 200. With 2/3 as float16 it is 199.95, and where that becomes a size, an axis has 199 elements or 200,
depending on where a kernel rounds. FP16 holds no integer above 2048 exactly, a size of 4097 is none, and TensorRT has
no FP16 shape tensors. So what decides how many elements there are, or which, is computed in FP32.

    sinks    inputs that say where or how many (`deciding_input`), the condition that a Loop's subgraph returns, and
             two that are computed only from sizes and constants: graph outputs of integers and bools, and what
             operators read that onnx does not know
    region   all nodes upstream of a sink (Cast, Floor, Mul, Sqrt, Greater, Concat, ReduceSum, ...), through
             both branches of an If and past a Loop or Scan, which are FP32 inside. It ends at
               Shape and Size           they read no values
               TopK, ArgMax, ArgMin,    a choice: which element is the largest is no arithmetic
               MaxPool, NonMaxSuppression
               a layer                  products, convolutions, normalizations, pools, samplers, custom operators: what
                                        a network predicts is rounded like any activation
               declared nodes           the pass that made them says what must be FP32
               (truehalf.conversion.rules.custom)
             A choice among sizes and constants, or a layer of these, is arithmetic, and does not end it

An integer that ends as data (a label, a quantized value) is no sink: nothing upstream of it is kept FP32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir.facts import all_nodes, is_op, label_of, reached, subgraphs
from truehalf.ir.normalize import OpsetsOfSubgraphs
from truehalf.ir.ops import Trait, has, row_of
from truehalf.ir.slots import half_slots, schema_of

_INTEGERS = {"tensor(int32)", "tensor(int64)", "tensor(bool)"}
_FLOAT = "tensor(float)"
_LAYERS = Trait.PRODUCT | Trait.NORMALIZES | Trait.POOLS | Trait.SAMPLES


@dataclass(frozen=True)
class ShapeArithmetic:
    """The region of a model.

    Attributes:
        nodes: each with a description of the sink that it is upstream of; nodes that compute integers among them.
        values: what they write and read, constants and graph inputs among them; of any type.
    """

    nodes: dict[ir.Node, str] = field(default_factory=dict)
    values: set[ir.Value] = field(default_factory=set)


def shape_arithmetic(model: ir.Model, of_data: bool = True) -> ShapeArithmetic:
    """Find the region.

    Args:
        model: normalized, without functions. Types and shapes need not be known; then no custom operator has a sink.
        of_data: whether data that NonZero and its like count is a sink, too.
    """
    found = ShapeArithmetic()

    def follow(value: ir.Value, sink: str) -> None:
        def read(value: ir.Value) -> list[ir.Value | None]:
            node = value.producer()
            if value in found.values or (node is not None and _is_end(node, value, of_data)):
                return []
            found.values.add(value)
            if node is not None and not subgraphs(node):
                found.nodes.setdefault(node, sink)
            return _sources(value)

        for _ in reached([value], read):
            pass

    for node in all_nodes(model):
        for index, value in enumerate(node.inputs):
            if value is None or (not of_data and _counts_data(node, value)):
                continue
            if (name := deciding_input(node, index)) is not None:
                sink = f"{name} of {node.op_type} {node.name!r}"
                follow(value, sink)
                if index in half_slots(node).inputs:
                    found.nodes.setdefault(node, sink)
            elif schema_of(node) is None and _sizes_upstream(value):
                follow(value, f"input {index} of {node.op_type} {node.name!r}, a size")
        if is_op(node, "Loop"):
            follow(subgraphs(node)[0].outputs[0], f"condition of Loop {node.name!r}")
    for value in model.graph.outputs:
        if value.dtype is not None and not value.dtype.is_floating_point() and _sizes_upstream(value):
            follow(value, f"output {value.name!r}, a size")
    return found


def float16_shape_arithmetic(model: ir.Model) -> list[str]:
    """List the nodes of the region that write FLOAT16, by name; of data counted by NonZero and its like none.

    Args:
        model: as loaded. Of an output whose type the file does not state, what a Cast makes is known.
    """
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


def _is_end(node: ir.Node, value: ir.Value, of_data: bool) -> bool:
    if (
        has(node, Trait.SHAPE_ONLY)
        or KEEP_FLOAT32 in node.metadata_props
        or (not of_data and _counts_data(node, value))
    ):
        return True
    is_layer = schema_of(node) is None or has(node, _LAYERS)
    return (is_layer or row_of(node).choice == value.index()) and _sizes_upstream(value) is None


def _counts_data(node: ir.Node, value: ir.Value) -> bool:
    """Whether how many elements there are depends on data, of which a value of the node is made."""
    return has(node, Trait.COUNTS) and _sizes_upstream(value) is None


def _sizes_upstream(value: ir.Value) -> int | None:
    """Count the sizes that a value is computed from; None where data is upstream, or an operator of which that is not
    known: a Loop, or one that onnx does not know.
    """
    sizes = 0
    for each in reached([value], _sources):
        node = each.producer()
        if node is None:
            if each.const_value is None:
                return None
            continue
        if schema_of(node) is None or is_op(node, "Loop", "Scan"):
            return None
        sizes += has(node, Trait.SHAPE_ONLY)
    return sizes


def _sources(value: ir.Value) -> list[ir.Value | None]:
    """List the values that a value is made of: of If those of both branches, of Loop and Scan all that they read."""
    node = value.producer()
    if node is None or has(node, Trait.SHAPE_ONLY):
        return []
    if is_op(node, "If"):
        return [branch.outputs[value.index() or 0] for branch in subgraphs(node)]
    return list(node.inputs)
