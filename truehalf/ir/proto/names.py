"""Names in protos of models: each is defined once, domains are imported, and calls of functions fit them and end."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import onnx

from truehalf.errors import StageError

ProtoGraph: TypeAlias = onnx.GraphProto | onnx.FunctionProto
# Versions of the domains that ONNX Runtime 1.31 imports by itself, where the graph (no function) does not.
IMPLIED = {"ai.onnx": 26, "ai.onnx.ml": 5, "com.microsoft": 1}


def check_names(proto: onnx.ModelProto, path: Path) -> None:
    """Check that every name that is read is defined, once; that the domain of
    every node is imported; that calls fit their functions, and no function leads back to itself; and that a Constant
    has one value.

    Raises:
        StageError: naming the node and the name, or the functions on the circle.
        ValueError: of a name that is no UTF-8, which protobuf and onnx_ir read as it is.
    """
    for graph in (proto.graph, *proto.functions):
        for name in _texts(graph):
            if isinstance(name, bytes):  # protobuf's, for text that is no UTF-8
                raise ValueError(f"the name {name!r} is no UTF-8")
        where = f"function {graph.name!r}: " if isinstance(graph, onnx.FunctionProto) else ""
        for text in _undefined(graph, frozenset({""})):
            raise StageError(
                "model-invalid",
                f"{path}: {where}{text}: expected one node, input or weight for each name; the tool that wrote this "
                "file broke it, convert the original again",
            )
        for text in _malformed(graph, proto):
            raise StageError("model-invalid", f"{path}: {where}{text}; correct the node, or export the model anew")
        for text in _unimported(graph, proto):
            raise StageError(
                "model-invalid", f"{path}: {where}{text}: expected it in opset_import; export the model anew"
            )
    if circle := _circle(proto):
        raise StageError(
            "model-invalid",
            f"{path}: functions call each other in a circle ({' -> '.join(circle)}): expected functions that end; "
            "export the model anew",
        )


def proto_graphs(graph: ProtoGraph) -> Iterator[ProtoGraph]:
    """A graph or function, and all graphs in it."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from proto_graphs(inner)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds in its attributes."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)


def proto_tensors(graph: ProtoGraph) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph or function, and of all graphs in it: weights and attributes."""
    for each in proto_graphs(graph):
        if isinstance(each, onnx.GraphProto):
            yield from each.initializer
        for node in each.node:
            for attribute in node.attribute:
                yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)


def _texts(graph: ProtoGraph) -> Iterator[str | bytes]:
    """Names of a graph or function and of the graphs in it."""
    for each in proto_graphs(graph):
        yield each.name
        for node in each.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        if isinstance(each, onnx.GraphProto):
            yield from (tensor.name for tensor in each.initializer)
            for value in (*each.input, *each.output, *each.value_info):
                yield value.name
                yield from (side.dim_param for side in value.type.tensor_type.shape.dim)


def _undefined(graph: ProtoGraph, outer: frozenset[str]) -> Iterator[str]:
    """Names that are defined twice, and readers of names that neither the graph nor one around it defines."""
    weights = list[str]()
    if isinstance(graph, onnx.FunctionProto):
        known, results = list(graph.input), list(graph.output)
    else:
        known, results = [value.name for value in graph.input], [value.name for value in graph.output]
        weights = [tensor.name for tensor in graph.initializer]
        weights += [tensor.values.name for tensor in graph.sparse_initializer]
    known += [name for name in weights if name not in {*known}]
    known += [name for node in graph.node for name in node.output if name]
    yield from (f"{name!r} is defined {count} times" for name, count in Counter(known).items() if count > 1)
    defined = outer.union(known)
    for node in graph.node:
        for name in node.input:
            if name not in defined:
                yield f"node {node.name or node.op_type!r} ({node.op_type}) reads {name!r}, which nothing defines"
        for inner in graphs_of(node):
            yield from _undefined(inner, defined)
    for name in sorted({*results} - {*known, ""}):
        by = "only a graph around it, and no node in it, defines" if name in defined else "nothing defines"
        yield f"an output is {name!r}, which {by}"


def _malformed(graph: ProtoGraph, proto: onnx.ModelProto) -> Iterator[str]:
    """Calls that have more inputs or outputs than their function, and Constants of no or of several values."""
    functions = {(each.domain, each.name, each.overload): each for each in proto.functions}
    for node in (node for inner in proto_graphs(graph) for node in inner.node):
        named = f"node {node.name or node.op_type!r} ({node.op_type})"
        if called := functions.get((node.domain, node.op_type, node.overload)):
            for ends, given, most in (("inputs", node.input, called.input), ("outputs", node.output, called.output)):
                if len(given) > len(most):
                    yield f"{named} has {len(given)} {ends}: expected at most {len(most)}, as its function has"
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.attribute) != 1:
            values = ", ".join(attribute.name for attribute in node.attribute) or "none"
            yield f"{named} makes {', '.join(node.output)}: expected one value, got {values}"


def _unimported(graph: ProtoGraph, proto: onnx.ModelProto) -> Iterator[str]:
    """Nodes of domains that what they stand in does not import."""
    if isinstance(graph, onnx.FunctionProto):
        imported = {opset.domain or "ai.onnx" for opset in graph.opset_import}
    else:
        imported = {*IMPLIED, *(opset.domain for opset in proto.opset_import)}
    for node in (node for inner in proto_graphs(graph) for node in inner.node):
        if (node.domain or "ai.onnx") not in imported:
            yield f"node {node.name or node.op_type!r} ({node.op_type}) is of the domain {node.domain or 'ai.onnx'!r}"


def _circle(proto: onnx.ModelProto) -> list[str]:
    """Functions of which each calls the next, the last one the first; none where every call ends."""
    keys = {(function.domain, function.name, function.overload): function for function in proto.functions}
    called = {
        key: {(node.domain, node.op_type, node.overload) for inner in proto_graphs(function) for node in inner.node}
        & keys.keys()
        for key, function in keys.items()
    }
    try:
        graphlib.TopologicalSorter(called).prepare()
    except graphlib.CycleError as error:
        return [f"{domain}::{name}" for domain, name, _ in reversed(error.args[1])]
    return []
