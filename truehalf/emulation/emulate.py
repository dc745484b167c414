"""FP16 graph -> FP32 graph that rounds where FP16 hardware rounds.

With r(x) = Cast(Cast(x, FLOAT16), FLOAT), which ONNX Runtime honours at every optimisation level:

    y = op(a, b)            in FP16  ->  y = r(op(a, b))   in FP32, a and b being rounded already
    y = move(a)             in FP16  ->  y = move(a)       (Reshape, Gather, Max, ...: no new value arises)
    y = Cast(x, FLOAT16)             ->  y = r(x)
    y = Cast(a, FLOAT)    of FP16 a  ->  y = Identity(a)
    y = Cast(a, INT64)    of FP16 a  ->  y = Cast(a, INT64)
    FP16 graph input x               ->  FP32 input x, read through r(x)
    FP16 constants                   ->  the same numbers in FP32

One rounding per node: what a node accumulates inside (matrix products, convolutions, Softmax, LayerNormalization,
reductions) is accumulated in FP32, as tensor cores and FP32-accumulating kernels do; but for CumSum, which rounds term
by term (truehalf.emulation.cumulative_sums). A kernel that accumulates in FP16 can overflow where this does not:
truehalf.emulation.pessimistic makes such sums separate nodes.
+, -, *, / and Sqrt give the bits of correctly rounded FP16: FP32 has the 2 * 11 + 2 bits that make rounding twice
harmless.

FP32, BF16 and FP64 parts stay as they are. A Cast from FP64 to FP16 is rounded twice, for ONNX Runtime's goes by way of
FP32: 1 + 2^-11 + 2^-40 becomes 1, and not the next number, which is nearer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from truehalf.emulation.cumulative_sums import RULES
from truehalf.emulation.half_nodes import NOT_SPLIT, split
from truehalf.errors import StageError
from truehalf.ir.facts import TYPE_ATTRIBUTES, cast_node, insert_after, is_op
from truehalf.ir.normalize import Names
from truehalf.ir.ops import Trait, has
from truehalf.runtime.types import infer_types

_HALF = ir.DataType.FLOAT16
_FLOAT = ir.DataType.FLOAT


def emulate(model: ir.Model) -> ir.Model:
    """The FP32 graph that computes what FP16 hardware computes for `model`; `model` itself is left as it is.

    Values keep their names, so that inner tensors of both graphs compare by name; graph inputs and outputs keep name,
    order and shape, and those of type FLOAT16 become FLOAT.

    Returns:
        the graph. Its `meta["not_split"]` has, beside what `model` has there, each FP16 CumSum that was left, with the
        reason.

    Raises:
        StageError: when the type of a value cannot be inferred, or a node depends on the bits of FP16.
    """
    emulated = model.clone()
    _infer_all_types(emulated)
    names = Names(emulated)
    emulated.meta[NOT_SPLIT] = model.meta.get(NOT_SPLIT, {}) | split(emulated, RULES, names)
    graphs = list(emulated.graphs())
    nodes = [node for graph in graphs for node in graph]
    half = _half_values(graphs, nodes)
    for node in nodes:
        if any(value in half for value in (*node.inputs, *node.outputs)):
            _emulate_node(node, half, names)
    for value in emulated.graph.inputs:
        if value in half:
            _round_input(value, names)
    for graph in graphs:
        for value in graph.initializers.values():
            if value in half and value.const_value is not None:
                value.const_value = _as_float(value.const_value)
    for value in half:
        value.type = _float_type(value.type)
    return emulated


def _infer_all_types(model: ir.Model) -> None:
    nodes = [node for graph in model.graphs() for node in graph]
    adding = any(node.op_type in RULES for node in nodes)  # its rule asks for sizes
    if not adding and all(output.type is not None for node in nodes for output in node.outputs if output.name):
        return
    infer_types(model)
    for node in nodes:
        for value in node.outputs:
            if value.type is None and (value.uses() or value.is_graph_output()):
                raise StageError(
                    "sizes-unknown",
                    f"emulation: the type of {value.name!r} is unknown, an output of node {node.name!r} "
                    f"({node.domain or 'ai.onnx'}:{node.op_type}); expected a type that shape inference finds; "
                    "add value_info for it, or replace the node by standard operators",
                )


def _half_values(graphs: Iterable[ir.Graph], nodes: Iterable[ir.Node]) -> set[ir.Value]:
    values = [value for graph in graphs for value in (*graph.inputs, *graph.initializers.values())]
    values += [output for node in nodes for output in node.outputs]
    for value in values:
        if value.type is None and value.const_value is not None:
            value.type = ir.TensorType(value.const_value.dtype)
    return {value for value in values if value.type is not None and value.dtype == _HALF}


# --- nodes ------------------------------------------------------------------------------------------------------------


def _emulate_node(node: ir.Node, half: set[ir.Value], names: Names) -> None:
    if is_op(node, "Cast", "CastLike"):
        _emulate_cast(node, half, names)
        return
    _widen_attributes(node)
    if not _is_exact(node):
        for output in node.outputs:
            if output in half and isinstance(output.type, ir.TensorType):
                _round_output(output, half, names)


def _is_exact(node: ir.Node) -> bool:
    """Float attributes (the bounds of Clip-6, the fill value of Pad-2) are no FP16 numbers: rounded, to be safe."""
    if node.op_type == "Constant":
        return True
    floats = any(attribute.type == ir.AttributeType.FLOAT for attribute in node.attributes.values())
    return has(node, Trait.EXACT) and not floats


def _emulate_cast(node: ir.Node, half: set[ir.Value], names: Names) -> None:
    source, output = node.inputs[0], node.outputs[0]
    if output in half and source not in half:
        _become(node, "Cast")
        node.attributes["to"] = ir.AttrInt64("to", int(_HALF))
        half.discard(output)
        half.add(_hand_over(output, (_FLOAT,), "half", names))
    elif source in half and output.dtype in (_HALF, _FLOAT):
        _become(node, "Identity")


def _become(node: ir.Node, op_type: str) -> None:
    node.op_type = op_type
    node.resize_inputs(1)
    node.attributes.clear()


def _widen_attributes(node: ir.Node) -> None:
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == _HALF:
            node.attributes[name] = ir.AttrTensor(name, _as_float(attribute.as_tensor()))
        elif name in TYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT and attribute.as_int() == _HALF:
            node.attributes[name] = ir.AttrInt64(name, int(_FLOAT))


def _round_output(value: ir.Value, half: set[ir.Value], names: Names) -> None:
    """value = op(...)  ->  value/unrounded = op(...), value = r(value/unrounded)."""
    if value.uses() or value.is_graph_output():
        half.add(_hand_over(value, (_HALF, _FLOAT), "unrounded", names))


def _round_input(value: ir.Value, names: Names) -> None:
    """Readers of the graph input `value` read value/rounded = r(value)."""
    readers = list(value.uses())
    casts = _casts(value, (_HALF, _FLOAT), names)
    rounded = casts[-1].outputs[0]
    rounded.name = names.fresh(f"{value.name}/rounded")
    for node, index in readers:
        node.replace_input_with(index, rounded)
    for cast in reversed(casts):
        insert_after(value, cast)


def _hand_over(value: ir.Value, dtypes: tuple[ir.DataType, ...], suffix: str, names: Names) -> ir.Value:
    """Cast `value` along `dtypes`; the result gets its name and its readers, `value` is renamed to value/suffix."""
    node = value.producer()
    assert node is not None and node.graph is not None
    casts = _casts(value, dtypes, names)
    successor = casts[-1].outputs[0]
    value.replace_all_uses_with(successor, replace_graph_outputs=True)
    casts[0].replace_input_with(0, value)
    name, value.name = value.name, names.fresh(f"{value.name}/{suffix}")
    successor.name = name
    node.graph.insert_after(node, casts)
    return successor


def _casts(value: ir.Value, dtypes: tuple[ir.DataType, ...], names: Names) -> list[ir.Node]:
    casts: list[ir.Node] = []
    source = value
    for dtype in dtypes:
        suffix = {_HALF: "half", _FLOAT: "float"}[dtype]
        named = names.fresh(f"{value.name}/to_{suffix}"), names.fresh(f"{value.name}/{suffix}")
        casts.append(cast_node(source, dtype, *named))
        source = casts[-1].outputs[0]
    return casts


# --- values -----------------------------------------------------------------------------------------------------------


def _as_float(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    def widened() -> ir.TensorProtocol:
        return ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)

    return ir.LazyTensor(widened, dtype=_FLOAT, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name)


def _float_type(type_: ir.TypeProtocol | None) -> ir.TypeProtocol:
    if isinstance(type_, ir.SequenceType):
        return ir.SequenceType(_float_type(type_.elem_type))
    if isinstance(type_, ir.OptionalType):
        return ir.OptionalType(_float_type(type_.elem_type))
    return ir.TensorType(_FLOAT)
