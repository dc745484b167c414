"""Pins as an argument of `python -m pipeline`, quoted for the shell and for the configuration's override grammar.

An override of a list replaces the list, so what is in force is written again, before what is new. Two readers must get
through: the configuration's override grammar, in which a quoted text ends at its quote, and the shell, which takes away
one layer of quotes and reads $ and \\ in double ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence


def pins_argument(key: str, new: Sequence[str], pinned: Sequence[str] = ()) -> str:
    """'precision.<key>=["<pinned>", ..., "<new>", ...]', quoted for a POSIX shell, each entry once.

    Args:
        key: of the list, such as "node_block_list".
        new, pinned: entries; those in force come first.
    """
    entries = ",".join(_quoted(entry) for entry in dict.fromkeys([*pinned, *new]))
    return shlex.quote(f"precision.{key}=[{entries}]")


def entry_of(node: str) -> str:
    """Write the entry of node_block_list that matches a node's whole name."""
    return f"^{re.escape(node)}$"


def pins_flags(entries: Sequence[str]) -> str:
    """Write entries of node_block_list as flags of `truehalf convert`, quoted for a POSIX shell."""
    return " ".join(f"--node-block-list {shlex.quote(entry)}" for entry in entries)


def _quoted(entry: str) -> str:
    """Quote an entry with double quotes; backslashes stay, but before a quote and before what would be filled in."""
    return '"' + re.sub(r'(\\*)("|\$\{|$)', lambda found: found[1] * 2 + _ESCAPED[found[2]], entry) + '"'


_ESCAPED = {'"': '\\"', "${": "\\${", "": ""}
