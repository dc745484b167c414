"""Replays of a neighbourhood in float16 beside the model's own float32 run: what rounding there does to its end.

With r(x) = Cast(Cast(x, FLOAT16), FLOAT), a node that is replayed

    in float16   y = r(op(r(a), r(b)))        in float32   y = op(a, b)

and the error of a replay is max |y' - y| / max |y| over the end's output, or what is shown of it, y' being the
replay's; infinite where y' is not finite and y is. A leaf is r(leaf), but where it is kept. Normalizations are spelt
out, without scale and bias, but for Layer-, Instance- and GroupNormalization with an epsilon from 2^-17 on, whose
inside loses no more than their input:

    Layer-, Instance-, Group-, MeanVariance-    d = r(x - r(mean x)), r(d / r(Sqrt(r(mean r(d * d)) + epsilon)))
    RMSNormalization                            the same, with d = x
    LpNormalization                             r(x / r(Sqrt(r(sum r(x * x))))), r(x / r(sum |x|))

and so are the squares in ReduceL2, ReduceSumSquare and GlobalLpPool, the exponentials in ReduceLogSumExp, and the terms
of a CumSum, one after the other. Other sums are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import LARGEST, InsertionPoint, Instrumented
from truehalf.calibration.rounding.neighbourhoods import MADE_BY, MOVES, Neighbourhood
from truehalf.calibration.sums import cumulative_sum
from truehalf.ir.facts import constant_of, is_op
from truehalf.ir.ops import Trait, has
from truehalf.ir.slots import is_float32

_MVN_EPSILON = 1e-9
_EPSILON_MIN = 2.0**-17  # beside it the last bit of a subnormal variance, 2^-25, is nothing


@dataclass(frozen=True)
class Replay:
    """A neighbourhood in float16, but for some of it.

    Attributes:
        float32: nodes that are replayed in float32.
        kept: leaves that are not rounded.
    """

    around: Neighbourhood
    float32: frozenset[ir.Node] = frozenset()
    kept: frozenset[ir.Value] = frozenset()


def steps(around: Neighbourhood) -> list[Replay]:
    """More and more of a neighbourhood in float32, from its end upstream; then all of it, each leaf rounded alone.

    Inputs of the model are float32, for nodes that are: of x^2 and 2 x, only what is float16 reads them rounded.
    """
    deepest = max(around.depths.values())
    exact = frozenset(leaf for leaf in around.leaves if leaf.is_graph_input() and MADE_BY not in leaf.meta)
    found = []
    for depth in range(1, deepest + 1):
        nodes = frozenset(node for node, each in around.depths.items() if each <= depth)
        found.append(Replay(around, nodes, exact))
    leaves = frozenset(around.leaves)
    whole = frozenset(around.depths)
    return found + [Replay(around, whole, leaves - ({leaf} - exact)) for leaf in around.leaves]


def report_replays(graph: Instrumented, replays: Iterable[Replay], is_suspect: Callable[[ir.Node], bool]) -> None:
    """Report the errors of replays, in their order, as "replay error" and "replay scale" (`errors` reads them).

    Args:
        is_suspect: whether an end's output may hold NaN or Inf, which count as no errors.
    """
    shared: dict[ir.Node, _Shared] = {}
    for replay in replays:
        end = replay.around.end
        if end not in shared:
            shared[end] = _Shared(graph.after_producer(_written([end, *replay.around.shown][-1])))
        _report(shared[end], replay, is_suspect(end))


def _report(shared: _Shared, replay: Replay, suspect: bool) -> None:
    around, place, graph = replay.around, shared.place, shared.place.graph
    true, made = graph.value(_written(around.end)), _Replaying(shared, replay).result()
    if _is_spelt_out(around.end):
        end = around.end
        true = _Replaying(shared, Replay(around, frozenset([end]))).apply(end, _own_inputs(graph, end))[0]
    for node in around.shown:
        read = [each is not None and constant_of(each) is None for each in node.inputs].index(True)
        own = _own_inputs(graph, node)
        true, made = (place.copy(node, [*own[:read], value, *own[read + 1 :]])[0] for value in (true, made))
    largest = graph.constant(LARGEST)
    size = place.node("Abs", [place.flat(true)])
    error = place.flat(place.node("Abs", [place.node("Sub", [made, true])]))
    error = place.node("Where", [place.node("Less", [error, largest]), error, largest])
    if suspect:
        finite, nothing = place.node("Less", [size, largest]), graph.constant(0.0)
        size, error = (place.node("Where", [finite, each, nothing]) for each in (size, error))
    place.report("replay error", "ReduceMax", error)
    place.report("replay scale", "ReduceMax", size)


def errors(columns: Mapping[str, np.ndarray]) -> list[float]:
    """The errors of replays that one run has reported, in the order in which they were asked for; 0 of no elements."""
    nothing = np.zeros(0, np.float32)
    reported = (columns.get(f"replay {key}", nothing).tolist() for key in ("error", "scale"))
    return [
        LARGEST if error >= LARGEST else max(error, 0.0) / scale if scale > 0 else 0.0
        for error, scale in zip(*reported, strict=True)
    ]


def _is_spelt_out(node: ir.Node) -> bool:
    """A normalization whose inside may lose what its input has: all but those whose epsilon hides it, at 2^-8 of it."""
    keeps = has(node, Trait.CENTERS) and not is_op(node, "MeanVarianceNormalization")
    epsilon = node.attributes.get_float("epsilon", 1e-5) or 0.0
    return has(node, Trait.STANDARDIZES) and not (keeps and epsilon >= _EPSILON_MIN)


def _written(node: ir.Node) -> str:
    return next(str(value.name) for value in node.outputs if value.name)


def _own_inputs(graph: Instrumented, node: ir.Node) -> list[ir.Value | None]:
    return [None if value is None else graph.value(str(value.name)) for value in node.inputs]


@dataclass(frozen=True)
class _Shared:
    """What the replays of one neighbourhood have in common: most of it is in the same type, of the same inputs.

    Attributes:
        place: behind the end.
        half: rounded, by float32 value.
        written: what a node writes, in float16 or not, of its inputs.
    """

    place: InsertionPoint
    half: dict[ir.Value, ir.Value] = field(default_factory=dict)
    written: dict[tuple[ir.Node, bool, tuple[ir.Value | None, ...]], list[ir.Value]] = field(default_factory=dict)


class _Replaying:
    def __init__(self, shared: _Shared, replay: Replay) -> None:
        self._place, self._replay = shared.place, replay
        self._half, self._written = shared.half, shared.written
        self._made: dict[str, ir.Value] = {}  # by name in the model
        kept = {str(value.name) for value in replay.kept}
        self._rounded_leaves = {str(value.name) for value in replay.around.leaves} - kept

    def result(self) -> ir.Value:
        """The end's output."""
        written = []
        for node in self._replay.around.depths:
            written = self.apply(node, [self._input(node, value) for value in node.inputs])
            self._made |= {str(value.name): made for value, made in zip(node.outputs, written, strict=False)}
        return written[0]

    def apply(self, node: ir.Node, inputs: list[ir.Value | None]) -> list[ir.Value]:
        """What a node writes, in its precision."""
        key = (node, node not in self._replay.float32, tuple(inputs))
        if key not in self._written:
            self._written[key] = self._applied(*key)
        return self._written[key]

    def _applied(self, node: ir.Node, in_half: bool, inputs: Sequence[ir.Value | None]) -> list[ir.Value]:
        graph = self._place.graph
        is_own = not in_half and list(inputs) == _own_inputs(graph, node) and all(each.name for each in node.outputs)
        if is_own and not _is_spelt_out(node):
            return [graph.value(str(value.name)) for value in node.outputs]
        if _is_spelt_out(node):
            return [self._normalized(node, inputs[0], in_half)]
        if in_half and node.op_type == "CumSum" and (axis := constant_of(node.inputs[1])) is not None:
            return [cumulative_sum(self._place, node, inputs[0], int(axis.item()))]
        if in_half and node.op_type in ("ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "GlobalLpPool"):
            inputs = self._terms(node, inputs)
        written = self._place.copy(node, inputs)
        return [self._round(value, in_half and node.op_type not in MOVES) for value in written]

    def _input(self, node: ir.Node, value: ir.Value | None) -> ir.Value | None:
        if value is None:
            return None
        name = str(value.name)
        found = self._made.get(name) or self._place.graph.value(name)
        if not is_float32(value):
            return found
        return self._round(found, node not in self._replay.float32 or name in self._rounded_leaves)

    def _round(self, value: ir.Value, in_half: bool) -> ir.Value:
        if not in_half:
            return value
        if value not in self._half:
            half = self._place.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)})
            self._half[value] = self._place.node("Cast", [half], {"to": int(ir.DataType.FLOAT)})
            self._half[self._half[value]] = self._half[value]
        return self._half[value]

    def _terms(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value | None]:
        """Inputs whose squares or exponentials are those that float16 holds."""
        source = inputs[0]
        if source is None or (node.op_type == "GlobalLpPool" and node.attributes.get_int("p", 2) != 2):
            return inputs
        if node.op_type == "ReduceLogSumExp":
            return [self._place.node("Log", [self._round(self._place.node("Exp", [source]), True)]), *inputs[1:]]
        square = self._round(self._place.node("Mul", [source, source]), True)
        return [self._place.node("Sqrt", [square]), *inputs[1:]]

    def _normalized(self, node: ir.Node, source: ir.Value | None, in_half: bool) -> ir.Value:
        assert source is not None, "a normalization reads a tensor"
        rows, axes = self._rows(node, source)

        def op(op_type: str, *inputs: ir.Value) -> ir.Value:
            return self._round(self._place.node(op_type, list(inputs)), in_half)

        def reduced(op_type: str, value: ir.Value) -> ir.Value:
            return self._round(self._place.reduced(op_type, value, axes), in_half)

        if node.op_type == "LpNormalization":
            if node.attributes.get_int("p", 2) == 1:
                return op("Div", rows, reduced("ReduceSum", op("Abs", rows)))
            return op("Div", rows, op("Sqrt", reduced("ReduceSum", op("Mul", rows, rows))))
        centred = rows if node.op_type == "RMSNormalization" else op("Sub", rows, reduced("ReduceMean", rows))
        variance = reduced("ReduceMean", op("Mul", centred, centred))
        if node.op_type == "MeanVarianceNormalization":
            return op("Div", centred, op("Add", op("Sqrt", variance), self._constant(_MVN_EPSILON, in_half)))
        epsilon = self._constant(node.attributes.get_float("epsilon", 1e-5) or 1e-5, in_half)
        return op("Div", centred, op("Sqrt", op("Add", variance, epsilon)))

    def _constant(self, number: float, in_half: bool) -> ir.Value:
        return self._place.graph.constant(float(np.float16(number)) if in_half else number)

    def _rows(self, node: ir.Node, source: ir.Value) -> tuple[ir.Value, list[int]]:
        """A view of what is normalized, and the axes of its rows."""
        match node.op_type:
            case "LayerNormalization" | "RMSNormalization":
                return self._place.node("Flatten", [source], {"axis": node.attributes.get_int("axis", -1) or 0}), [1]
            case "InstanceNormalization":
                return self._place.node("Flatten", [source], {"axis": 2}), [1]
            case "GroupNormalization":
                groups = node.attributes.get_int("num_groups", 1) or 1
                return self._place.node("Reshape", [source, self._place.graph.constant([0, groups, -1])]), [2]
            case "MeanVarianceNormalization":
                return source, list(node.attributes.get_ints("axes", (0, 2, 3)) or ())
        return source, [node.attributes.get_int("axis", -1) or 0]
