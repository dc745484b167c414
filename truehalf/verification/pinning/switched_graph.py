"""FP32 graph -> FP32 graph in which one bool input says of each node whether it computes in FP16 or in FP32.

With r(x) = Cast(Cast(x, FLOAT16), FLOAT), h(w) a weight as truehalf.conversion.rewrite stores it in float16 (clamped to
65504), and a bit b(i) for each node i, true where the node computes in FP32:

    tensor v of node p, read by node c     c reads Where(b(p) and b(c), v, r(v))
    float32 graph input v, read by c       c reads Where(b(c), v, r(v))
    v of node p as a graph output          Where(b(p), v, r(v))
    weight w, read by c                    c reads Where(b(c), w, h(w)); w itself where h(w) = w

It is what truehalf.emulation.emulate makes of the converted file with that assignment: rounding twice is rounding once,
and what moves data (Reshape, Gather, Max, ...) hands on numbers that are rounded already. A slot that stays float32
whatever its node does (truehalf.ir.slots) counts as FP32. A mask constant that the conversion clamps is clamped as
soon as one node on its way runs in FP16 (truehalf.conversion.masks.masks).

Subgraphs follow: a node inside an If, and all that this puts out, has the bit of the node of the main graph that it
lies in. A converted file that keeps only a part of a subgraph in FP32 is therefore not among the assignments.
Nor is the cast of a DOUBLE, or of an integer above 2^24, to FLOAT16: here it passes through FLOAT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.calibration.ranges_form import RangesJson, ranges_of
from truehalf.config.precision import Precision
from truehalf.conversion.masks.masks import find_masks
from truehalf.conversion.ports import FP16, FP32, End, Ports, Slot, Tensor, Use, ports
from truehalf.conversion.rounding import Losses, half
from truehalf.conversion.rules.base import RuleContext
from truehalf.conversion.rules.structure import is_judged, sealed_nodes, structure
from truehalf.errors import StageError
from truehalf.ir.facts import After, all_nodes, with_subgraphs
from truehalf.ir.normalize import PREPARE, Names
from truehalf.ir.ops import Trait, has
from truehalf.ir.selectors import scope_of

_WHERE_OPSET = 9


@dataclass(frozen=True)
class Board:
    """A graph with switches.

    Attributes:
        model: FP32, with one more input.
        input: its name: bool [n], element i true where `nodes[i]` computes in FP32.
        nodes: names, in graph order: the nodes of the main graph that can run in FP16 at all.
        scopes: the dotted module path of each (truehalf.ir.selectors.scope_of), "" where none is known.
        fixed: names of all other nodes; what they compute in floats stays FP32.
        choices: of each choice between exact and rounded, the elements of the input that make it exact, and whether any
            of them does (else all of them must).
    """

    model: ir.Model
    input: str
    nodes: tuple[str, ...]
    scopes: Mapping[str, str]
    fixed: frozenset[str]
    choices: tuple[tuple[tuple[int, ...], bool], ...]


def switchboard(model: ir.Model, precision: Precision, ranges: RangesJson | None = None) -> Board:
    """Build the graph; `model` itself is left as it is.

    Args:
        model: FP32, opset 9 or later, of the opset that is converted.
        precision: of the conversion: masks, whether mask constants are clamped; keep_io_types, of which float32 inputs
            and outputs that are not kept are rounded and stay float32 here; init_conversion_max_bytes: larger weights
            are cast at run time, so not clamped.
        ranges: content of ranges.json as the conversion has it; it decides which mask constants may be clamped.

    Raises:
        StageError: when the graph has a cycle, its opset is below 9, or nothing in it can run in FP16.
    """
    ready = model.clone()
    PREPARE(ready)
    opset = ready.graph.opset_imports.setdefault("", 17)
    if opset < _WHERE_OPSET:
        raise StageError(
            "wrong-opset",
            f"switchboard: the model has opset {opset}; expected {_WHERE_OPSET} or later, which has Where; convert it "
            "with precision.opset=17 first",
        )
    found = ports(ready, _movable(ready), precision.keep_io_types, precision.init_conversion_max_bytes)
    wired = _Wiring(ready, found, ranges, precision.masks)
    if not wired.positions:
        raise StageError(
            "nothing-in-fp16", "switchboard: no node of the model can run in FP16, so there is nothing to switch"
        )
    return wired.board()


def _movable(model: ir.Model) -> list[ir.Node]:
    """Nodes whose precision nothing in the graph settles; a custom operator might be included."""
    context, sealed = RuleContext(model, None, Precision()), sealed_nodes(model)
    judged = [node for node in all_nodes(model) if is_judged(node)]
    return [node for node in judged if structure(node, context, sealed.get(node), included=True) is None]


# --- conditions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _When:
    """A condition on bits: all of them are true, or any. Of none: `all` is always true, `any` never."""

    bits: tuple[int, ...] = ()
    any: bool = False


_ALWAYS, _NEVER = _When(), _When(any=True)


def _all(bits: Iterable[int]) -> _When:
    return _When(tuple(sorted(set(bits))))


@dataclass
class _Conditions:
    """Scalars of conditions, each made once, in front of all nodes."""

    graph: ir.Graph
    names: Names
    bits: ir.Value
    prefix: str
    nodes: list[ir.Node] = field(default_factory=list)
    _known: dict[_When, ir.Value] = field(default_factory=dict)
    _counts: ir.Value | None = None

    def scalar(self, when: _When) -> ir.Value:
        if when not in self._known:
            self._known[when] = self._made(when)
        return self._known[when]

    def _made(self, when: _When) -> ir.Value:
        if len(when.bits) == 1:
            return self.node("Gather", [self.bits, self._indices(when.bits[0])])
        if len(when.bits) == 2:
            both = [self.scalar(_When((bit,))) for bit in when.bits]
            return self.node("Or" if when.any else "And", both)
        if self._counts is None:
            self._counts = self.node("Cast", [self.bits], {"to": int(ir.DataType.INT32)})
        chosen = self.node("Gather", [self._counts, self._indices(list(when.bits))])
        reduced = self.node("ReduceMax" if when.any else "ReduceMin", [chosen], {"keepdims": 0})
        return self.node("Cast", [reduced], {"to": int(ir.DataType.BOOL)})

    def _indices(self, positions: int | list[int]) -> ir.Value:
        name = self.names.fresh(f"{self.prefix}/at/{positions if isinstance(positions, int) else len(self.nodes)}")
        return constant(self.graph, name, np.array(positions, np.int64))

    def node(self, op_type: str, inputs: list[ir.Value], attributes: Mapping[str, Any] | None = None) -> ir.Value:
        node = ir.node(op_type, inputs, attributes or {}, name=self.names.fresh(f"{self.prefix}/{op_type}"))
        node.outputs[0].name = node.name
        self.nodes.append(node)
        return node.outputs[0]


def constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    graph.register_initializer(value := ir.val(name, const_value=ir.tensor(array, name=name)))
    return value


# --- wiring -----------------------------------------------------------------------------------------------------------


class _Wiring:
    def __init__(self, model: ir.Model, found: Ports, ranges: RangesJson | None, masks: bool) -> None:
        self.model, self.ports = model, found
        self.names = Names(model)
        self.home = {inner: node for node in model.graph for inner in with_subgraphs(node)}
        switched = {self.home[node] for node in found.owners.values()}
        self.order = [node for node in model.graph if node in switched]
        self.positions = {node: index for index, node in enumerate(self.order)}
        self.clamps: dict[ir.Value, tuple[float, _When]] = {}
        if masks:
            known = find_masks(model, None if ranges is None else ranges_of(ranges))
            for value, floor in known.clamps.items():
                owners = [node for node in known.paths[value].nodes if node in found.owners]
                self.clamps[value] = floor, _all(self.positions[self.home[node]] for node in owners)
        name = self.names.fresh("switchboard/fp32")
        shape = ir.Shape([len(self.order)])
        self.bits = ir.Value(name=name, type=ir.TensorType(ir.DataType.BOOL), shape=shape)
        self.conditions = _Conditions(model.graph, self.names, self.bits, "switchboard")
        self.choices: dict[_When, None] = {}

    def board(self) -> Board:
        for tensor in self.ports.tensors:
            if tensor.constant:
                self._wire_constant(tensor)
            else:
                self._wire(tensor)
        graph = self.model.graph
        graph.inputs.append(self.bits)
        first = next(iter(graph))
        graph.insert_before(first, self.conditions.nodes)
        switched = [str(node.name) for node in self.order]
        scopes = {str(node.name): scope_of(node) for node in self.order}
        fixed = frozenset(str(node.name) for node in self.home if node.name) - set(switched)
        choices = tuple((when.bits, when.any) for when in self.choices)
        return Board(self.model, str(self.bits.name), tuple(switched), scopes, fixed, choices)

    def _when(self, end: End) -> _When:
        """When what stands at an end is FP32."""
        if isinstance(end, Slot):
            end = end.node
        if isinstance(end, ir.Node):
            return _When((self.positions[self.home[end]],))
        return _NEVER if end == FP16 else _ALWAYS

    def _wire(self, tensor: Tensor) -> None:
        value, written = tensor.value, self._when(tensor.producer)
        readers: dict[_When, list[Use]] = {}
        for use in tensor.uses:
            read = self._when(use.end)
            when = _NEVER if _NEVER in (written, read) else _all(written.bits + read.bits)
            if when != _ALWAYS and not _reads_no_values(use) and not _is_loose_end(value, use):
                readers.setdefault(when, []).append(use)
        if not readers:
            return
        place = After(tensor.graph, value.producer())
        rounded = self._rounded(value, place)
        for when, uses in readers.items():
            chosen = rounded if when == _NEVER else self._where(when, value, rounded, place)
            self._hand(chosen, uses, value)

    def _wire_constant(self, tensor: Tensor) -> None:
        value = tensor.value
        stored = value.const_value
        assert stored is not None
        exact = lowered = stored.numpy()
        floor, unclamped = self.clamps.get(value, (None, _ALWAYS))
        if floor is not None:
            lowered = np.maximum(exact, np.float32(floor))
        source = ir.tensor(lowered, name=value.name) if floor is not None else stored
        narrow = half(source, None, Losses()).numpy().astype(np.float32)
        readers: dict[_When, list[Use]] = {}
        for use in tensor.uses:
            if not _reads_no_values(use):
                readers.setdefault(self._constant_when(tensor, use), []).append(use)
        place = After(tensor.graph, value.producer())
        wide = value
        if floor is not None and unclamped != _ALWAYS:
            clamped = self._constant(tensor, "clamped", lowered)
            wide = self._where(unclamped, value, clamped, place)
            wide_uses = readers.pop(_ALWAYS, [])
            self._hand(wide, wide_uses, value)
        if np.array_equal(narrow, lowered, equal_nan=True) and wide is value:
            return
        rounded = self._constant(tensor, "half", narrow)
        for when, uses in readers.items():
            if when != _ALWAYS:
                chosen = rounded if when == _NEVER else self._where(when, wide, rounded, place)
                self._hand(chosen, uses, value)

    def _constant_when(self, tensor: Tensor, use: Use) -> _When:
        """A reader that takes either type gets the one that convert keeps under the constant's name."""
        if use.end is not None:
            return self._when(use.end)
        output = next((other.end for other in tensor.uses if other.reader is self.model.graph), None)
        if output is not None:
            return self._when(output)
        typed = [self._when(other.end) for other in tensor.uses if other.end is not None]
        if not typed or _ALWAYS in typed:
            return _ALWAYS
        return _When(tuple(sorted({bit for when in typed for bit in when.bits})), any=True)

    def _constant(self, tensor: Tensor, suffix: str, array: np.ndarray) -> ir.Value:
        return constant(tensor.graph, self.names.fresh(f"{tensor.value.name}/{suffix}"), array)

    def _rounded(self, value: ir.Value, place: After) -> ir.Value:
        narrow = self._new("Cast", [value], value, "half", place, {"to": int(FP16)})
        narrow.type = ir.TensorType(FP16)
        return self._new("Cast", [narrow], value, "rounded", place, {"to": int(FP32)})

    def _where(self, when: _When, exact: ir.Value, rounded: ir.Value, place: After) -> ir.Value:
        self.choices[when] = None
        return self._new("Where", [self.conditions.scalar(when), exact, rounded], exact, "read", place)

    def _new(
        self,
        op_type: str,
        inputs: list[ir.Value],
        like: ir.Value,
        suffix: str,
        place: After,
        attributes: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        name = self.names.fresh(f"{like.name}/{suffix}")
        node = ir.node(op_type, inputs, attributes or {}, name=name)
        result = node.outputs[0]
        result.name, result.type, result.shape = name, ir.TensorType(FP32), like.shape
        place.insert(node)
        return result

    def _hand(self, chosen: ir.Value, uses: list[Use], value: ir.Value) -> None:
        """Let readers read `chosen`; as a graph output it takes over the name."""
        for use in uses:
            use.read(chosen)
        if any(use.reader is self.model.graph for use in uses) and not value.is_graph_input():
            name = value.name
            value.name = self.names.fresh(f"{name}/written")
            chosen.name = name


def _reads_no_values(use: Use) -> bool:
    return isinstance(use.reader, ir.Node) and has(use.reader, Trait.SHAPE_ONLY)


def _is_loose_end(value: ir.Value, use: Use) -> bool:
    """A graph input that is a graph output as it stands: no node to round between."""
    return value.is_graph_input() and isinstance(use.reader, ir.Graph)
