"""What no input changes is computed once, and an If whose condition never changes is its branch.

    f(constants)                     ->  constant
    Shape(x), x of static shape      ->  constant; an element of Shape(x) that is static, too
    If(constant) {a} {b}             ->  a or b, in the place of the If

Nothing grows: a result stays if it is at most SMALL bytes, or at most as large as the constants that only this node
reads and that go with it. Not folded: what is random, quantised weights (DequantizeLinear keeps them small), control
flow, operators of other domains, and results whose type onnx's own evaluation does not give as the schema does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from stages.graph.facts import all_nodes
from stages.graph.normalize import infer_types
from stages.graph.repair.rewrite import (
    Done,
    Writer,
    constant_of,
    dims_of,
    graph_of,
    ints_of,
    is_op,
    replace,
)

SMALL = 1 << 16  # bytes
_NOT_FOLDED = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Constant", "DequantizeLinear", "DynamicQuantizeLinear", "Dropout", "If", "Loop", "QuantizeLinear", "Scan"),
    *("Optional", "OptionalGetElement", "OptionalHasElement", "StringNormalizer", "TfIdfVectorizer"),
}
_FEW = 64  # elements of a shape that is looked into


def fold_constants(model: ir.Model) -> Done:
    """Fold a typed model, in place."""
    return Done(fold(model, None, SMALL))


def fold(model: ir.Model, wanted: Collection[ir.Node] | None, limit: int) -> int:
    """Fold the wanted nodes (None: all) whose result is at most `limit` bytes, until nothing is left to fold.

    Returns:
        How many nodes were folded. An If counts one, whatever its branch holds.
    """
    count, changed = 0, True
    while changed:
        changed, writer = False, Writer(model)
        for node in [node for node in all_nodes(model) if wanted is None or node in wanted]:
            if node.graph is None or not node.outputs:
                continue  # went with another
            if is_op(node, "If") and (condition := constant_of(node.inputs[0])) is not None:
                inlined = _inline(node, bool(condition.ravel()[0]), writer)
                wanted = None if wanted is None else {*wanted, *inlined}
                count, changed = count + 1, True
            elif (results := _results(node, limit)) is not None:
                made = [writer.at(node).constant(array, ir.DataType.from_numpy(array.dtype)) for array in results]
                replace(node, made, writer)
                count += 1
        if changed:
            infer_types(model)
    return count


def _inline(node: ir.Node, taken: bool, writer: Writer) -> list[ir.Node]:
    """Move the nodes of the taken branch before the If; returns them."""
    graph, body = graph_of(node), node.attributes["then_branch" if taken else "else_branch"].as_graph()
    results, inside = list(body.outputs), list(body)
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        if value.name in graph.initializers:
            value.name = writer.names.fresh(value.name or "constant")
        graph.register_initializer(value)
    body.outputs.clear()
    for inner in inside:
        body.remove(inner)
        graph.insert_before(node, inner)
    replace(node, results, writer)
    return inside


def _results(node: ir.Node, limit: int) -> list[np.ndarray[Any, Any]] | None:
    """What a node gives whatever the inputs are; None: that is not known, or too large."""
    if node.domain != "" or node.op_type in _NOT_FOLDED or any(output.is_graph_output() for output in node.outputs):
        return None
    elements, dims = known_elements(node.outputs[0]), _dims(node)
    static = [dim for dim in dims if dim is not None] if dims is not None else None
    if elements is not None and None not in elements and static is not None and len(elements) == np.prod(static):
        return [np.array(elements, np.int64).reshape(static)]
    read = {value: constant_of(value) for value in node.inputs if value is not None}
    arrays = {value: array for value, array in read.items() if array is not None}
    if len(arrays) < len(read) or any(
        attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()
    ):
        return None
    if (size := _bytes(node)) is not None and size > max(limit, _freed(arrays)):
        return None
    results = _evaluated(node, arrays)
    if results is None or sum(result.nbytes for result in results) > max(limit, _freed(arrays)):
        return None
    return results


def _dims(node: ir.Node) -> list[int | None] | None:
    """The shape of a result; of a Gather from a vector it is that of its indices."""
    indices = constant_of(node.inputs[1]) if is_op(node, "Gather") else None
    dims = dims_of(node.outputs[0])
    return list(indices.shape) if dims is None and indices is not None else dims


def _bytes(node: ir.Node) -> int | None:
    """Size of the results, before they are computed; None where it is not known."""
    total = 0
    for output in node.outputs:
        dims = dims_of(output)
        if dims is None or output.dtype is None:
            return None
        known = [dim for dim in dims if dim is not None]
        if len(known) < len(dims):
            return None
        total += int(np.prod(known, dtype=np.int64)) * int(output.dtype.itemsize)
    return total


def _freed(arrays: dict[ir.Value, np.ndarray[Any, Any]]) -> int:
    return sum(array.nbytes for value, array in arrays.items() if len(value.uses()) == 1)


def _evaluated(node: ir.Node, arrays: dict[ir.Value, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]] | None:
    from onnx.reference import ReferenceEvaluator

    proto = ir.to_proto(node)
    feeds = {value.name or "": array for value, array in arrays.items()}
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    version = graph_of(node).opset_imports.get("", 0)
    graph = onnx.helper.make_graph([proto], "fold", inputs, outputs)
    with contextlib.suppress(Exception), np.errstate(all="ignore"):  # what it cannot evaluate stays
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
        results = [np.asarray(result) for result in ReferenceEvaluator(model).run(None, feeds)]
        if len(results) == len(node.outputs) and all(map(_fits, results, node.outputs)):
            return results
    return None


def _fits(result: np.ndarray[Any, Any], output: ir.Value) -> bool:
    """Type and shape are those that were inferred; onnx infers no shape from the scalars among the initializers."""
    dims = dims_of(output)
    if output.dtype is None or result.dtype != output.dtype.numpy():
        return False
    if dims is None:
        return True
    return len(dims) == result.ndim and all(
        dim is None or dim == size for dim, size in zip(dims, result.shape, strict=True)
    )


# --- sizes ------------------------------------------------------------------------------------------------------------


def known_elements(value: ir.Value | None) -> list[int | None] | None:
    """Elements of an int64 scalar or vector that is moved out of shapes, None for each that only a run knows; None: it
    is no such vector."""
    if (numbers := ints_of(value)) is not None:
        return list(numbers) if len(numbers) <= _FEW else None
    node = value.producer() if value is not None else None
    if node is None or node.domain != "":
        return None
    if node.op_type == "Shape":
        dims = dims_of(node.inputs[0])
        end = node.attributes.get_int("end", len(dims or []))
        return None if dims is None else dims[node.attributes.get_int("start", 0) : end]
    if node.op_type in ("Identity", "Squeeze", "Unsqueeze"):
        return known_elements(node.inputs[0])
    if node.op_type == "Cast" and node.attributes.get_int("to", 0) == ir.DataType.INT64.value:
        source = node.inputs[0]
        return known_elements(source) if source is not None and source.dtype == ir.DataType.INT64 else None
    if node.op_type == "Gather":
        elements, picked = known_elements(node.inputs[0]), ints_of(node.inputs[1])
        dims = dims_of(node.inputs[1])
        if elements is None or picked is None or dims is None or len(dims) > 1:
            return None
        inside = all(-len(elements) <= index < len(elements) for index in picked)
        return [elements[index] for index in picked] if inside else None
    if node.op_type == "Slice" and len(node.inputs) > 2:
        elements = known_elements(node.inputs[0])
        bounds = [ints_of(bound) for bound in (node.inputs[1], node.inputs[2], *node.inputs[4:5])]
        if elements is None or any(bound is None or len(bound) != 1 for bound in bounds):
            return None
        start, end, *step = [bound[0] for bound in bounds if bound]
        return elements[slice(start, end, step[0] if step else 1)] if (step or [1])[0] > 0 else None
    if node.op_type == "Concat":
        parts = [known_elements(part) for part in node.inputs]
        joined = [part for part in parts if part is not None]
        return [element for part in joined for element in part] if len(joined) == len(parts) else None
    return None
