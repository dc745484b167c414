"""Rules of the linter, and the subject that they check."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from truehalf.ir.facts import all_nodes, fed_inputs, is_op, lengths_of, name_of
from truehalf.ir.ops import Trait, has, with_trait
from truehalf.ir.selectors import scope_of
from truehalf.linting.finding import Finding, link_to
from truehalf.linting.sizes import constant
from truehalf.linting.values import Values

BUILT, REFUSED, NO_NONZERO = "built", "refused", "refused, as it has no NonZero"
Version = tuple[int, int]  # of TensorRT: major, minor
MOVES = with_trait(Trait.LAYOUT) | {"Cast"}  # what a rule looks through


class Rule:
    """A rule: a class of its own, never made. The first line of its docstring says what a finding is, the rest of it in
    Markdown when there is one, why, and what to write instead.

    Attributes:
        id: stable, for `lint.ignore` and scripts.
        severity: what its findings have, unless the rule knows better of a node.
        source: where it is known from.
        compiled: what TensorRT for RTX 1.7 does with it (tests/truehalf/linting/test_compiled.py); "": not asked.
        title: the first line, for lists of rules.
        explanation: what the documentation says of the rule, in Markdown.
    """

    id = source = title = explanation = ""
    severity, compiled = "warning", BUILT

    def __init_subclass__(cls) -> None:
        cls.title, _, doc = inspect.cleandoc(cls.__doc__ or "").partition("\n")
        compiled = f" TensorRT for RTX 1.7: {cls.compiled}." if cls.compiled else ""
        cls.explanation = f"{cls.severity}: {cls.title}.{compiled}\n\n{doc.strip()}"

    @classmethod
    def at(
        cls, node: ir.Node, message: str, remedy: str, severity: str | None = None, count: int = 1
    ) -> LocatedFinding:
        """A finding at a node."""
        severity, where = severity or cls.severity, (name_of(node), node.op_type, scope_of(node))
        return LocatedFinding(node, Finding(cls.id, severity, *where, message, remedy, link_to(cls.id), count=count))

    @classmethod
    def of(
        cls, name: str, message: str, remedy: str, severity: str | None = None, *, last: bool = False
    ) -> LocatedFinding:
        """A finding of the model, or of an input or output of it; `last`: after those at nodes."""
        finding = Finding(cls.id, severity or cls.severity, name, "", "", message, remedy, link_to(cls.id))
        return LocatedFinding(None, finding, last)


class LocatedFinding(NamedTuple):
    """A finding, and where in the graph it belongs."""

    node: ir.Node | None
    finding: Finding
    last: bool = False


class Subject:
    """A model with what rules ask of it.

    Attributes:
        model: typed as far as it is known, its functions inlined; read only.
        nodes: those of the graph and its subgraphs, in order.
        values: origins and sizes.
        versions: of TensorRT, that are to build it.
        plugin_ops: operator types that plugins bring along.
        expected_inputs: names of the inputs that the model was exported with.
    """

    def __init__(
        self,
        model: ir.Model,
        versions: Sequence[Version],
        plugin_ops: Collection[str] = (),
        expected_inputs: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.versions = tuple(versions)
        self.plugin_ops = frozenset(plugin_ops)
        self.expected_inputs = tuple(expected_inputs)
        self.values = Values(model.graph)
        self.nodes = list(all_nodes(model))

    @cached_property
    def opset(self) -> int:
        return self.model.graph.opset_imports.get("", 0)

    @cached_property
    def varying(self) -> list[str]:
        """Inputs that vary in more than their first axis."""
        return [value.name or "" for value in fed_inputs(self.model) if None in (lengths_of(value) or [])[1:]]

    @cached_property
    def outputs(self) -> frozenset[ir.Value]:
        """Outputs of the graph and of its subgraphs."""
        return frozenset(value for graph in self.model.graphs() for value in graph.outputs)

    def with_trait(self, traits: Trait) -> Iterator[ir.Node]:
        """Nodes whose operators have one of these traits."""
        return (node for node in self.nodes if has(node, traits))

    def of_type(self, *op_types: str) -> Iterator[ir.Node]:
        """Nodes of the default domain with one of these operator types."""
        wanted = frozenset(op_types)
        return (node for node in self.nodes if node.op_type in wanted and node.domain == "")


Check = Callable[[Subject], Iterator[LocatedFinding]]


def upstream(value: ir.Value | None, moves: Collection[str]) -> ir.Node | None:
    """The node whose result reaches a value through operators that only move it."""
    node = value.producer() if value is not None else None
    while node is not None and is_op(node, *moves) and node.inputs and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def scalar(value: ir.Value | None) -> float | None:
    """The one number of a constant."""
    tensor = constant(value)
    if tensor is None or tensor.size != 1 or tensor.dtype == ir.DataType.STRING:
        return None
    return float(tensor.numpy().ravel()[0])


def rank(value: ir.Value) -> int | None:
    return len(value.shape) if value.shape is not None else None
