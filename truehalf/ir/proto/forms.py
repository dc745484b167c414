"""Forms of protos that readers do not take, restated in others of the same meaning before a model is read.

sparse tensors, as initializers and in Constants           dense ones
weights of one name                                        the last of them, which ONNX Runtime takes
a graph without a name, domains that are not imported,     as ONNX Runtime reads them
weights that are no inputs before IR version 4
a size below 0, which older exporters write (-1)           an axis that varies
MeanVarianceNormalization without axes, STFT without       with the default: onnx cannot type the first without, and
onesided                                                   takes the second for two-sided
functions of another opset than the graph                  of the graph's, as ONNX Runtime reads them; refused where
                                                           an operator means something else there
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from truehalf.errors import StageError
from truehalf.ir.proto.names import IMPLIED, ProtoGraph, proto_graphs

_DENSE_MAX = 1 << 31  # bytes of a tensor; protobuf messages end there
_STATED = {"MeanVarianceNormalization": (9, "axes", (0, 2, 3)), "STFT": (17, "onesided", 1)}  # from an opset on
_ONNX = ("", "ai.onnx")
_WEIGHTS_APART_FROM = 4  # IR version; before it weights are inputs, too


def restate(proto: onnx.ModelProto, path: Path) -> bool:
    """Restate what readers do not take, in place.

    Returns:
        whether runtimes need the new form, too.

    Raises:
        StageError: a sparse tensor that cannot be made dense, functions that cannot be brought to one opset, a map.
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
            _keep_last_weights(inner)
            _make_dense(inner, path)
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


def _keep_last_weights(graph: ProtoGraph) -> None:
    if isinstance(graph, onnx.GraphProto):
        last = {tensor.name: index for index, tensor in enumerate(graph.initializer)}
        for index in reversed(range(len(graph.initializer))):
            if last[graph.initializer[index].name] != index:
                del graph.initializer[index]


def _make_dense(graph: ProtoGraph, path: Path) -> None:
    if isinstance(graph, onnx.GraphProto) and graph.sparse_initializer:
        graph.initializer.extend(_dense(sparse, path) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.sparse_tensors or (attribute.HasField("sparse_tensor") and node.op_type != "Constant"):
                named = next(iter(node.output), node.name)
                raise StageError(
                    "not-supported", f"{path}: {node.op_type} {named!r} holds a sparse tensor; expected a dense one"
                )
            if attribute.HasField("sparse_tensor"):
                attribute.CopyFrom(onnx.helper.make_attribute("value", _dense(attribute.sparse_tensor, path)))


def _dense(sparse: onnx.SparseTensorProto, path: Path) -> onnx.TensorProto:
    """The tensor with its zeros, of the same name."""
    name, shape = sparse.values.name, tuple(sparse.dims)
    named = f"{path}: sparse tensor {name!r}"
    if onnx.TensorProto.EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
        raise StageError("not-supported", f"{named}: expected its values in the model file, got external data")
    values, indices = onnx.numpy_helper.to_array(sparse.values), onnx.numpy_helper.to_array(sparse.indices)
    if values.itemsize * math.prod(shape) >= _DENSE_MAX:
        raise StageError("too-large", f"{named}: expected less than 2 GiB as a dense tensor, got shape {list(shape)}")
    try:
        flat = indices if indices.ndim < 2 else np.ravel_multi_index(tuple(indices.T), shape)
        dense = np.zeros(math.prod(shape), values.dtype)
        if flat.shape != values.shape or (flat < 0).any():
            raise ValueError(f"{flat.size} indices, {values.size} values")
        dense[flat] = values
    except (ValueError, IndexError) as error:
        raise StageError(
            "model-invalid", f"{named}: expected an index inside shape {list(shape)} for each value, got {error}"
        ) from error
    return onnx.numpy_helper.from_array(dense.reshape(shape), name)


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
