"""What every pass may rely on: node names are there and unique, nodes are sorted, value types are known, and so are
sizes at the shapes that a model will run with (`concrete_shapes`).

None of it changes what a model computes. Names that are there and unique stay; a sorted graph keeps its order.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, bodies, label_of, name_of

_Shapes = dict[ir.Value, tuple[int, ...]]
_SMALL = 1000  # bytes; constants that shapes are computed from are smaller


class Names:
    """All value and node names of a model, to make new ones that clash with none."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = set(_names(model))
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, ... where it is taken; the result is taken from now on."""
        name = wanted
        while name in self._taken:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{self._next[wanted]}"
        self._taken.add(name)
        return name


def normalize(model: ir.Model) -> None:
    """Sort, name and type a model in place.

    Raises:
        StageError: when the graph has a cycle.
    """
    sort_nodes(model)
    name_nodes(model)
    infer_types(model)
    for graph in model.graphs():  # a body has none of its own, and its nodes are asked for their schema, too
        graph.opset_imports.update(model.graph.opset_imports)


def sort_nodes(model: ir.Model) -> None:
    """Sort the nodes of the graph and of its subgraphs; a sorted graph stays as it is.

    Raises:
        StageError: when there is a cycle, naming a node on it. Nothing is deleted.
    """
    try:
        model.graph.sort()
    except ValueError as error:
        raise StageError(
            "graph-cycle",
            f"the graph has a cycle through node {label_of(_node_on_cycle(model))!r}: expected every node to read only "
            "what nodes before it write; the tool that wrote this file broke it, convert the original again",
        ) from error


def name_nodes(model: ir.Model) -> None:
    """Give each node without a name the name `<OpType>_<first output>`, and each repeated name a number."""
    names = Names(model)
    seen: set[str] = set()
    for node in all_nodes(model):
        if not node.name:
            node.name = names.fresh(name_of(node))
        elif node.name in seen:
            node.name = names.fresh(node.name)
        seen.add(node.name)


def infer_types(model: ir.Model, strict: bool = False) -> None:
    """Fill in value types and shapes as far as onnx can infer them; weights are not copied.

    Known types stay, and so do the shapes that the model states for its outputs.

    Args:
        model: changed in place.
        strict: what cannot be is an error, and the shapes of outputs are inferred, too.

    Raises:
        onnx.shape_inference.InferenceError: with `strict` alone.
    """
    stated = {value for value in model.graph.outputs if value.shape is not None and not strict}
    unknown = contextlib.nullcontext() if strict else contextlib.suppress(onnx.shape_inference.InferenceError)
    with names_apart(model), unknown:
        light = light_proto(model, integers=strict)
        inferred = ir.from_proto(onnx.shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True))
        for graph, typed in zip(model.graphs(), inferred.graphs(), strict=True):
            known = ir.convenience.create_value_mapping(typed)
            for name, value in ir.convenience.create_value_mapping(graph).items():
                if name in known:
                    value.type = value.type or known[name].type
                    shape = known[name].shape
                    if value not in stated and (shape or (strict and shape is not None)):  # a scalar's is empty
                        value.shape = shape


def concrete_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[int]] | None = None) -> _Shapes:
    """Shape of every value whose rank is known, bodies included; dimensions that stay unknown count 1.

    Args:
        model: typed; it is left as it is.
        input_shapes: shapes of graph inputs by name, such as an optimization profile's `opt`; inputs that are not named
            keep theirs, with 1 for each symbolic dimension.
    """
    with names_apart(model):
        proto = light_proto(model)
        del proto.graph.value_info[:]  # shapes with symbols would win over the inferred ones
        for value in proto.graph.input:
            _bind(value.type.tensor_type, (input_shapes or {}).get(value.name))
        for value in proto.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
        with contextlib.suppress(onnx.shape_inference.InferenceError):  # then the symbolic shapes are all there is
            proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        inferred = ir.from_proto(proto)
        shapes: _Shapes = {}
        for graph, typed in zip(model.graphs(), inferred.graphs(), strict=True):
            known = ir.convenience.create_value_mapping(typed)
            for name, value in ir.convenience.create_value_mapping(graph).items():
                shape = known[name].shape if name in known else None
                shape = shape if shape is not None else value.shape
                if shape is not None:
                    shapes[value] = tuple(dim if isinstance(dim, int) else 1 for dim in shape)
    return shapes


def elements(shape: Sequence[int] | None) -> int:
    """Elements of a tensor; 1 where its rank is unknown."""
    return math.prod(shape) if shape is not None else 1


def _bind(tensor: onnx.TypeProto.Tensor, shape: Sequence[int] | None) -> None:
    for axis, dim in enumerate(tensor.shape.dim):
        if shape is not None and axis < len(shape):
            dim.dim_value = shape[axis]
        elif not dim.HasField("dim_value"):
            dim.dim_value = 1


def drop_repeated_nodes(graph: onnx.GraphProto) -> Counter[str]:
    """Remove nodes that repeat another node of their graph word for word, output names included; count them by type.

    ONNX Runtime's float16 converter (1.25 and later) writes such graphs. They are no ONNX: a name has one producer.

    Raises:
        StageError: when two different nodes write one name.
    """
    first: dict[str, onnx.NodeProto] = {}
    kept: list[onnx.NodeProto] = []
    dropped = Counter[str]()
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                dropped += drop_repeated_nodes(subgraph)
        rivals = [first[name] for name in node.output if name in first]
        if rivals and all(rival == node for rival in rivals):
            dropped[node.op_type] += 1
            continue
        if rivals:
            raise StageError(
                "model-invalid",
                f"nodes {rivals[0].name!r} ({rivals[0].op_type}) and {node.name!r} ({node.op_type}) both write "
                f"{next(name for name in node.output if name in first)!r}: expected one producer for each name; "
                "convert the original again",
            )
        first.update({name: node for name in node.output if name})
        kept.append(node)
    if len(kept) < len(graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)
    return dropped


@contextlib.contextmanager
def names_apart(model: ir.Model) -> Iterator[dict[str, str]]:
    """For a while, no two values of a model share a name; yields the original names of those that are renamed.

    Sibling bodies may share names. What finds values by name (onnx's propagation of shapes does, too) mixes them up.
    """
    values = dict.fromkeys(value for graph in model.graphs() for value in _defined(graph) if value.name)
    seen, repeated = set[str](), list[ir.Value]()
    for value in values:
        if value.name in seen:
            repeated.append(value)
        seen.add(value.name or "")
    names = Names(model) if repeated else None
    originals = {names.fresh(value.name or ""): value.name or "" for value in repeated} if names else {}
    to_apart = dict(zip(repeated, originals, strict=True))
    rename(model, to_apart)
    try:
        yield originals
    finally:
        rename(model, {value: originals[apart] for value, apart in to_apart.items()})


def rename(model: ir.Model, names: Mapping[ir.Value, str]) -> None:
    """Give values new names; initializers keep their order."""
    for graph in model.graphs() if names else ():
        initializers = list(graph.initializers.values())
        changed = [value for value in _defined(graph) if value in names]
        for value in changed:
            value.name = names[value]
        if any(value.is_initializer() for value in changed):
            graph.initializers.clear()
            for value in initializers:
                graph.initializers.add(value)


def light_proto(model: ir.Model, integers: bool = False) -> onnx.ModelProto:
    """The model with type and shape of its weights only, but with the small constants that shapes depend on; with
    `integers` all constants of integers.
    """
    with without_weights(model, integers):
        return ir.to_proto(model)


@contextlib.contextmanager
def without_weights(model: ir.Model, integers: bool = False) -> Iterator[None]:
    """Weights beyond 1000 bytes, in bodies and Constant nodes too, replaced by a mention of external data; with
    `integers`, those of floats alone.
    """
    whole = {ir.DataType.INT64, ir.DataType.INT32} if integers else set()
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    tensors = {value: value.const_value for value in values if value.const_value is not None}
    constants = {node: attribute for node in all_nodes(model) if (attribute := _large_constant(node)) is not None}
    try:
        for value, tensor in tensors.items():
            value.const_value = tensor if tensor.dtype in whole else _mention(tensor, value.name or "")
        for node, attribute in constants.items():
            if attribute.as_tensor().dtype not in whole:
                node.attributes[attribute.name] = ir.AttrTensor(attribute.name, _mention(attribute.as_tensor(), ""))
        yield
    finally:
        for value, tensor in tensors.items():
            value.const_value = tensor
        for node, attribute in constants.items():
            node.attributes[attribute.name] = attribute


def _large_constant(node: ir.Node) -> ir.Attr | None:
    attribute = node.attributes.get("value") if node.op_type == "Constant" and node.domain == "" else None
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return None
    tensor = attribute.as_tensor()
    return attribute if tensor.nbytes > _SMALL or isinstance(tensor, ir.ExternalTensor) else None


def _mention(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    if tensor.nbytes > _SMALL and tensor.dtype != ir.DataType.STRING:
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor("weights", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name)
    return ir.tensor(tensor.numpy(), name=name) if isinstance(tensor, ir.ExternalTensor) else tensor


def _names(model: ir.Model) -> Iterator[str]:
    for graph in model.graphs():
        yield from (value.name for value in _defined(graph) if value.name)
        yield from (node.name for node in graph if node.name)


def _defined(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values of a graph, without those of its bodies; an input with a default comes twice."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _node_on_cycle(model: ir.Model) -> ir.Node:
    """A node that can be reached from itself: take away what depends on nothing that is left, then walk backwards."""
    waits_for = {node: dict.fromkeys(_predecessors(node)) for node in all_nodes(model)}
    followers: dict[ir.Node, list[ir.Node]] = {node: [] for node in waits_for}
    for node, predecessors in waits_for.items():
        for predecessor in predecessors:
            followers[predecessor].append(node)
    waiting = {node: len(predecessors) for node, predecessors in waits_for.items()}
    ready = [node for node, count in waiting.items() if count == 0]
    while ready:
        node = ready.pop()
        del waiting[node]
        for follower in followers[node]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    node, visited = next(iter(waiting)), set[ir.Node]()
    while node not in visited:
        visited.add(node)
        node = next(predecessor for predecessor in waits_for[node] if predecessor in waiting)
    return node


def _predecessors(node: ir.Node) -> Iterator[ir.Node]:
    """Producers of what a node reads; a node with subgraphs waits for all their nodes."""
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer
    for body in bodies(node):
        yield from body
