"""Which nodes are meant: by operator type (equal) or by node name (regular expression, found anywhere in the name)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from stages.io import StageError


@dataclass(frozen=True)
class Selector:
    """One entry of a list.

    Attributes:
        list_name: the configuration key that it stands in: op_block_list or node_block_list.
        text: an operator type, or a regular expression.
    """

    list_name: str
    text: str

    def matches(self, node: ir.Node) -> bool:
        if self.list_name == "op_block_list":
            return node.op_type == self.text
        return re.search(self.text, node.name or "") is not None

    def __str__(self) -> str:
        return f"{self.list_name}: {self.text}"


@dataclass
class Selection:
    """Nodes with the first selector that matched each, and the selectors that matched none (a typo, perhaps)."""

    nodes: dict[ir.Node, Selector] = field(default_factory=dict)
    unmatched: list[Selector] = field(default_factory=list)


def selectors(op_block_list: Iterable[str], node_block_list: Iterable[str]) -> list[Selector]:
    """The entries of both lists.

    Raises:
        StageError: listing every entry of node_block_list that is no regular expression.
    """
    node_patterns = list(node_block_list)
    faults = [fault for pattern in node_patterns if (fault := _fault(pattern))]
    if faults:
        raise StageError("node_block_list: expected regular expressions, got " + "; ".join(faults))
    return [
        *[Selector("op_block_list", op_type) for op_type in op_block_list],
        *[Selector("node_block_list", pattern) for pattern in node_patterns],
    ]


def select(nodes: Iterable[ir.Node], wanted: Iterable[Selector]) -> Selection:
    """Apply selectors to nodes; each selector is tried on each node, so that `unmatched` is true of all of them."""
    selection, nodes = Selection(), list(nodes)
    for selector in wanted:
        matched = [node for node in nodes if selector.matches(node)]
        for node in matched:
            selection.nodes.setdefault(node, selector)
        if not matched:
            selection.unmatched.append(selector)
    return selection


def _fault(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{pattern!r} ({error})"
    return None
