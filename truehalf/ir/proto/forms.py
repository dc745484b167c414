"""Forms of protos that readers do not take, restated in others of the same meaning before a model is read.

a size below 0, which older exporters write (-1)           an axis that varies
MeanVarianceNormalization without axes                     with the default ones: onnx cannot type it without
functions of another opset than the graph                  of the graph's, where operators mean the same in both: ONNX
                                                           Runtime reads them all as the graph's
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from truehalf.errors import StageError
from truehalf.ir.proto.names import ProtoGraph, proto_graphs

_DENSE_MAX = 1 << 31  # bytes of a tensor; protobuf messages end there
_MEAN_AXES = (0, 2, 3)
_MEAN_AXES_FROM = 9  # opset
_ONNX = ("", "ai.onnx")


def restate(proto: onnx.ModelProto, path: Path) -> bool:
    """Restate what readers do not take, in place.

    Returns:
        whether runtimes need the new form, too.

    Raises:
        StageError: a sparse tensor, functions whose operators mean another thing in the graph's opset.
    """
    for graph in (proto.graph, *proto.functions):
        opset = _opset(graph if isinstance(graph, onnx.FunctionProto) else proto)
        for inner in proto_graphs(graph):
            _refuse_sparse(inner, path)
            _free_sizes(inner)
            for node in inner.node:
                is_one = node.op_type == "MeanVarianceNormalization" and node.domain in _ONNX
                if is_one and opset >= _MEAN_AXES_FROM and "axes" not in {each.name for each in node.attribute}:
                    node.attribute.append(onnx.helper.make_attribute("axes", _MEAN_AXES))
    return _align_functions(proto, path)


# --- shapes ----------------------------------------------------------------------------------------------------------


def _refuse_sparse(graph: ProtoGraph, path: Path) -> None:
    sparse = [each.values.name for each in graph.sparse_initializer] if isinstance(graph, onnx.GraphProto) else []
    for node in graph.node:
        if any(each.sparse_tensors or each.HasField("sparse_tensor") for each in node.attribute):
            sparse.append(next(iter(node.output), node.name))
    if sparse:
        raise StageError("not-supported", f"{path}: {sparse[0]!r} is a sparse tensor; expected a dense one")


def _free_sizes(graph: ProtoGraph) -> None:
    values = (*graph.value_info, *(() if isinstance(graph, onnx.FunctionProto) else (*graph.input, *graph.output)))
    for value in values:
        for side in value.type.tensor_type.shape.dim:
            if side.dim_value < 0:
                side.Clear()


# --- functions of another opset ---------------------------------------------------------------------------------------


def _align_functions(proto: onnx.ModelProto, path: Path) -> bool:
    version = _opset(proto)
    others = [function for function in proto.functions if version and _opset(function) not in (0, version)]
    if changed := [each for each in others if not all(_means_same(node, each, version) for node in _of(each))]:
        names = ", ".join(f"{function.name} (opset {_opset(function)})" for function in changed)
        raise StageError(
            "wrong-opset",
            f"{path}: functions have operators that another opset defines, and the graph has opset {version}: {names}. "
            "Inline them (onnx.inliner.inline_local_functions), or export the model anew, with one opset",
        )
    for function in others:
        for opset in function.opset_import:
            opset.version = version if opset.domain in _ONNX else opset.version
    return bool(others)


def _of(function: onnx.FunctionProto) -> Sequence[onnx.NodeProto]:
    return [node for inner in proto_graphs(function) for node in inner.node]


def _opset(owner: onnx.ModelProto | onnx.FunctionProto) -> int:
    """Version of ONNX's operators; 0 where none is imported."""
    return next((int(opset.version) for opset in owner.opset_import if opset.domain in _ONNX), 0)


def _means_same(node: onnx.NodeProto, function: onnx.FunctionProto, version: int) -> bool:
    """Whether an operator is defined alike in a function's opset and in the graph's."""
    if node.domain not in _ONNX:
        return True
    try:
        found = [onnx.defs.get_schema(node.op_type, each).since_version for each in (_opset(function), version)]
    except onnx.defs.SchemaError:
        return False
    return found[0] == found[1]
