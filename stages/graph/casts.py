"""Remove what Casts can be removed. The algebra, applied until nothing changes; s, m, t are element types:

    same_type     Cast(x: t, t)         ->  x            exact
    widening      Cast(Cast(x: s, m), t) -> Cast(x, t)   exact: m holds every value of s
    rounding      Cast(Cast(x: s, m), t) -> Cast(x, t)   removes a rounding: s, m, t floats, m does not hold all of s
    constant      Cast(constant, t)     ->  constant     exact: computed once, here
    duplicate     Cast(x, t), Cast(x, t) -> the first    exact
    dead          Cast(x, t) unread     ->  nothing      exact

So f32 -> f16 -> f32 -> f16 -> f32 ends as x, and as f32 -> f16 -> f32 under `strict`, which leaves `rounding` out. A
Cast from float to integer or bool truncates: no rule touches f32 -> i64 -> f32. Where a Cast that goes wrote a graph
output, the output keeps its name: the producer takes it over, or an Identity stands there (`identity_for_output`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from stages.graph.facts import all_nodes
from stages.graph.normalize import Names, normalize

_T = ir.DataType
_FLOATS = {_T.FLOAT16, _T.BFLOAT16, _T.FLOAT, _T.DOUBLE}
_SIGNED = [_T.INT8, _T.INT16, _T.INT32, _T.INT64]
_UNSIGNED = [_T.UINT8, _T.UINT16, _T.UINT32, _T.UINT64]
# Bits of an integer's magnitude, and the largest magnitude in bits up to which a float holds every integer.
_BITS = (
    {_T.BOOL: 1} | dict(zip(_SIGNED, (7, 15, 31, 63), strict=True)) | dict(zip(_UNSIGNED, (8, 16, 32, 64), strict=True))
)
_SIGNIFICAND = {_T.FLOAT16: 11, _T.BFLOAT16: 8, _T.FLOAT: 24, _T.DOUBLE: 53}
_KNOWN = _FLOATS | set(_BITS)
_FLOAT_HOLDS = {(_T.FLOAT16, _T.FLOAT), (_T.BFLOAT16, _T.FLOAT)} | {(s, _T.DOUBLE) for s in _FLOATS}


def holds(wide: ir.DataType, narrow: ir.DataType) -> bool:
    """Whether type `wide` holds every value of type `narrow`, so that a Cast there and back changes nothing."""
    if wide == narrow or (narrow, wide) in _FLOAT_HOLDS:
        return True
    if narrow not in _BITS or wide == _T.BOOL:
        return False
    if wide in _SIGNIFICAND:
        return _BITS[narrow] <= _SIGNIFICAND[wide]
    fits = wide in _BITS and _BITS[narrow] <= _BITS[wide]
    return fits and (narrow not in _SIGNED or wide in _SIGNED)


@dataclass
class CastReport:
    """Casts of the whole model before and after; how often each rule was applied."""

    before: int
    after: int
    rules: dict[str, int]


def clean(model: ir.Model, strict: bool = False) -> CastReport:
    """Apply the rules to a model in place, subgraphs included.

    Args:
        model: any model; it is sorted, named and typed first. A Cast whose input type is not known is left alone
            by the rules that need it.
        strict: only the rules that are exact.

    Raises:
        StageError: when a graph has a cycle.
    """
    normalize(model)
    before = count_casts(model)
    cleaning = _Cleaning(model, strict)
    cleaning.run()
    return CastReport(before, count_casts(model), dict(sorted(cleaning.rules.items())))


def count_casts(model: ir.Model) -> int:
    """All Cast nodes of a model."""
    return sum(map(_is_cast, all_nodes(model)))


class _Cleaning:
    def __init__(self, model: ir.Model, strict: bool) -> None:
        self.model, self.strict = model, strict
        self.names = Names(model)
        self.rules: Counter[str] = Counter()

    def run(self) -> None:
        applied = -1
        while applied != sum(self.rules.values()):
            applied = sum(self.rules.values())
            for graph in list(self.model.graphs()):
                self._graph(graph)

    def _graph(self, graph: ir.Graph) -> None:
        first: dict[tuple[ir.Value, str], ir.Value] = {}
        for cast in _casts(graph):
            if not _same_type(cast):
                self._shorten(cast)
            source, result = _ends(cast)
            if _same_type(cast):
                self._bypass(graph, cast, source, "same_type")
            elif folded := self._folded(graph, cast):
                self._bypass(graph, cast, folded, "constant")
            elif (twin := first.setdefault((source, _signature(cast)), result)) is not result:
                self._bypass(graph, cast, twin, "duplicate")
        for cast in reversed(_casts(graph)):
            _, result = _ends(cast)
            if not result.uses() and not result.is_graph_output():
                graph.remove(cast, safe=True)
                self.rules["dead"] += 1

    def _shorten(self, cast: ir.Node) -> None:
        """Read from before the Casts that come first, as far as the rules allow."""
        while (inner := _ends(cast)[0].producer()) is not None and _is_cast(inner):
            rule = self._chain_rule(_ends(inner)[0].dtype, _ends(inner)[1].dtype, _ends(cast)[1].dtype)
            if rule is None:
                return
            cast.replace_input_with(0, _ends(inner)[0])
            self.rules[rule] += 1

    def _chain_rule(self, s: ir.DataType | None, m: ir.DataType | None, t: ir.DataType | None) -> str | None:
        if s is None or m is None or t is None or not {s, m, t} <= _KNOWN or s == m:
            return None
        out_of_range = s in _BITS and m in _FLOATS and t in _BITS and t != _T.BOOL and not holds(t, s)
        if holds(m, s):  # what a float out of an integer's range becomes is undefined: leave that Cast as it is
            return None if out_of_range else "widening"
        return "rounding" if {s, m, t} <= _FLOATS and not self.strict else None

    def _folded(self, graph: ir.Graph, cast: ir.Node) -> ir.Value | None:
        """The Cast of a constant as a new constant; None when it is none, or when the result is left to the runtime."""
        source, result = _ends(cast)
        tensor = None if source.is_graph_input() else ir.convenience.get_const_tensor(source)
        if tensor is None or result.dtype is None or result.is_graph_output() or self.model.ir_version < 4:
            return None
        array = _cast_array(tensor, result.dtype)
        if array is None:
            return None
        name = self.names.fresh(f"{source.name}_{result.dtype.name.lower()}")
        value = ir.Value(name=name, type=ir.TensorType(result.dtype), shape=source.shape)
        value.const_value = ir.tensor(array, dtype=result.dtype, name=name)
        graph.register_initializer(value)
        return value

    def _bypass(self, graph: ir.Graph, cast: ir.Node, replacement: ir.Value, rule: str) -> None:
        """Let everybody read `replacement` instead of a Cast's result, and remove the Cast."""
        source, result = _ends(cast)
        is_output, name = result.is_graph_output(), result.name
        producer = replacement.producer()
        if is_output and producer is not None and producer.graph is graph and not replacement.is_graph_output():
            result.name, replacement.name = None, name
        elif is_output:
            self._stand_in(graph, cast, replacement)
        result.replace_all_uses_with(replacement, replace_graph_outputs=True)
        graph.remove(cast, safe=True)
        _remove_unread_constant(source)
        self.rules[rule] += 1

    def _stand_in(self, graph: ir.Graph, cast: ir.Node, replacement: ir.Value) -> None:
        """An Identity of `replacement` that writes the graph output which the Cast wrote."""
        _, result = _ends(cast)
        output = ir.Value(name=result.name, type=result.type, shape=result.shape)
        identity = ir.Node(
            "", "Identity", [replacement], outputs=[output], name=self.names.fresh(f"{result.name}_identity")
        )
        graph.insert_after(cast, identity)
        result.name = None
        for index, value in enumerate(graph.outputs):
            if value is result:
                graph.outputs[index] = output
        self.rules["identity_for_output"] += 1


def _casts(graph: ir.Graph) -> list[ir.Node]:
    return [node for node in graph if _is_cast(node)]


def _is_cast(node: ir.Node) -> bool:
    return node.op_type == "Cast" and node.domain == ""


def _same_type(cast: ir.Node) -> bool:
    source, result = _ends(cast)
    return source.dtype is not None and source.dtype == result.dtype


def _ends(cast: ir.Node) -> tuple[ir.Value, ir.Value]:
    source = cast.inputs[0]
    assert source is not None  # Cast has no optional input
    return source, cast.outputs[0]


def _signature(cast: ir.Node) -> str:
    return " ".join(f"{name}={attribute.value}" for name, attribute in sorted(cast.attributes.items()))


def _cast_array(tensor: ir.TensorProtocol, dtype: ir.DataType) -> np.ndarray | None:
    """A tensor in another type; None for other types than _KNOWN, and for floats that the integer type cannot hold."""
    if not {tensor.dtype, dtype} <= _KNOWN:
        return None
    array = tensor.numpy()
    if tensor.dtype in _FLOATS and dtype in _BITS and dtype != _T.BOOL:
        limits = np.iinfo(dtype.numpy())
        if not np.all((array >= limits.min) & (array <= limits.max)):  # NaN included
            return None
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy())


def _remove_unread_constant(value: ir.Value) -> None:
    if value.uses() or value.is_graph_output() or value.is_graph_input():
        return
    producer = value.producer()
    if producer is not None and producer.op_type == "Constant" and producer.graph is not None:
        producer.graph.remove(producer, safe=True)
    elif value.is_initializer() and value.graph is not None and value.name is not None:
        value.graph.initializers.pop(value.name)
