"""Bring a proto into the form that everything else reads, before it becomes a model.

functions                                                  inlined by onnx; those of another opset are converted
IR version below 4, where weights are inputs, too          4: weights are no inputs
a graph without a name, domains that are not imported      as ONNX Runtime reads them
a size below 0, which older exporters write (-1)           an axis that varies
MeanVarianceNormalization without axes, STFT without       with the default: onnx cannot type the first without, and
onesided                                                   takes the second for two-sided
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.inliner

from truehalf.errors import StageError, first_line

_STATED = {"MeanVarianceNormalization": (9, "axes", (0, 2, 3)), "STFT": (17, "onesided", 1)}  # from an opset on
# Versions of the domains that ONNX Runtime 1.31 imports by itself, where the graph does not.
_IMPLIED = {"": 26, "ai.onnx.ml": 5, "com.microsoft": 1}
WEIGHTS_APART_FROM = 4  # IR version


def restated(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Bring a model into the form above, and check that every name that is read is defined, once.

    Returns:
        the model that was given, changed in place, or a new one where functions were inlined.

    Raises:
        StageError: sparse weights; names that are not defined, or twice; functions that call each other in a circle,
            that calls do not fit, or that cannot be brought to the graph's opset.
    """
    if proto.functions:
        proto = _inlined(proto, path)
    graph = proto.graph
    for text in _misnamed(graph, frozenset({""})):
        raise StageError(
            "model-invalid",
            f"{path}: {text}: expected one node, input or weight for each name; the tool that wrote this file broke "
            "it, convert the original again",
        )
    graph.name = graph.name or "graph"
    nodes = [node for inner in proto_graphs(graph) for node in inner.node]
    for opset in proto.opset_import:
        opset.domain = "" if opset.domain == "ai.onnx" else opset.domain
    imported = {opset.domain: opset.version for opset in proto.opset_import}
    for domain in sorted({"", *(node.domain for node in nodes)} & (_IMPLIED.keys() - imported.keys())):
        imported[domain] = _IMPLIED[domain]
        proto.opset_import.add(domain=domain, version=imported[domain])
    if proto.ir_version < WEIGHTS_APART_FROM:
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        del graph.input[:]
        graph.input.extend(inputs)
        proto.ir_version = WEIGHTS_APART_FROM
    for node in nodes:
        since, name, value = _STATED.get(node.op_type, (0, "", 0))
        if name and imported[""] >= since and name not in {each.name for each in node.attribute}:
            node.attribute.append(onnx.helper.make_attribute(name, value))
    for inner in proto_graphs(graph):
        if inner.sparse_initializer:
            text = f"{path}: {inner.sparse_initializer[0].values.name!r} is a sparse tensor; expected dense ones"
            raise StageError("not-supported", text)
        for stated in (*inner.input, *inner.output, *inner.value_info):
            for side in stated.type.tensor_type.shape.dim:
                if side.dim_value < 0:
                    side.Clear()
    return proto


def proto_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and all graphs in it."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from proto_graphs(inner)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds in its attributes."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)


def proto_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph, and of all graphs in it: weights and attributes."""
    for each in proto_graphs(graph):
        yield from each.initializer
        for node in each.node:
            for attribute in node.attribute:
                yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)


def _inlined(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The model with its functions inlined; onnx takes no function that hands an input on as its output."""
    for function in proto.functions:
        for index, name in enumerate(function.output):
            if name in function.input:
                function.output[index] = f"{name}/{index}"
                function.node.append(onnx.helper.make_node("Identity", [name], [f"{name}/{index}"]))
    versions = {each.version for owner in (proto, *proto.functions) for each in owner.opset_import if not each.domain}
    try:  # conversion of opsets asks for types
        typed = proto if len(versions) == 1 else onnx.shape_inference.infer_shapes(proto)
        return onnx.inliner.inline_local_functions(typed, convert_version=True)
    except Exception as error:  # a circle, a call that does not fit, an operator that cannot be converted
        names = ", ".join(sorted({function.name for function in proto.functions}))
        raise StageError(
            "model-invalid",
            f"{path}: its functions ({names}) cannot be inlined: {first_line(error)}. Export the model anew, without "
            "functions",
        ) from error


def _misnamed(graph: onnx.GraphProto, outer: frozenset[str]) -> Iterator[str]:
    """Names that are defined twice, and readers of names that neither the graph nor one around it defines."""
    inputs = [value.name for value in graph.input]
    known = inputs + [tensor.name for tensor in graph.initializer if tensor.name not in {*inputs}]
    known += [name for node in graph.node for name in node.output if name]
    yield from (f"{name!r} is defined {count} times" for name, count in Counter(known).items() if count > 1)
    defined = outer.union(known, (each.values.name for each in graph.sparse_initializer))
    for node in graph.node:
        for name in node.input:
            if name not in defined:
                yield f"node {node.name or node.op_type!r} ({node.op_type}) reads {name!r}, which nothing defines"
        for inner in graphs_of(node):
            yield from _misnamed(inner, defined)
    for name in sorted({value.name for value in graph.output} - {*known, ""}):
        yield f"an output is {name!r}, which nothing in its graph defines"
