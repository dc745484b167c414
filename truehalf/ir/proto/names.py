"""Names in protos of models: each is defined once, and calls of functions end."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import onnx

from truehalf.errors import StageError

ProtoGraph: TypeAlias = onnx.GraphProto | onnx.FunctionProto


def check_names(proto: onnx.ModelProto, path: Path) -> None:
    """Check that every name that is read is defined, once, and that no function leads back to itself.

    Raises:
        StageError: naming the node and the name, or the functions on the circle.
    """
    for graph in (proto.graph, *proto.functions):
        where = f"function {graph.name!r}: " if isinstance(graph, onnx.FunctionProto) else ""
        for text in _undefined(graph, frozenset({""})):
            raise StageError(
                "model-invalid",
                f"{path}: {where}{text}: expected one node, input or weight for each name; the tool that wrote this "
                "file broke it, convert the original again",
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
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from proto_graphs(inner)


def _undefined(graph: ProtoGraph, outer: frozenset[str]) -> Iterator[str]:
    """Names that two nodes write, and readers of names that neither the graph nor one around it defines."""
    if isinstance(graph, onnx.FunctionProto):
        known, results = {*outer, *graph.input}, list(graph.output)
    else:
        known = {*outer, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
        known |= {tensor.values.name for tensor in graph.sparse_initializer}
        results = [value.name for value in graph.output]
    written = [name for node in graph.node for name in node.output if name]
    if len(set(written)) < len(written):
        yield f"nodes both write {next(name for name in written if written.count(name) > 1)!r}"
    known.update(written)
    defined = frozenset(known)
    for node in graph.node:
        for name in node.input:
            if name not in defined:
                yield f"node {node.name or node.op_type!r} ({node.op_type}) reads {name!r}, which nothing defines"
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _undefined(inner, defined)
    yield from (f"an output is {name!r}, which nothing defines" for name in results if name not in defined)


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
