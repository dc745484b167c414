"""Reference and candidate in one FP32 graph, each candidate node fed with the reference's tensors.

For every reference tensor t that is aligned with a tensor c of the candidate, the graph holds

    t             as the reference computes it
    accumulated/c as the candidate computes it, rounded as FP16 hardware rounds (truehalf.emulation.emulate)
    local/c       the same node of the candidate, but what it reads is the reference's

so local/c - t is the error that this node makes, and accumulated/c - t what it makes and inherits. What a node reads of
the reference is rounded where the candidate holds it in float16, and cut to +-65504: that a tensor overflows is an
error of its producer. Weights are the candidate's, one for both of its copies. Nodes between two aligned tensors
(casts, moves, the parts of an operator that the other file fuses) go along with the one that writes the aligned tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.emulation.emulate import emulate
from truehalf.errors import StageError
from truehalf.float16 import MAX
from truehalf.ir.facts import is_op, values_read, with_subgraphs
from truehalf.ir.inlining import InlineFunctions
from truehalf.ir.normalize import InferTypes
from truehalf.ir.opset import ToOpset
from truehalf.ir.passes import Passes

_FLOAT, _HALF, _BOOL, _INT64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BOOL, ir.DataType.INT64
_WHERE_FROM = 9  # opset


@dataclass(frozen=True)
class Pair:
    """Names of three values of the graph: t, accumulated/c and local/c; and what the candidate calls c."""

    reference: str
    candidate: str
    accumulated: str
    local: str


@dataclass(frozen=True)
class SideBySide:
    """The graph.

    Attributes:
        model: inputs of the reference; outputs: the reference's, then the candidate's.
        pairs: in the order of the reference.
        outputs: accumulated/... by the name of the output, which is the same in both files.
        added: prefixes of the nodes that are not the reference's.
    """

    model: ir.Model
    pairs: list[Pair]
    outputs: dict[str, str]
    added: tuple[str, str]


def side_by_side(
    reference: ir.Model, candidate: ir.Model, aligned: Mapping[str, str], same_choices: bool = False
) -> SideBySide:
    """Put both into one graph; they themselves are left as they are.

    Args:
        aligned: candidate tensor by reference tensor (truehalf.verification.localize.align).
        same_choices: whether the candidate's run goes on with the positions that TopK chooses in the reference, so that
            rows behind it are those of the same queries; else with its own.

    Raises:
        StageError: when the candidate has an input or output that the reference does not have, when types cannot be
            inferred, or the two cannot be brought to one opset.
    """
    reference, candidate = _alike(reference, candidate)
    fp16_names = {name for name, value in main_values(candidate).items() if value.dtype == _HALF}
    emulated = emulate(candidate)
    accumulated, local = emulated, emulated.clone()
    prefixes = _free_prefix(reference, "accumulated"), _free_prefix(reference, "local")
    merge = _Merge(reference, prefixes[1])
    results = [str(value.name) for value in emulated.graph.outputs]
    renamed = [merge.take(model, prefix) for model, prefix in zip((accumulated, local), prefixes, strict=True)]
    merge.share(*renamed)
    pairs = []
    for tensor, name in aligned.items():
        ours, theirs = merge.values.get(tensor), renamed[1].get(name)
        if ours is None or theirs is None or ours.dtype != theirs.dtype or theirs.producer() is None:
            continue
        if not isinstance(ours.type, ir.TensorType):  # sequences hold tensors that separate nodes compute
            continue
        merge.cut(theirs, ours, name in fp16_names)
        if same_choices and ours.dtype == _INT64 and is_op(theirs.producer(), "TopK"):
            ir.convenience.replace_all_uses_with(renamed[0][name], ours)
        pairs.append((ours, renamed[0][name], theirs, name))
    outputs = {name: merge.output(renamed[0][name], f"{prefixes[0]}.output/{name}") for name in results}
    merge.finish(pairs, list(outputs.values()))
    return SideBySide(
        reference,
        [Pair(str(a.name), name, str(b.name), str(c.name)) for a, b, c, name in pairs],
        {name: str(value.name) for name, value in outputs.items()},
        prefixes,
    )


def switched(side: SideBySide, groups: Iterable[Iterable[Pair]]) -> tuple[ir.Model, list[str]]:
    """The reference with a switch for each group: a BOOL input by which all that follows reads local/c instead of t.

    local/c, too, reads what the switches before it choose, so that with several of them on the reference has several
    nodes of the candidate.

    Returns:
        The model, whose outputs are the reference's, in its order, and the names of the switches, by group.
    """
    model = side.model.clone()
    values = main_values(model)
    places = {inner: number for number, node in enumerate(model.graph) for inner in with_subgraphs(node)}
    names = []
    for number, group in enumerate(groups):
        switch = ir.val(f"{side.added[1]}/switch/{number}", shape=ir.Shape([]), type=ir.TensorType(_BOOL))
        model.graph.inputs.append(switch)
        names.append(str(switch.name))
        for pair in group:
            _switch(model.graph, switch, values[pair.reference], values[pair.local], places)
    del model.graph.outputs[-len(side.outputs) :]
    return model, names


def _switch(graph: ir.Graph, switch: ir.Value, ours: ir.Value, theirs: ir.Value, places: dict[ir.Node, int]) -> None:
    producer = theirs.producer()
    assert producer is not None
    readers = [(node, index) for node, index in ours.uses() if places.get(node, -1) > places[producer]]
    name = f"{theirs.name}/switched"
    bodies = [branch("Identity", [each], each.dtype, f"{name}/{i}") for i, each in enumerate((theirs, ours))]
    branches = dict(zip(("then_branch", "else_branch"), bodies, strict=True))
    node = ir.node("If", [switch], branches, name=name)  # the shapes may differ
    chosen = node.outputs[0]
    chosen.name, chosen.type, chosen.shape = node.name, ours.type, ours.shape
    graph.insert_after(producer, node)
    for reader, index in readers:
        reader.replace_input_with(index, chosen)
    for position, output in enumerate(graph.outputs):
        if output is ours:
            graph.outputs[position] = chosen


def branch(op_type: str, values: list[ir.Value], dtype: ir.DataType | None, name: str) -> ir.Graph:
    """A body of an If: one node that reads values of the graph around it."""
    node = ir.node(op_type, values, name=name)
    node.outputs[0].name, node.outputs[0].type = name, None if dtype is None else ir.TensorType(dtype)
    return ir.Graph([], node.outputs, nodes=[node], name=name)


class _Merge:
    """Nodes and weights of the candidate on their way into the reference's graph."""

    def __init__(self, reference: ir.Model, prefix: str) -> None:
        self.graph, self._prefix = reference.graph, prefix
        self.values = main_values(reference)
        self._rounded: dict[ir.Value, ir.Value] = {}
        self._sources: list[ir.Graph] = []

    def take(self, model: ir.Model, prefix: str) -> dict[str, ir.Value]:
        """Prefix the names of a copy of the candidate, feed it with the reference's inputs; its values by old name."""
        found = main_values(model)
        model.graph.outputs.clear()
        inputs = [value for value in model.graph.inputs if not value.is_initializer()]
        for value in inputs:
            if str(value.name) not in self.values:
                known = ", ".join(repr(str(each.name)) for each in self.graph.inputs)
                raise StageError(
                    "not-comparable",
                    f"the candidate has an input {value.name!r}; the reference has {known}; expected the same",
                )
        for value in inputs:
            found[str(value.name)] = self.values[str(value.name)]
            ir.convenience.replace_all_uses_with(value, self.values[str(value.name)])
        model.graph.inputs.clear()
        number = 0
        for graph in model.graphs():
            for node in graph:
                number += 1
                node.name = f"{prefix}/{number}/{node.name or node.op_type}"
                for output in node.outputs:
                    output.name = f"{prefix}/{output.name}" if output.name else output.name
            for value in [*graph.initializers.values(), *(graph.inputs if graph is not model.graph else [])]:
                value.name = f"{prefix}/{value.name}"
        self._sources.append(model.graph)
        for domain, version in model.graph.opset_imports.items():
            self.graph.opset_imports.setdefault(domain, version)
        return found

    def share(self, accumulated: Mapping[str, ir.Value], local: Mapping[str, ir.Value]) -> None:
        """One constant for both copies of the candidate."""
        for name, value in local.items():
            if value is not accumulated[name] and ir.convenience.get_const_tensor(value) is not None:
                ir.convenience.replace_all_uses_with(value, accumulated[name])

    def output(self, value: ir.Value, name: str) -> ir.Value:
        """The value itself, or a copy of an input or a weight: they belong to the graph already, or to nothing yet."""
        if value.producer() is not None:
            return value
        node = ir.node("Identity", [value], name=name)
        copy = node.outputs[0]
        copy.name, copy.type, copy.shape = name, value.type, value.shape
        return copy

    def cut(self, theirs: ir.Value, ours: ir.Value, half: bool) -> None:
        """Readers of `theirs` read the reference's tensor, rounded where it is a float16 one."""
        ir.convenience.replace_all_uses_with(theirs, self._as_half(ours) if half else ours)

    def _as_half(self, value: ir.Value) -> ir.Value:
        if value not in self._rounded:
            last = value
            steps: list[tuple[str, list[ir.Value], dict[str, int], ir.DataType]] = [
                ("Min", [self._bound(MAX)], {}, _FLOAT),
                ("Max", [self._bound(-MAX)], {}, _FLOAT),
                ("Cast", [], {"to": int(_HALF)}, _HALF),
                ("Cast", [], {"to": int(_FLOAT)}, _FLOAT),
            ]
            for number, (op_type, inputs, attributes, dtype) in enumerate(steps):
                node = ir.node(op_type, [last, *inputs], attributes, name=f"{self._prefix}/read/{value.name}/{number}")
                last = node.outputs[0]
                last.name, last.type, last.shape = node.name, ir.TensorType(dtype), value.shape
            self._rounded[value] = last
        return self._rounded[value]

    def _bound(self, number: float) -> ir.Value:
        name = f"{self._prefix}/bound/{number}"
        if name not in self.graph.initializers:
            value = ir.val(name, const_value=ir.tensor(np.float32(number), name=name))
            self.graph.register_initializer(value)
        return self.graph.initializers[name]

    def finish(self, pairs: list[tuple[ir.Value, ir.Value, ir.Value, str]], results: list[ir.Value]) -> None:
        """Move what is needed into the graph, each tensor of the candidate beside the reference's."""
        following: dict[ir.Node, list[ir.Value]] = {}
        for ours, accumulated, local, _ in pairs:
            producer = ours.producer()
            assert producer is not None
            following.setdefault(producer, []).extend((accumulated, local))
        order: list[ir.Node] = []
        placed: set[ir.Node] = set(self.graph)
        for node in list(self.graph):
            order.append(node)
            for value in following.get(node, []):
                _emit(value, order, placed)
        for value in results:
            _emit(value, order, placed)
        self._keep_weights(order)
        self.graph.remove(list(self.graph))
        for source in self._sources:
            source.remove(list(source))
        self.graph.extend(order)
        self.graph.sort()
        self.graph.outputs.extend(results)

    def _keep_weights(self, order: list[ir.Node]) -> None:
        read = {value for node in order for value in _reads(node)}
        for source in self._sources:
            for name, value in list(source.initializers.items()):
                del source.initializers[name]
                if value in read:
                    self.graph.register_initializer(value)


def _emit(value: ir.Value, order: list[ir.Node], placed: set[ir.Node]) -> None:
    """Append the producers of a value that are not there yet, what they read first."""
    waiting = [value.producer()]
    while waiting:
        node = waiting[-1]
        if node is None or node in placed:
            waiting.pop()
            continue
        missing = [made for read in _reads(node) if (made := read.producer()) is not None and made not in placed]
        if missing:
            waiting += missing
        else:
            placed.add(node)
            order.append(node)
            waiting.pop()


def _reads(node: ir.Node) -> list[ir.Value]:
    """What a node reads, and its subgraphs read from outside."""
    made = {output for each in with_subgraphs(node) for output in each.outputs}
    return [value for value in values_read(node) if value not in made]


def _alike(reference: ir.Model, candidate: ir.Model) -> tuple[ir.Model, ir.Model]:
    """Copies without functions, typed, of one opset that has Where."""
    opsets = [model.graph.opset_imports.get("", _WHERE_FROM) for model in (reference, candidate)]
    copies = []
    for model in (reference, candidate):
        model = model.clone()
        Passes(InlineFunctions(), ToOpset(max(*opsets, _WHERE_FROM)), InferTypes(missing=True))(model)
        copies.append(model)
    return copies[0], copies[1]


def _free_prefix(model: ir.Model, wanted: str) -> str:
    names = [*main_values(model), *(node.name or "" for node in model.graph)]
    prefix = wanted
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix
