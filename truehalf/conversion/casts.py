"""Remove what Casts can be removed. The algebra, applied until nothing changes; s, m, t are element types:

    same_type     Cast(x: t, t)               ->  x                 exact
    widening      Cast(Cast(x: s, m), t)      ->  Cast(x, t)        exact: m holds every value of s
    rounding      Cast(Cast(x: s, m), t)      ->  Cast(x, t)        removes a rounding: floats, m does not hold all of s
    moved         Cast(move(Cast(x: s, m)),t) ->  move(Cast(x, t))  as widening, where Casts become fewer
    moved_rounding                                                  as rounding
    constant      Cast(constant, t)           ->  constant          exact: computed once
    duplicate     Cast(x, t), Cast(x, t)      ->  the first         exact
    unread        Shape(Cast(x, t))           ->  Shape(x)          exact; Size, too
    dead          Cast(x, t) unread           ->  nothing           exact

So f32 -> f16 -> f32 -> f16 -> f32 ends as x, and as f32 -> f16 -> f32 under `strict`, which leaves the two rules with
a rounding out. `moved` holds for whole regions of data movement (truehalf.ir.moves), of float32 and float16: what flows
in is a Cast to m or a constant, what reads the results is a Cast to t or reads no values. A Cast from float to integer
or bool truncates: no rule touches f32 -> i64 -> f32. No rule makes a Cast that runtimes lack (UINT8 to INT32). Where a
Cast that goes wrote a graph output, the producer of its input takes the name over; a Cast of a graph input, or of what
another output shows, stays, and so does a CastLike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import onnx_ir as ir

from truehalf.conversion.element_types import KNOWN, cast_tensor, chain_rule, has_cast
from truehalf.ir.facts import all_nodes, insert_after, is_op, producer_of
from truehalf.ir.moves import Region, regions
from truehalf.ir.normalize import TYPED, Names
from truehalf.ir.ops import Trait, has
from truehalf.ir.passes import Done, Pass

_MOVED_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)  # every runtime moves these


@dataclass(frozen=True)
class CleanCasts(Pass):
    """Applies the rules to a model, subgraphs included, and counts how often each was applied.

    Any model will do; it is sorted, named and typed first. A Cast whose input type is not known is skipped by the
    rules that need it. The rules are one pass: they meet at one Cast, and share the constants that they make.

    Attributes:
        strict: only the rules that are exact.
        fold_max_bytes: a larger constant keeps its Cast; None: every constant is folded.

    Raises:
        StageError: when a graph has a cycle.
    """

    strict: bool = False
    fold_max_bytes: int | None = None

    def edit(self, model: ir.Model, done: Done) -> None:
        done.modified = TYPED(model).modified
        _Cleaning(model, self, done.counts).run()


def count_casts(model: ir.Model) -> int:
    """All Cast and CastLike nodes of a model."""
    return sum(is_op(node, "Cast", "CastLike") for node in all_nodes(model))


class _Cleaning:
    def __init__(self, model: ir.Model, options: CleanCasts, rules: Counter[str]) -> None:
        self.model, self.options, self.rules = model, options, rules
        self.names = Names(model)
        self.constants: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def run(self) -> None:
        applied = -1
        while applied != sum(self.rules.values()):
            applied = sum(self.rules.values())
            for graph in list(self.model.graphs()):
                self._graph(graph)
                for region in regions(graph):
                    self._through(region)

    def _graph(self, graph: ir.Graph) -> None:
        first: dict[tuple[ir.Value, str], ir.Value] = {}
        for cast in _casts(graph):
            if not _same_type(cast):
                self._shorten(cast)
            source, result = _ends(cast)
            if _same_type(cast):
                self._bypass(graph, cast, source, "same_type")
            elif folded := self._folded(cast):
                self._bypass(graph, cast, folded, "constant")
            elif (twin := first.setdefault((source, _signature(cast)), result)) is not result:
                self._bypass(graph, cast, twin, "duplicate")
        for cast in reversed(_casts(graph)):
            source, result = _ends(cast)
            for use in list(result.uses()):
                if has(use.node, Trait.SHAPE_ONLY) and source.dtype in KNOWN:
                    use.node.replace_input_with(use.idx, source)
                    self.rules["unread"] += 1
            if not result.uses() and not result.is_graph_output():
                graph.remove(cast, safe=True)
                self.rules["dead"] += 1

    def _new_cast(self, source: ir.Value, dtype: ir.DataType | None, like: ir.Node) -> ir.Value:
        """A Cast directly after its input, or before all nodes of its graph, with the attributes of another."""
        assert dtype is not None
        result = ir.Value(name=self.names.fresh(f"{source.name}_{dtype.name.lower()}"))
        result.type, result.shape = ir.TensorType(dtype), source.shape
        attributes = [*(a for a in like.attributes.values() if a.name != "to"), ir.AttrInt64("to", dtype.value)]
        cast = ir.Node("", "Cast", [source], attributes, outputs=[result], name=self.names.fresh(f"Cast_{result.name}"))
        insert_after(source, cast)
        return result

    # --- through data movement ----------------------------------------------------------------------------------------

    def _through(self, region: Region) -> None:
        """Let a region move values of the type that its readers want."""
        casts = [node for node, _ in region.exits if not has(node, Trait.SHAPE_ONLY)]
        targets = {_ends(cast)[1].dtype if is_op(cast, "Cast") else None for cast in casts}
        if len(targets) != 1 or any(value.is_graph_output() for value in region.results):
            return
        (t,) = targets
        if t not in _MOVED_TYPES:
            return
        rules, sources, feeding = set[str](), dict[ir.Value, ir.Node](), dict[ir.Node, None]()
        for _, _, value in region.entries:
            if (cast := producer_of(value, "Cast")) is not None:
                source = _ends(cast)[0]
                rule = self._chain_rule(source.dtype, value.dtype, t)
                feeding[cast] = None
                if source.dtype != t:
                    sources[source] = cast
            else:
                rule = "constant" if self._foldable(value, t) else None
            if rule is None:
                return
            rules.add(rule)
        inside = {(node, index) for node, index, _ in region.entries}
        freed = sum(self._only_read_by(_ends(cast)[1], inside) for cast in feeding)
        if len(casts) + freed <= len(sources):
            return
        recast = {source: self._new_cast(source, t, cast) for source, cast in sources.items()}
        for node, index, value in region.entries:
            if (cast := producer_of(value, "Cast")) is not None:
                source = _ends(cast)[0]
                node.replace_input_with(index, recast.get(source, source))
            else:
                node.replace_input_with(index, self._constant(value, t))
                _remove_unread_constant(value)
        for value in region.results:
            value.type = ir.TensorType(t)
        for cast in casts:
            assert cast.graph is not None
            self._bypass(cast.graph, cast, _ends(cast)[0], "moved_rounding" if "rounding" in rules else "moved")

    def _only_read_by(self, value: ir.Value, users: set[tuple[ir.Node, int]]) -> bool:
        return not value.is_graph_output() and all((use.node, use.idx) in users for use in value.uses())

    # --- one Cast after another ---------------------------------------------------------------------------------------

    def _shorten(self, cast: ir.Node) -> None:
        """Read from before the Casts that come first, as far as the rules allow."""
        while (inner := producer_of(_ends(cast)[0], "Cast")) is not None:
            rule = self._chain_rule(_ends(inner)[0].dtype, _ends(inner)[1].dtype, _ends(cast)[1].dtype)
            if rule is None:
                return
            cast.replace_input_with(0, _ends(inner)[0])
            self.rules[rule] += 1

    def _chain_rule(self, s: ir.DataType | None, m: ir.DataType | None, t: ir.DataType | None) -> str | None:
        rule = chain_rule(s, m, t)
        if rule is None or (rule == "rounding" and self.options.strict):
            return None
        return rule if s == t or _has_cast_kernel(s, t) else None

    # --- constants ----------------------------------------------------------------------------------------------------

    def _folded(self, cast: ir.Node) -> ir.Value | None:
        """The Cast of a constant as a new constant; None when it is none, or when the result is left to the runtime."""
        source, result = _ends(cast)
        if result.dtype is None or result.is_graph_output() or not self._foldable(source, result.dtype):
            return None
        return self._constant(source, result.dtype)

    def _foldable(self, value: ir.Value, dtype: ir.DataType) -> bool:
        tensor = None if value.is_graph_input() else ir.convenience.get_const_tensor(value)
        if tensor is None or self.model.ir_version < 4:
            return False
        limit = self.options.fold_max_bytes
        return (limit is None or tensor.nbytes <= limit) and has_cast(tensor, dtype)

    def _constant(self, source: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A constant in another type, beside the first one, made once however often it is asked for."""
        made = self.constants.get((source, dtype))
        if made is None or not made.is_initializer():  # never, or removed since because nothing read it
            tensor, home = ir.convenience.get_const_tensor(source), source.graph
            assert tensor is not None and isinstance(home, ir.Graph)
            name = self.names.fresh(f"{source.name}_{dtype.name.lower()}")
            value = ir.Value(name=name, type=ir.TensorType(dtype), shape=source.shape)
            value.const_value = cast_tensor(tensor, dtype, name)
            home.register_initializer(value)
            self.constants[source, dtype] = value
        return self.constants[source, dtype]

    # --- out of the graph ---------------------------------------------------------------------------------------------

    def _bypass(self, graph: ir.Graph, cast: ir.Node, replacement: ir.Value, rule: str) -> None:
        """Let everybody read `replacement` instead of a Cast's result, and remove the Cast.

        A Cast that writes a graph output stays where `replacement` cannot take over its name.
        """
        source, result = _ends(cast)
        if result.is_graph_output():
            producer = replacement.producer()
            if producer is None or producer.graph is not graph or replacement.is_graph_output():
                return
            name, result.name = result.name, None
            replacement.name, replacement.shape = name, result.shape or replacement.shape  # as the model states it
        result.replace_all_uses_with(replacement, replace_graph_outputs=True)
        graph.remove(cast, safe=True)
        _remove_unread_constant(source)
        self.rules[rule] += 1


def _has_cast_kernel(s: ir.DataType | None, t: ir.DataType | None) -> bool:
    """Whether runtimes cast from s to t: TensorRT casts UINT8 only from and to float32 and float16 (its DataType)."""
    return ir.DataType.UINT8 not in (s, t) or not {ir.DataType.FLOAT, ir.DataType.FLOAT16}.isdisjoint((s, t))


def _casts(graph: ir.Graph) -> list[ir.Node]:
    return [node for node in graph if is_op(node, "Cast")]


def _same_type(cast: ir.Node) -> bool:
    source, result = _ends(cast)
    return source.dtype is not None and source.dtype == result.dtype


def _ends(cast: ir.Node) -> tuple[ir.Value, ir.Value]:
    source = cast.inputs[0]
    assert source is not None  # Cast has no optional input
    return source, cast.outputs[0]


def _signature(cast: ir.Node) -> str:
    return " ".join(f"{name}={attribute.value}" for name, attribute in sorted(cast.attributes.items()))


def _remove_unread_constant(value: ir.Value) -> None:
    if value.uses() or value.is_graph_output() or value.is_graph_input():
        return
    producer = value.producer()
    if producer is not None and producer.op_type == "Constant" and producer.graph is not None:
        producer.graph.remove(producer, safe=True)
    elif value.is_initializer() and value.graph is not None and value.name is not None:
        value.graph.initializers.pop(value.name)
