"""Constant folding; an If whose condition is constant becomes its branch.

    f(constants)                     ->  constant
    Shape(x), x of static shape      ->  constant; an element of Shape(x) that is static, too
    If(constant) {a} {b}             ->  a or b, in the place of the If

Nothing grows: a result stays if it is at most SMALL bytes, or at most as large as the constants that only this node
reads and that go with it. Folded are the operators of truehalf.repairs.foldable, which onnx's reference computes as
ONNX Runtime does. So what is random, quantised weights (DequantizeLinear keeps them small) and operators of other
domains stay, and so do results whose type the reference does not give as the schema does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from truehalf.ir.facts import all_nodes, constant_of, is_op, lengths_of, subgraphs, values_of
from truehalf.ir.normalize import InferTypes
from truehalf.ir.passes import Done, Pass
from truehalf.linting.sizes import are_complete, sizes_in
from truehalf.repairs.foldable import is_foldable
from truehalf.repairs.rewrite import Writer, graph_of

SMALL = 1 << 16  # bytes


class FoldConstants(Pass):
    """Folds a typed model. onnxscript's FoldConstantsPass folds what ONNX Runtime computes in another way, too."""

    def edit(self, model: ir.Model, done: Done) -> None:
        fold(model, done, None, SMALL)


def fold(model: ir.Model, done: Done, wanted: AbstractSet[ir.Node] | None, limit: int) -> None:
    """Fold the wanted nodes (None: all) whose result is at most `limit` bytes, until nothing is left to fold.

    An If counts one, whatever its branch holds.
    """
    changed = True
    while changed:
        changed, writer = False, Writer(model, done)
        for node in [node for node in all_nodes(model) if wanted is None or node in wanted]:
            if node.graph is None or not node.outputs:
                continue  # went with another
            if is_op(node, "If") and (condition := constant_of(node.inputs[0])) is not None:
                inlined = _inline(node, bool(condition.ravel()[0]), writer)
                wanted = None if wanted is None else {*wanted, *inlined}
                changed = True
            elif (results := _results(node, limit)) is not None:
                made = [writer.at(node).constant(array, ir.DataType.from_numpy(array.dtype)) for array in results]
                writer.replace(node, *made)
        if changed:
            InferTypes()(model)


def _inline(node: ir.Node, taken: bool, writer: Writer) -> list[ir.Node]:
    """Move the nodes of the taken branch before the If; returns them."""
    graph, branch = graph_of(node), node.attributes["then_branch" if taken else "else_branch"].as_graph()
    results, inside = list(branch.outputs), list(branch)
    initializers = list(branch.initializers.values())
    for value in initializers:
        branch.initializers.pop(value.name or "")
    taken_names = _names_beside(node, writer)
    for value in (*initializers, *(output for inner in inside for output in inner.outputs if output.name)):
        if value.name in taken_names:  # as sibling subgraphs may use one name
            value.name = writer.names.fresh(value.name or "constant")
    branch.outputs.clear()  # which may be initializers
    for value in initializers:
        graph.register_initializer(value)
    for inner in inside:
        branch.remove(inner)
        graph.insert_before(node, inner)
    writer.replace(node, *results)
    return inside


def _names_beside(node: ir.Node, writer: Writer) -> set[str]:
    """Names of all values of the model but those inside a node."""
    inside = {id(graph) for subgraph in subgraphs(node) for graph in (subgraph, *subgraph.subgraphs())}
    found = set[str]()
    for graph in writer.model.graphs():
        if id(graph) not in inside:
            found.update(value.name for value in values_of(graph) if value.name)
    return found


def _results(node: ir.Node, limit: int) -> list[np.ndarray[Any, Any]] | None:
    """What a node gives whatever the inputs are; None: that is not known, or too large."""
    if not is_foldable(node, graph_of(node).opset_imports.get("", 0)):
        return None
    if any(output.is_graph_output() for output in node.outputs):
        return None
    if (sizes := _known_sizes(node.outputs[0])) is not None:
        return [sizes]
    read = {value: constant_of(value) for value in node.inputs if value is not None}
    arrays = {value: array for value, array in read.items() if array is not None}
    if len(arrays) < len(read):
        return None
    if (size := _bytes(node)) is not None and size > max(limit, _freed(arrays)):
        return None
    results = _evaluated(node, arrays)
    if results is None or sum(result.nbytes for result in results) > max(limit, _freed(arrays)):
        return None
    return results


def _bytes(node: ir.Node) -> int | None:
    """Size of the results, before they are computed; None where it is not known."""
    total = 0
    for output in node.outputs:
        dims = lengths_of(output)
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
    dims = lengths_of(output)
    if output.dtype is None or result.dtype != output.dtype.numpy():
        return False
    if dims is None:
        return True
    return len(dims) == result.ndim and all(
        dim is None or dim == size for dim, size in zip(dims, result.shape, strict=True)
    )


# --- sizes ------------------------------------------------------------------------------------------------------------


def _known_sizes(value: ir.Value) -> np.ndarray[Any, Any] | None:
    """A vector or number that is moved out of shapes, where every element of it is known."""
    sizes = sizes_in(value, {})
    if sizes is None or not are_complete(sizes):
        return None
    result = sizes.astype(np.int64)
    return result if _fits(result, value) else None
