"""Nodes that may cause a failure, with all that is known of them in words, and what keeps them FP32."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import onnx_ir as ir

from truehalf.float16 import MAX, NORMAL_MIN
from truehalf.ir.facts import is_op, label_of, name_of
from truehalf.ir.ops import MOVES, Trait, has
from truehalf.verification.localize.both_files import BothFiles, with_makers
from truehalf.verification.localize.node_errors import WRONG, LocalError
from truehalf.verification.pinning.as_argument import entry_of

_FELT = 0.005  # effect that rounding does not explain
_LARGEST_MODULE = 0.1  # of the graph's nodes, to be pinned as a whole


@dataclass(frozen=True)
class Suspect:
    """A node that may cause a failure.

    Attributes:
        node: its name in the candidate, or "OpType -> <first output>" where it has none.
        op_type: its operator.
        tensor: its output.
        cause: "nonfinite" or "error".
        local_error: relative error of its output when it reads the reference's tensors
            (truehalf.verification.localize.node_errors); None where that is not finite.
        effect: relative RMS error of the outputs (the worst one) when only this node is as the candidate has it; None
            where that is not finite.
        output_absmax: largest |x| that it writes in the reference.
        selector: what keeps it FP32, beside the entries in force, quoted for the command line; empty where that would
            change nothing, as the node only moves data.
        explained: whether rounding explains its error.
        sentence: all that in words.
    """

    node: str
    op_type: str
    tensor: str
    cause: str
    local_error: float | None
    effect: float | None
    output_absmax: float
    selector: str
    explained: bool
    sentence: str

    @property
    def moves_outputs(self) -> float:
        """The effect, Inf where it is not finite."""
        return math.inf if self.effect is None else self.effect

    @property
    def is_wrong(self) -> bool:
        """Beyond what rounding explains, in its output and in those of the graph."""
        return not self.explained and self.moves_outputs >= _FELT


def suspect_of(
    node: ir.Node, error: LocalError, effect: float, absmax: Mapping[str, float], files: BothFiles
) -> Suspect:
    """The suspect that a node is which computes something else than the reference from the same tensors.

    Args:
        error: of the output with the largest.
        effect: see Suspect; Inf where the outputs are not finite.
        absmax: largest |t| of the reference by candidate tensor.
    """
    is_broken = math.isinf(error.relative)
    if is_broken:
        node = files.blamed(error.origin) or node
    moves = only_moves(node) and NORMAL_MIN <= error.absmax <= MAX  # outside, FP16 does not hold what it moves
    if is_broken:
        read = max((absmax[pair.candidate] for pair in files.operands(error.pair)), default=None)
        sentence = _of_nonfinite(node, error, read, files.pessimistic)
    else:
        sentence = _of_error(node, error, effect, moves)
    if (row := files.decision(node)) is not None:
        sentence += f"; it runs in {str(row['precision']).upper()}: {row['reason']}"
    return Suspect(
        node=label_of(node),
        op_type=node.op_type,
        tensor=error.origin or error.pair.candidate,
        cause="nonfinite" if is_broken else "error",
        local_error=None if is_broken else error.relative,
        effect=effect if math.isfinite(effect) else None,
        output_absmax=error.absmax,
        selector="" if moves else files.selector(node),
        explained=error.relative < WRONG,
        sentence=sentence,
    )


def only_moves(node: ir.Node) -> bool:
    """Whether a node only moves values (Pad, Reshape, Slice, Concat): no precision is at fault there."""
    return is_op(node, *MOVES) and "reduction" not in node.attributes


def _of_error(node: ir.Node, error: LocalError, effect: float, moves: bool) -> str:
    moved = f"changes the outputs by {_share(effect)}" if math.isfinite(effect) else "makes the outputs NaN or Inf"
    share = f"has a relative error of {_share(error.relative)} by itself"
    sentence = f"{node.op_type} {label_of(node)!r}, fed with the reference's tensors, {share} and {moved}"
    if moves:
        sentence += "; it only moves data, which FP16 does not change: it is not what the reference's node is"
    return sentence


def _of_nonfinite(node: ir.Node, error: LocalError, read: float | None, pessimistic: bool) -> str:
    what = f"node {label_of(node)!r} ({node.op_type})"
    if pessimistic and error.absmax <= MAX:
        what = f"a sum inside {what}"
    counts = f"{error.nan} NaN and {error.inf} Inf"
    sentence = f"the first non-finite values are those of {what}, tensor {error.origin!r}: {counts}"
    if error.absmax > MAX:
        return f"{sentence}; |x| is {error.absmax:.3g} there, above FP16's largest, {MAX:g}"
    return sentence if read is None else f"{sentence}; the largest |x| it reads is {read:.3g}, FP16's largest {MAX:g}"


def _share(number: float) -> str:
    return f"{100 * number:{'.0f' if 0.1 <= number < 1000 else '.2g'}} %"


# --- what keeps them FP32 ---------------------------------------------------------------------------------------------


def pins_of(suspects: Sequence[Suspect], files: BothFiles) -> list[str]:
    """List the entries of node_block_list that keep all suspects in FP32.

    A node that rounds is pinned by its name. A value beyond FP16's range does not end at the node that computes it:
    what reads it has to be FP32, too. So then the module is pinned that holds the node and what reads it, unless that
    is much of the graph: then the node and what reads it, by their names.
    """
    nodes = {name_of(node): node for node in files.reference.graph}
    entries = []
    for each in suspects:
        name = each.node.replace(" -> ", "_")  # of one without a name, as the conversion calls it
        if name not in nodes:
            entries.append(entry_of(name))
        elif each.cause == "nonfinite":
            entries += _with_readers(nodes[name], nodes)
        else:
            entries += [entry_of(name_of(node)) for node in with_makers(nodes[name])]
    return [one for one in entries if not any(one != other and one.startswith(other) for other in entries)]


def _with_readers(node: ir.Node, names: Collection[str]) -> list[str]:
    """Entries for a node and what reads its values: the beginning of their names up to a "/", else their names, those
    behind nodes that only move the values, too.
    """
    readers = [reader for output in node.outputs for reader in output.consumers()]
    levels = zip(*(name_of(each).split("/")[:-1] for each in [node, *readers]), strict=False)
    module = "".join(f"{level[0]}/" for level in takewhile(lambda level: len(set(level)) == 1, levels))
    if module.strip("/") and sum(name.startswith(module) for name in names) <= _LARGEST_MODULE * len(names):
        return [f"^{re.escape(module)}"]
    found = [node]
    for each in found:
        if each is node or has(each, Trait.PERMUTES):
            following = (reader for output in each.outputs for reader in output.consumers())
            found += [reader for reader in dict.fromkeys(following) if reader not in found]
    return [entry_of(name_of(each)) for each in found]
