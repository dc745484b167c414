"""The forms that other passes rely on, and sizes at the shapes that a model will run with (`concrete_shapes`).

    NORMALIZE    names of nodes are there and unique, types of values are known (TYPED: not all sizes)
    PREPARE      the form in which graphs are measured, judged and converted; constants are alike, too:
                     Constant nodes of float32          initializers of the same name, in subgraphs, too (not sparse)

None of it changes what a model computes. Names that are there and unique stay. Nodes are sorted when a model is read.

onnx_ir's passes are used where they give the same. NameFixPass renames values; ShapeInferencePass overwrites shapes
of outputs, and confuses subgraphs with equal names; LiftConstantsToInitializersPass lifts the integers that shapes are
computed from.
"""

from __future__ import annotations

import contextlib
import graphlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, all_values, is_op, is_typed, label_of, name_of, subgraphs, values_of
from truehalf.ir.passes import Done, Pass, Passes

_Shapes = dict[ir.Value, tuple[int, ...]]
_SMALL = 1000  # bytes; constants that shapes are computed from are smaller


class Names:
    """All value and node names of a model, to make new ones that clash with none."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {*(value.name for value in all_values(model)), *(node.name for node in all_nodes(model))} - {""}
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, ... where it is taken; the result is taken from now on."""
        name = wanted
        while name in self._taken:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{self._next[wanted]}"
        self._taken.add(name)
        return name


class NameNodes(Pass):
    """Gives each node without a name the name `<OpType>_<first output>`, and each repeated name a number."""

    def edit(self, model: ir.Model, done: Done) -> None:
        names = Names(model)
        seen: set[str] = set()
        for node in all_nodes(model):
            if not node.name or node.name in seen:
                node.name = names.fresh(name_of(node))
                done.counts["named"] += 1
            seen.add(node.name)


@dataclass(frozen=True)
class InferTypes(Pass):
    """Fills in value types and shapes as far as onnx can infer them; weights are not copied. Known types stay, and so
    do the shapes that the model states for its outputs.

    Attributes:
        strict: what cannot be is an error, and the shapes of outputs are inferred, too.
        missing: nothing where type and rank of every value are known; a size may then follow from others all the same.

    Raises:
        onnx.shape_inference.InferenceError: only with `strict`.
    """

    strict: bool = False
    missing: bool = False

    def edit(self, model: ir.Model, done: Done) -> None:
        strict = self.strict
        if self.missing and is_typed(model):
            return
        stated = {value for value in model.graph.outputs if value.shape is not None and not strict}
        unknown = contextlib.nullcontext() if strict else contextlib.suppress(onnx.shape_inference.InferenceError)
        with unique_names(model), unknown:
            light = proto_without_weights(model, integers=strict)
            inferred = ir.from_proto(onnx.shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True))
            for graph, typed in zip(model.graphs(), inferred.graphs(), strict=True):
                known = ir.convenience.create_value_mapping(typed)
                for name, value in ir.convenience.create_value_mapping(graph).items():
                    if name in known:
                        before = value.type, value.shape
                        value.type = value.type or known[name].type
                        shape = known[name].shape
                        if value not in stated and (shape or (strict and shape is not None)):  # a scalar's is empty
                            value.shape = shape
                        done.counts["typed"] += before != (value.type, value.shape)


class OpsetsOfSubgraphs(Pass):
    """Sets the opset imports of each subgraph, by which schemas are looked up; a file states only the model's."""

    def edit(self, model: ir.Model, done: Done) -> None:
        for graph in model.graphs():
            graph.opset_imports.update(model.graph.opset_imports)


@dataclass(frozen=True)
class LiftConstants(Pass):
    """Makes Constant nodes initializers of the same name.

    Attributes:
        of: whether those of an element type are.
    """

    of: Callable[[ir.DataType], bool]

    def edit(self, model: ir.Model, done: Done) -> None:
        for graph in model.graphs():
            for node in [node for node in graph if is_op(node, "Constant")]:
                value = node.outputs[0]
                tensor = ir.convenience.get_const_tensor(value)
                if tensor is None or not self.of(tensor.dtype):  # None: sparse
                    continue
                shape = ir.Shape(tensor.shape.numpy())
                lifted = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
                value.replace_all_uses_with(lifted, replace_graph_outputs=True)
                graph.remove(node, safe=True)
                graph.register_initializer(lifted)
                done.counts["lifted"] += 1


NORMALIZE = Passes(NameNodes(), InferTypes(), OpsetsOfSubgraphs())
TYPED = Passes(NameNodes(), InferTypes(missing=True), OpsetsOfSubgraphs())
PREPARE = Passes(LiftConstants(lambda dtype: dtype == ir.DataType.FLOAT), NORMALIZE)


def concrete_shapes(
    model: ir.Model,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    sizes: Mapping[str, float] | None = None,
) -> _Shapes:
    """Shape of every value whose rank is known, subgraphs included; dimensions that stay unknown count 1.

    Args:
        model: typed; it is left as it is.
        input_shapes: shapes of graph inputs by name, such as an optimization profile's `opt`; inputs that are not named
            keep theirs, with 1 for each symbolic dimension.
        sizes: elements by name of the value, for those whose shape stays unknown: the first dimension that is makes up
            for them; where the rank is unknown, there is one.
    """
    with unique_names(model):
        proto = proto_without_weights(model)
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
                size = (sizes or {}).get(name)
                if shape is not None or size is not None:
                    shapes[value] = _filled((None,) if shape is None else shape, size)
    return shapes


def _filled(shape: Iterable[object], size: float | None) -> tuple[int, ...]:
    """A shape whose unknown dimensions are 1, but for the first of them, which makes up for a size."""
    sides = [dim if isinstance(dim, int) else None for dim in shape]
    if size is not None and None in sides:
        sides[sides.index(None)] = max(1, round(size / max(1, math.prod(side or 1 for side in sides))))
    return tuple(1 if side is None else side for side in sides)


def elements(shape: Sequence[int] | None) -> int:
    """Elements of a tensor; 1 where its rank is unknown."""
    return math.prod(shape) if shape is not None else 1


def _bind(tensor: onnx.TypeProto.Tensor, shape: Sequence[int] | None) -> None:
    for axis, dim in enumerate(tensor.shape.dim):
        if shape is not None and axis < len(shape):
            dim.dim_value = shape[axis]
        elif not dim.HasField("dim_value"):
            dim.dim_value = 1


@contextlib.contextmanager
def unique_names(model: ir.Model) -> Iterator[dict[str, str]]:
    """For a while, no two values of a model share a name; yields the original names of those that are renamed.

    Sibling subgraphs may share names. What finds values by name (onnx's propagation of shapes does, too) mixes them up.
    """
    to_apart = apart(model)
    originals = {name: value.name or "" for value, name in to_apart.items()}
    rename(model, to_apart)
    try:
        yield originals
    finally:
        rename(model, {value: originals[name] for value, name in to_apart.items()})


def apart(model: ir.Model) -> dict[ir.Value, str]:
    """Names for the values whose name another one has; inputs, outputs and what comes first keep theirs."""
    seen, repeated = set[str](), list[ir.Value]()
    for value in dict.fromkeys((*model.graph.inputs, *model.graph.outputs, *all_values(model))):
        if value.name in seen:
            repeated.append(value)
        elif value.name:
            seen.add(value.name)
    names = Names(model) if repeated else None
    return {value: names.fresh(value.name or "") for value in repeated} if names else {}


def rename(model: ir.Model, names: Mapping[ir.Value, str]) -> None:
    """Give values new names; initializers keep their order."""
    for graph in model.graphs() if names else ():
        initializers = list(graph.initializers.values())
        changed = [value for value in values_of(graph) if value in names]
        for value in changed:
            value.name = names[value]
        if any(value.is_initializer() for value in changed):
            graph.initializers.clear()
            for value in initializers:
                graph.initializers.add(value)


def proto_without_weights(model: ir.Model, integers: bool = False) -> onnx.ModelProto:
    """The model whose initializers beyond 1000 bytes are replaced by a mention of external data: shapes depend on small
    ones; with `integers` only those of floats are.
    """
    whole = {ir.DataType.INT64, ir.DataType.INT32} if integers else set()
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    tensors = {value: value.const_value for value in values if value.const_value is not None}
    try:
        for value, tensor in tensors.items():
            value.const_value = tensor if tensor.dtype in whole else _mention(tensor, value.name or "")
        return ir.to_proto(model)
    finally:
        for value, tensor in tensors.items():
            value.const_value = tensor


def _mention(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    if tensor.nbytes > _SMALL and tensor.dtype != ir.DataType.STRING:
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor("weights", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name)
    return ir.tensor(tensor.numpy(), name=name) if isinstance(tensor, ir.ExternalTensor) else tensor


def sort_nodes(model: ir.Model) -> ir.Model:
    """The model, whose nodes then stand behind what they read: runtimes allow another order, onnx_ir clones no such.

    Raises:
        StageError: when there is a cycle, naming a node on it. Nothing is deleted.
    """
    nodes = all_nodes(model)  # one with subgraphs waits for all their nodes
    waits_for = {node: [*node.predecessors(), *(each for inner in subgraphs(node) for each in inner)] for node in nodes}
    try:
        graphlib.TopologicalSorter(waits_for).prepare()
        model.graph.sort()
    except graphlib.CycleError as error:
        raise StageError(
            "graph-cycle",
            f"the graph has a cycle through node {label_of(error.args[1][0])!r}: expected every node to read only what "
            "nodes before it write; the tool that wrote this file broke it, convert the original again",
        ) from error
    return model
