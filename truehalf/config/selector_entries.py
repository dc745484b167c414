"""Syntax of the entries of block lists and include lists; truehalf.ir.selectors applies them to nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from truehalf.codes import coded


@dataclass(frozen=True)
class Chain:
    """Operator types, the selected one first; `forward`: each feeds the next, else each reads it."""

    op_types: tuple[str, ...]
    forward: bool


def parse_pattern(text: str) -> Chain:
    """Read an entry of a pattern list.

    Raises:
        ValueError: with an example of both forms.
    """
    for arrow in ("->", "<-"):
        op_types = tuple(part.strip() for part in text.split(arrow))
        if len(op_types) > 1 and all(re.fullmatch(r"[^\s<>]+", op_type) for op_type in op_types):
            return Chain(op_types, arrow == "->")
    raise ValueError("is no pattern; expected 'MatMul -> Softmax' or 'Add <- Conv'")


def problems_of_lists(section: Any) -> Iterator[str]:
    """Yield an error line for each entry of a section's block and include lists that cannot be read."""
    lists = {f"{kind}_{use}_list": kind for kind in ("op", "node", "scope", "pattern") for use in ("block", "include")}
    for name, kind in (lists | {"fp16_ops": "op"}).items():
        for i, entry in enumerate(getattr(section, name) or ()):
            if problem := problem_of(kind, entry):
                yield coded("bad-syntax", f"{name}[{i}]: {entry!r} {problem}")


def problem_of(kind: str, entry: str) -> str | None:
    """Return the reason why an entry cannot be read as an op, node, scope or pattern; None if it can."""
    if kind == "op" and not re.fullmatch(r"(?:[^\s:]+::)?[A-Za-z_]\w*", entry):
        return (
            "is no op type; expected a name such as Softmax, or com.acme::Op (regular expressions over node names go "
            "to node_block_list)"
        )
    if kind == "scope" and (re.search(r"[/\s]", entry) or not all(entry.split(".")) or not entry.strip("*.")):
        return "is no module scope; expected a dotted path such as decoder.layers.*.cross_attn"
    if kind == "node" and not entry.strip():
        return "would match every node; expected a regular expression over node names"
    try:
        if kind == "node":
            re.compile(entry)
        elif kind == "pattern":
            parse_pattern(entry)
    except re.error as error:
        return f"is no regular expression: {error}"
    except ValueError as error:
        return str(error)
    return None
