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
    """The entry of node_block_list that matches a node's whole name."""
    return f"^{re.escape(node)}$"


def node_argument(node: str, pinned: Sequence[str] = ()) -> str:
    """What pins a node beside `pinned`; empty for a node without a name."""
    if not node or " -> " in node:
        return ""
    return pins_argument("node_block_list", [entry_of(node)], pinned)


def pins_flags(arguments: str) -> str:
    """The same pins as flags of `truehalf convert`, quoted for a POSIX shell.

    Args:
        arguments: of `python -m pipeline`, as `pins_argument` writes them; none or more.
    """
    flags = []
    for argument in shlex.split(arguments):
        key, value = argument.removeprefix("precision.").split("=", 1)
        entries = [_unquoted(entry) for entry in _ENTRY.findall(value)] if value.startswith("[") else ["all"]
        flags += [f"--{key.replace('_', '-')} {shlex.quote(entry)}" for entry in entries]
    return " ".join(flags)


def _quoted(entry: str) -> str:
    """In double quotes; backslashes speak for themselves, but before a quote and before what would be filled in."""
    return '"' + re.sub(r'(\\*)("|\$\{|$)', lambda found: found[1] * 2 + _ESCAPED[found[2]], entry) + '"'


def _unquoted(text: str) -> str:
    """The entry that `_quoted` writes as this, without its double quotes."""
    return re.sub(r'(\\*)(\\"|\\\$\{|$)', lambda found: found[1][::2] + found[2].removeprefix("\\"), text)


_ENTRY = re.compile(r'"((?:\\.|[^"\\])*)"')
_ESCAPED = {'"': '\\"', "${": "\\${", "": ""}
