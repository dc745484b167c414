"""Facts of a graph: its nodes, subgraphs and paths through them, and the counts that reports show for every stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, TypeVar

import numpy as np
import onnx_ir as ir

from truehalf.ir.model_file import model_size_mb

# attributes that name an element type
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision")
FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}


class ModelFacts(TypedDict, total=False):
    """Counts of `model_facts`, and the file's size in MB, large weights included."""

    nodes: int
    casts: int
    float_nodes: int
    fp16_nodes: int
    fp16_fraction: float | None
    untyped_nodes: int
    ops: dict[str, int]
    size_mb: float


def cloned(model: ir.Model) -> ir.Model:
    """A copy, as a clone is, that goes on as the model: with its meta, which says where it came from."""
    made = model.clone()
    made.meta.update(model.meta)
    return made


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Nodes of the graph and of its subgraphs, in order."""
    return iter(ir.traversal.RecursiveGraphIterator(model.graph))


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs that a node holds in its attributes (If, Loop, Scan), in order."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return found


def with_subgraphs(node: ir.Node) -> Iterator[ir.Node]:
    """A node, and all nodes inside it, at any depth."""
    yield node
    for subgraph in subgraphs(node):
        yield from ir.traversal.RecursiveGraphIterator(subgraph)


def values_read(node: ir.Node) -> list[ir.Value]:
    """What a node reads, its subgraphs included: also values that they compute themselves."""
    read: list[ir.Value] = []
    for each in with_subgraphs(node):
        read += [value for value in each.inputs if value is not None]
        read += [value for subgraph in subgraphs(each) for value in subgraph.outputs]  # may be outer tensors
    return read


_Place = TypeVar("_Place", bound=Hashable)  # a node or a value


def reached(start: Iterable[_Place | None], following: Callable[[_Place], Iterable[_Place | None]]) -> Iterator[_Place]:
    """Where a way through a graph begins, and all that follows, up or down, each once."""
    waiting, seen = list(start), set[_Place]()
    while waiting:
        place = waiting.pop()
        if place is not None and place not in seen:
            seen.add(place)
            yield place
            waiting += following(place)


def upstream(value: ir.Value | None, goes_on: Callable[[ir.Node], bool]) -> Iterator[ir.Value]:
    """A value and what it is computed from, each once; not what is upstream of nodes for which `goes_on` is false."""

    def read(value: ir.Value) -> Iterable[ir.Value | None]:
        node = value.producer()
        return node.inputs if node is not None and goes_on(node) else ()

    return reached([value], read)


def readers_of(node: ir.Node) -> list[ir.Node]:
    """The nodes that read what a node writes."""
    return [reader for value in node.outputs for reader in value.consumers()]


def insert_after(value: ir.Value, node: ir.Node) -> None:
    """Put a node directly after the one that writes a value, or before all others of the value's graph."""
    assert isinstance(value.graph, ir.Graph)
    After(value.graph, value.producer()).insert(node)


class After:
    """A place in a graph: after a node, or before all others, where nodes are inserted one after the other."""

    def __init__(self, graph: ir.Graph, node: ir.Node | None) -> None:
        self._graph, self._last = graph, node

    def insert(self, node: ir.Node) -> None:
        if self._last is not None:
            self._graph.insert_after(self._last, node)
        elif len(self._graph):
            self._graph.insert_before(self._graph[0], node)
        else:
            self._graph.append(node)
        self._last = node


def cast_node(value: ir.Value, dtype: ir.DataType, name: str, result: str) -> ir.Node:
    """A Cast of a value, in no graph yet; `result` is the name of what it writes."""
    node = ir.node("Cast", [value], {"to": int(dtype)}, name=name)
    made = node.outputs[0]
    made.name, made.type, made.shape = result, ir.TensorType(dtype), value.shape
    return node


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values of a graph, without those of its subgraphs; an input with a default comes twice."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def all_values(model: ir.Model) -> Iterator[ir.Value]:
    """The values of the graph and of its subgraphs, as `values_of`."""
    return (value for graph in model.graphs() for value in values_of(graph))


def named_ends(node: ir.Node) -> list[ir.Value]:
    """Inputs and outputs of a node that are there (an omitted one is None or has an empty name)."""
    return [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]


def fed_inputs(model: ir.Model) -> list[ir.Value]:
    """The inputs that have no default."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def fixed_batches(model: ir.Model) -> dict[str, int]:
    """Length of axis 0 by input without a default that fixes it."""
    sides = {str(value.name): value.shape[0] for value in fed_inputs(model) if value.shape}
    return {name: side for name, side in sides.items() if isinstance(side, int)}


def fixed_batch(model: ir.Model) -> int | None:
    """Number of samples that the inputs fix on axis 0; None where they leave it free, or fix different numbers."""
    fixed = {*fixed_batches(model).values()}
    return fixed.pop() if len(fixed) == 1 else None


def samples_on_axis_0(model: ir.Model) -> bool:
    """True if axis 0 of all inputs without a default counts samples: it is free under one name, or fixed at one number
    where it is not free.
    """
    shapes = [value.shape for value in fed_inputs(model)]
    if not shapes or any(shape is None or not len(shape) for shape in shapes):
        return False
    sides = [shape[0] for shape in shapes if shape is not None]
    fixed = {side for side in sides if isinstance(side, int)}
    free = {side.value for side in sides if not isinstance(side, int)}
    is_one = len(fixed) <= 1 and len(free) <= 1 and 0 not in fixed
    return is_one and (None not in free or bool(fixed) or len(sides) == 1)


def name_of(node: ir.Node) -> str:
    """The name of a node; of one without, the name that the conversion gives it (truehalf.ir.normalize.name_nodes)."""
    return node.name or "_".join([node.op_type, *[value.name for value in node.outputs[:1] if value.name]])


def label_of(node: ir.Node) -> str:
    """The name of a node; of one without, "OpType -> <first output>"."""
    return node.name or f"{node.op_type} -> {node.outputs[0].name if node.outputs else ''}"


def constant_of(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The content of an initializer or Constant; None for texts, for what is computed, and for a graph input's default,
    which a caller may override.
    """
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def lengths_of(value: ir.Value | None) -> list[int | None] | None:
    """Lengths of the axes of a tensor, None where one is no number; None where not even the rank is known."""
    if value is None or value.shape is None:
        return None
    return [side if isinstance(side, int) else None for side in value.shape]


def opset_of(node: ir.Node, unknown: int = 0) -> int:
    """Version of its domain's operators that holds for a node."""
    imports = node.graph.opset_imports if node.graph is not None else {}
    return node.version or imports.get(node.domain, unknown)


def is_op(node: ir.Node | None, *op_types: str) -> TypeGuard[ir.Node]:
    """Whether a node is one of these operators of ONNX's default domain."""
    return node is not None and node.domain == "" and node.op_type in op_types


def producer_of(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that writes a value, where it is one of these operators."""
    node = value.producer() if value is not None else None
    return node if is_op(node, *op_types) else None


def is_typed(model: ir.Model) -> bool:
    """Whether the type and the rank of every value but weights are known, inside subgraphs, too."""
    read = (value for graph in model.graphs() for value in graph.inputs)  # inner graphs need not state them
    values = [*read, *(value for node in all_nodes(model) for value in node.outputs if value.name)]
    return all(value.type is not None and value.shape is not None for value in values)


def model_facts(model: ir.Model, path: Path | str | None = None) -> ModelFacts:
    """Counts of a model whose value types are known (run shape inference first), and the size of its file.

    Returns:
        nodes; casts (all Cast nodes); float_nodes (nodes other than Cast and Constant with a float output);
        fp16_nodes (those whose float outputs are all FLOAT16); fp16_fraction (None without float nodes);
        untyped_nodes (outputs of unknown type: counted in none of the others); ops by type.
    """
    ops: Counter[str] = Counter()
    float_nodes = fp16_nodes = untyped = 0
    for node in all_nodes(model):
        ops[node.op_type] += 1
        if node.op_type in ("Cast", "Constant"):
            continue
        types = [output.dtype for output in node.outputs if output.name]
        if any(dtype is None for dtype in types):
            untyped += 1
            continue
        floats = [dtype for dtype in types if dtype in FLOATS]
        float_nodes += bool(floats)
        fp16_nodes += bool(floats) and all(dtype == ir.DataType.FLOAT16 for dtype in floats)
    facts: ModelFacts = {
        "nodes": sum(ops.values()),
        "casts": ops["Cast"],
        "float_nodes": float_nodes,
        "fp16_nodes": fp16_nodes,
        "fp16_fraction": fp16_nodes / float_nodes if float_nodes else None,
        "untyped_nodes": untyped,
        "ops": dict(sorted(ops.items())),
    }
    return facts if path is None else {**facts, "size_mb": model_size_mb(path)}


def holds_fp16(model: ir.Model) -> bool:
    """Whether anything in the model is FLOAT16: a value, an initializer, a tensor in an attribute, or a type that a
    node is asked to make; in subgraphs, too.
    """
    half = ir.DataType.FLOAT16
    for graph in model.graphs():
        if any(half in (value.dtype, value.const_value and value.const_value.dtype) for value in values_of(graph)):
            return True
        if any(_makes(attribute, half) for node in graph for attribute in node.attributes.values()):
            return True
    return False


def _makes(attribute: ir.Attr, dtype: ir.DataType) -> bool:
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.as_tensor().dtype == dtype
    return attribute.type == ir.AttributeType.INT and attribute.name in TYPE_ATTRIBUTES and attribute.as_int() == dtype
