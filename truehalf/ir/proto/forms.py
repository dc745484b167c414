"""Restate forms of protos that readers do not take in others of the same meaning, before a model is read.

Sparse tensors and maps are refused.

a graph without a name, domains that are not imported,     as ONNX Runtime reads them
weights that are no inputs before IR version 4
a size below 0, which older exporters write (-1)           an axis that varies
MeanVarianceNormalization without axes, STFT without       with the default: onnx cannot type the first without, and
onesided                                                   takes the second for two-sided
functions of another opset than the graph                  of the graph's, as ONNX Runtime reads them; refused where
                                                           an operator means something else there
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from truehalf.errors import StageError
from truehalf.ir.proto.names import IMPLIED, ProtoGraph, proto_graphs

_STATED = {"MeanVarianceNormalization": (9, "axes", (0, 2, 3)), "STFT": (17, "onesided", 1)}  # from an opset on
_ONNX = ("", "ai.onnx")
_WEIGHTS_APART_FROM = 4  # IR version; before it weights are inputs, too


def restate(proto: onnx.ModelProto, path: Path) -> bool:
    """Restate what readers do not take, in place.

    Returns:
        whether runtimes need the new form, too.

    Raises:
        StageError: a sparse tensor, a map, functions that cannot be brought to one opset.
    """
    _refuse_maps(proto.graph, path)
    proto.graph.name = proto.graph.name or "graph"
    _import_implied(proto)
    if proto.ir_version < _WEIGHTS_APART_FROM and {each.name for each in proto.graph.initializer} - {
        value.name for value in proto.graph.input
    }:
        proto.ir_version = _WEIGHTS_APART_FROM
    for graph in (proto.graph, *proto.functions):
        opset = _opset(graph if isinstance(graph, onnx.FunctionProto) else proto)
        for inner in proto_graphs(graph):
            _refuse_sparse(inner, path)
            _free_sizes(inner)
            for node in inner.node:
                since, name, value = _STATED.get(node.op_type, (0, "", 0)) if node.domain in _ONNX else (0, "", 0)
                if name and opset >= since and name not in {each.name for each in node.attribute}:
                    node.attribute.append(onnx.helper.make_attribute(name, value))
    return _align_functions(proto, path)


def _refuse_maps(graph: onnx.GraphProto, path: Path) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        if "map_type" in (value.type.WhichOneof("value"), value.type.sequence_type.elem_type.WhichOneof("value")):
            raise StageError(
                "not-supported",
                f"{path}: {value.name!r} is a map, as ZipMap writes; expected tensors, sequences and optionals. "
                "Export the model without it (skl2onnx: zipmap=False)",
            )


def _import_implied(proto: onnx.ModelProto) -> None:
    used = {"ai.onnx", *(node.domain for inner in proto_graphs(proto.graph) for node in inner.node)}
    imported = {opset.domain or "ai.onnx" for opset in proto.opset_import}
    for domain in (used & IMPLIED.keys()) - imported:
        proto.opset_import.add(domain="" if domain == "ai.onnx" else domain, version=IMPLIED[domain])


# --- tensors and shapes -----------------------------------------------------------------------------------------------


def _refuse_sparse(graph: ProtoGraph, path: Path) -> None:
    held = [each.values.name for each in graph.sparse_initializer] if isinstance(graph, onnx.GraphProto) else []
    for node in graph.node:
        if any(each.HasField("sparse_tensor") or each.sparse_tensors for each in node.attribute):
            held.append(next(iter(node.output), node.name))
    if held:
        text = f"{path}: {held[0]!r} is or holds a sparse tensor; expected dense ones. Export the model with these"
        raise StageError("not-supported", text)


def _free_sizes(graph: ProtoGraph) -> None:
    values = (*graph.value_info, *(() if isinstance(graph, onnx.FunctionProto) else (*graph.input, *graph.output)))
    for value in values:
        for side in value.type.tensor_type.shape.dim:
            if side.dim_value < 0:
                side.Clear()


# --- functions of another opset ---------------------------------------------------------------------------------------


def _align_functions(proto: onnx.ModelProto, path: Path) -> bool:
    """Read functions of another opset as the graph's; whether there are any."""
    version = _opset(proto)
    others = [function for function in proto.functions if version and _opset(function) not in (0, version)]
    changed = [each for each in others if not all(_means_same(node, each, version) for node in _of(each))]
    if changed:
        names = ", ".join(f"{function.name} (opset {_opset(function)})" for function in changed)
        raise StageError(
            "wrong-opset",
            f"{path}: functions of another opset than the graph's {version}, where operators mean something else: "
            f"{names}. Export the model anew, with one opset",
        )
    for opset in (opset for function in others for opset in function.opset_import if opset.domain in _ONNX):
        opset.version = version
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
