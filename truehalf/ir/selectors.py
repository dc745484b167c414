"""Selectors of nodes. An entry stands in a list, and the list says how it is read:

    op       Softmax, com.acme::Op            the operator type, in any domain or in the one named
    node     ^/decoder/.*MatMul               a regular expression, found anywhere in the node's name
    scope    decoder.layers.*.cross_attn      a module and everything inside it
    pattern  MatMul -> Softmax                neighbours in the graph (truehalf.ir.patterns)

A node's scope is the dotted path of the module that it was exported from. The dynamo exporter writes it into the node's
metadata; else it is the name without its last part: `/decoder/layers.0/cross_attn/MatMul` lies in
`decoder.layers.0.cross_attn`. A scope selector may begin at any component, so that `layers.0` is found in every module
that has layers. `*` stands for one component (or for a part of one), `**` for any number of them.

The same lists serve for blocking (op_block_list, ...) and for including (op_include_list, ...).
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.config.selector_entries import parse_pattern
from truehalf.ir.facts import all_nodes
from truehalf.ir.patterns import Neighbours, is_named

_OF_OPERATORS = ("op_block_list", "op_include_list", "fp16_ops")
NAME_SCOPES = "pkg.torch.onnx.name_scopes"  # of a node: ['', 'decoder', 'decoder.layers.0', <name of the call>]


@dataclass(frozen=True)
class Lists:
    """Entries by the kind of list that they stand in."""

    op: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    pattern: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selector:
    """One entry of a list.

    Attributes:
        list_name: the configuration key that it stands in, such as op_block_list.
        text: the entry.
    """

    list_name: str
    text: str

    @property
    def kind(self) -> str:
        """op, node, scope or pattern."""
        return self.list_name.split("_")[0]

    def __str__(self) -> str:
        return f"{self.list_name}: {self.text}"


@dataclass
class Selection:
    """Nodes with the first selector that matched each, and the selectors that matched none (a typo, perhaps)."""

    nodes: dict[ir.Node, Selector] = field(default_factory=dict)
    unmatched: list[Selector] = field(default_factory=list)


def selectors(block: Lists, include: Lists) -> tuple[list[Selector], list[Selector]]:
    """The entries of the block lists and of the include lists, whose syntax truehalf.config.selector_entries checks."""
    return _entries(block, "block"), _entries(include, "include")


def select(model: ir.Model, wanted: Iterable[Selector]) -> Selection:
    """Apply selectors to every node of a model; each is tried on all of them, so that `unmatched` is true."""
    selection, nodes, graph = Selection(), list(all_nodes(model)), Neighbours(model)
    scopes: dict[ir.Node, str] = {}
    for selector in wanted:
        if selector.kind == "scope" and not scopes:
            scopes = {node: scope_of(node) for node in nodes}
        matched = _matched(selector, nodes, scopes, graph)
        for node in matched:
            selection.nodes.setdefault(node, selector)
        if not matched:
            selection.unmatched.append(selector)
    return selection


def scope_of(node: ir.Node) -> str:
    """Dotted path of the module that a node was exported from; "" where nothing is known."""
    written = node.metadata_props.get(NAME_SCOPES)
    if written is not None:
        try:
            scopes = ast.literal_eval(written)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            scopes = None
        if isinstance(scopes, list) and len(scopes) > 1:
            return str(scopes[-2])
    return ".".join(part for part in (node.name or "").split("/")[:-1] if part)


def unmatched_message(selector: Selector, model: ir.Model) -> str:
    """One line: which entry matched nothing, and the operator types that are close to it."""
    known = {node.op_type for node in all_nodes(model)} if selector.list_name in _OF_OPERATORS else set[str]()
    near = difflib.get_close_matches(selector.text.split("::")[-1], sorted(known))
    return f"{selector} matches no node" + (f" (the model has {', '.join(near)})" if near else "")


def _matched(
    selector: Selector, nodes: list[ir.Node], scopes: dict[ir.Node, str], graph: Neighbours
) -> Iterable[ir.Node]:
    match selector.kind:
        case "op":
            return [node for node in nodes if is_named(node, selector.text)]
        case "node":
            name = re.compile(selector.text)
            return [node for node in nodes if name.search(node.name or "")]
        case "scope":
            scope = _scope_expression(selector.text)
            return [node for node in nodes if scope.search(scopes[node])]
        case _:
            return graph.select(parse_pattern(selector.text))


def _scope_expression(text: str) -> re.Pattern[str]:
    """`a.*.b` -> (start or dot) a . one component . b (dot or end)."""
    written = ""
    for component in text.split("."):
        if component == "**":
            written += r"(?:\.[^.]+)*" if written else ""
        else:
            exact = "[^.]+" if component == "*" else "[^.]*".join(re.escape(part) for part in component.split("*"))
            written += (r"\." if written else "") + exact
    return re.compile(rf"(?:^|\.){written}(?:\.|$)")


def _entries(lists: Lists, use: str) -> list[Selector]:
    kinds = {"op": lists.op, "node": lists.node, "scope": lists.scope, "pattern": lists.pattern}
    return [Selector(f"{kind}_{use}_list", text) for kind, texts in kinds.items() for text in texts]
