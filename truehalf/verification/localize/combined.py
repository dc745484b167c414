"""Selectors against several suspects at once.

Where rounding is at fault, a suspect's node is pinned; with a TopK or ArgMax what makes its input, as of a tensor that
float16 holds it chooses as before. A value beyond FP16's range does not end at the node that
computes it: what reads it has to be FP32, too, up to where it is small again. So then the module is pinned that holds
the node and what reads it, by the beginning of its nodes' names, unless that is much of the graph: then the node and
what reads it, by their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import onnx_ir as ir

from truehalf.ir.facts import name_of
from truehalf.ir.ops import Trait, has
from truehalf.verification.localize.both_files import BothFiles, with_makers
from truehalf.verification.localize.suspects import Suspect
from truehalf.verification.pinning.as_argument import entry_of

_MOST = 0.1  # of the graph's nodes that a module may have


def combined_selectors(suspects: Sequence[Suspect], files: BothFiles) -> str:
    """Format the options that keep all suspects in FP32, quoted for the command line; empty without suspects."""
    nodes = {name_of(node): node for node in files.reference.graph}
    entries = []
    for each in suspects:
        name = each.node.replace(" -> ", "_")  # of one without a name, as the conversion calls it
        if name not in nodes:
            entries.append(entry_of(name))
        elif each.cause != "nonfinite":
            entries += [entry_of(name_of(node)) for node in with_makers(nodes[name])]
        elif module := _module(nodes[name], list(nodes)):
            entries.append(f"^{re.escape(module)}")
        else:
            entries += [entry_of(name_of(node)) for node in _with_readers(nodes[name])]
    kept = [one for one in entries if not any(one != other and one.startswith(other) for other in entries)]
    return files.selector_of(kept) if kept else ""


def _with_readers(node: ir.Node) -> list[ir.Node]:
    """A node and what reads its values, also behind nodes that only move them."""
    found = [node]
    for each in found:
        if each is node or has(each, Trait.PERMUTES):
            readers = (reader for output in each.outputs for reader in output.consumers())
            found += [reader for reader in dict.fromkeys(readers) if reader not in found]
    return found


def _module(node: ir.Node, names: Sequence[str]) -> str:
    """The beginning of the names of a node and of what reads it, up to a "/"; empty where they have too little in
    common.
    """
    together = [node, *(reader for output in node.outputs for reader in output.consumers())]
    levels = zip(*(name_of(each).split("/")[:-1] for each in together), strict=False)
    start = "".join(f"{level[0]}/" for level in takewhile(lambda level: len(set(level)) == 1, levels))
    inside = sum(name.startswith(start) for name in names)
    return start if start.strip("/") and inside <= _MOST * len(names) else ""
