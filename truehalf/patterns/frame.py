"""Patterns, the places where they are found, and the model in which they are looked for."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import onnx_ir as ir

from truehalf.ir.facts import all_nodes, is_op, name_of
from truehalf.ir.ops import Trait, has, with_trait
from truehalf.ir.selectors import scope_of
from truehalf.json_values import JsonObject
from truehalf.patterns.origins import Values, constant

SEVERITIES = ("error", "warning", "info")  # will not build; known to be wrong or slow; worth knowing
BUILT, REFUSED, NO_NONZERO = "built", "refused", "refused, as it has no NonZero"
MOVES = with_trait(Trait.LAYOUT) | {"Cast"}  # operators that patterns look through
_INSTEAD = "Instead: "
Version = tuple[int, int]  # of TensorRT: major, minor


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        rule: id of the pattern, such as "grid-sample".
        severity: "error" (will not build), "warning" (known to be wrong or slow) or "info".
        node: name of the node, of the graph input or output, or of the initializer.
        op_type: of the node; "" where there is none.
        scope: dotted path of the module that the node was exported from.
        message: why it is a finding.
        remedy: what to write instead.
        link: the command that explains the rule.
        count: places that this finding stands for.
    """

    rule: str
    severity: str
    node: str
    op_type: str
    scope: str
    message: str
    remedy: str
    link: str
    count: int = 1

    def as_dict(self) -> JsonObject:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Match:
    """A place where a pattern was found; "" stands for the pattern's own message, remedy or severity.

    Attributes:
        node: None for the model, or for an input or output of it.
        name: of that input or output.
        count: places that it stands for.
    """

    node: ir.Node | None
    message: str = ""
    remedy: str = ""
    severity: str = ""
    name: str = ""
    count: int = 1


class Pattern:
    """A subgraph that TensorRT refuses, computes wrongly or runs slowly.

    The docstring of a subclass is its documentation, in Markdown: a title, a paragraph that is the message of its
    findings, a paragraph "Instead: " that is their remedy, and then examples, and where it is known from.

    Attributes:
        id: stable, for `lint.ignore` and scripts.
        severity: of a match that has none of its own.
        compiled: what TensorRT for RTX 1.7 does with it (tests/truehalf/patterns/test_compiled.py); "": errors are
            refused, and nothing else is.
        repair: the pass of repair that fixes it; "": none does.
        is_of_folded: whether it is looked for once constants are folded; else before.
        op_types: operators of the default domain that `holds` is asked of, where a pattern has no `find` of its own.
    """

    id = message = remedy = compiled = repair = title = explanation = ""
    severity = "warning"
    is_of_folded = True
    op_types: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        text = inspect.cleandoc(cls.__doc__ or "")
        cls.title, cls.message, *others = (" ".join(part.split()) for part in text.split("\n\n"))
        cls.remedy = next((part.removeprefix(_INSTEAD) for part in others if part.startswith(_INSTEAD)), "")
        cls.compiled = cls.compiled or (REFUSED if cls.severity == "error" else BUILT)
        cls.explanation = (
            f"{cls.severity}: {cls.title}. TensorRT for RTX 1.7: {cls.compiled}.{text.removeprefix(cls.title)}"
        )

    def find(self, subject: Subject) -> Iterator[Match]:
        """Yield the places where a model has the pattern, in order."""
        return (Match(node) for node in subject.of_type(*self.op_types) if self.holds(node, subject))

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        """Return True if a node of `op_types` has the pattern."""
        return True

    def finding(self, match: Match) -> Finding:
        """Describe a match for users."""
        node = match.node
        where = (match.name, "", "") if node is None else (name_of(node), node.op_type, scope_of(node))
        message, remedy = match.message or self.message, match.remedy or self.remedy
        link = link_to(self.id)
        return Finding(self.id, match.severity or self.severity, *where, message, remedy, link, match.count)


def link_to(rule: str) -> str:
    """Name the command that prints the documentation of a rule."""
    return f"truehalf lint --explain {rule}"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model with the facts that patterns ask for.

    Attributes:
        model: sorted, typed as far as it is known, its functions inlined; read only.
        versions: of TensorRT, that are to build it.
        plugin_ops: operator types that plugins bring along.
        expected_inputs: names of the inputs that the model was exported with.
        is_stated: whether the user named the version that is to build it.
    """

    model: ir.Model
    versions: Sequence[Version] = ()
    plugin_ops: Collection[str] = ()
    expected_inputs: Sequence[str] = ()
    is_stated: bool = False

    @cached_property
    def values(self) -> Values:
        """Origins and sizes."""
        return Values(self.model.graph)

    @cached_property
    def nodes(self) -> list[ir.Node]:
        """Nodes of the graph and of its subgraphs, in order."""
        return list(all_nodes(self.model))

    @cached_property
    def outputs(self) -> frozenset[ir.Value]:
        """Outputs of the graph and of its subgraphs."""
        return frozenset(value for graph in self.model.graphs() for value in graph.outputs)

    def with_trait(self, traits: Trait) -> Iterator[ir.Node]:
        """Yield nodes whose operators have one of these traits."""
        return (node for node in self.nodes if has(node, traits))

    def of_type(self, *op_types: str) -> Iterator[ir.Node]:
        """Yield nodes of the default domain with one of these operator types."""
        wanted = frozenset(op_types)
        return (node for node in self.nodes if node.op_type in wanted and node.domain == "")


def moved_from(value: ir.Value | None, moves: Collection[str] = MOVES) -> ir.Node | None:
    """Find the node whose result reaches a value through operators that only move it."""
    node = value.producer() if value is not None else None
    while node is not None and is_op(node, *moves) and node.inputs and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def scalar(value: ir.Value | None) -> float | None:
    """Read the number of a constant of one element."""
    tensor = constant(value)
    if tensor is None or tensor.size != 1 or tensor.dtype == ir.DataType.STRING:
        return None
    return float(tensor.numpy().ravel()[0])
