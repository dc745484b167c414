"""Syntax of the entries of block lists and include lists; truehalf.ir.selectors has their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truehalf.codes import coded


def problems_of_lists(owner: str, section: Any) -> Iterator[str]:
    """A line for each entry that cannot be read.

    Args:
        owner: dotted path of the section, for the lines.
        section: has lists called op_block_list, scope_include_list, ..., not necessarily all of them.
    """
    for kind, problem_of in _PROBLEMS.items():
        names = [f"{kind}_block_list", f"{kind}_include_list", *(["fp16_ops"] if kind == "op" else [])]
        for name in names:
            for i, entry in enumerate(getattr(section, name, None) or []):
                if found := problem_of(entry):
                    yield coded("bad-syntax", f"{owner}.{name}[{i}]: {entry!r} {found}")


def problem_of_op(entry: str) -> str | None:
    """What is wrong with an operator type, Op or domain::Op; None: nothing."""
    if re.fullmatch(r"(?:[^\s:]+::)?[A-Za-z_]\w*", entry):
        return None
    return (
        "is no op type; expected a name such as Softmax, or com.acme::Op (regular expressions over node names go to "
        "node_block_list)"
    )


def problem_of_node(entry: str) -> str | None:
    """What is wrong with a regular expression over node names; None: nothing."""
    try:
        re.compile(entry)
    except re.error as error:
        return f"is no regular expression: {error}"
    return None if entry.strip() else "would match every node; expected a regular expression over node names"


def _problem_of_scope(entry: str) -> str | None:
    if re.search(r"[/\s]", entry) or not all(entry.split(".")) or not entry.strip("*."):
        return "is no module scope; expected a dotted path such as decoder.layers.*.cross_attn"
    return None


def _problem_of_pattern(entry: str) -> str | None:
    chain = r"\s*[^\s<>-]+(?:\s*(?:{0}\s*[^\s<>-]+\s*)+)"
    chains = (chain.format("->"), chain.format("<-"))
    position = r"\s*(?:outputs|inputs)\s*:\s*[1-9]\d*\s*"
    if any(re.fullmatch(expected, entry) for expected in (*chains, position)):
        return None
    return "is no pattern; expected 'MatMul -> Softmax', 'Add <- Conv' or a position such as outputs:2"


_PROBLEMS = {"op": problem_of_op, "node": problem_of_node, "scope": _problem_of_scope, "pattern": _problem_of_pattern}
