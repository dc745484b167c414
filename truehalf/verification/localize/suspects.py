"""Nodes that may cause a failure, with all that is known of them, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from truehalf.float16 import MAX, NORMAL_MIN
from truehalf.ir.facts import is_op, label_of
from truehalf.ir.ops import MOVES
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import WRONG, LocalError


@dataclass(frozen=True)
class Suspect:
    """A node that may cause a failure.

    Attributes:
        node: its name in the candidate, or "OpType -> <first output>" where it has none.
        op_type, scope: its operator, the module that it was exported from.
        tensor: its output; of a NaN or Inf the tensor in which it arises.
        cause: "nonfinite" or "error".
        local_error: relative error of its output when it reads the reference's tensors
            (truehalf.verification.localize.node_errors); None where that is not finite.
        effect: relative RMS error of the outputs (the worst one) when only this node is as the candidate has it; None
            where that is not finite.
        inputs_absmax, output_absmax: largest |x| of what it reads and writes in the reference.
        rule: the rule that let it into FP16 (or kept it out), where decisions are given.
        selector: what keeps it FP32, beside the entries in force, quoted for the command line; empty where that would
            change nothing, as the node only moves data.
        explained: whether rounding explains its error: it is small, or a choice between near ties.
        sentence: all that in words.
    """

    node: str
    op_type: str
    tensor: str
    scope: str
    cause: str
    local_error: float | None
    effect: float | None
    inputs_absmax: float | None
    output_absmax: float
    rule: str | None
    selector: str
    explained: bool
    sentence: str


def suspect_of(
    node: ir.Node, error: LocalError, effect: float, absmax: Mapping[str, float], files: BothFiles
) -> Suspect:
    """The suspect that a node is which computes something else than the reference from the same tensors.

    Args:
        error: of the output with the largest.
        effect: see Suspect; Inf where the outputs are not finite.
        absmax: largest |t| of the reference by candidate tensor.
    """
    broken = not np.isfinite(error.relative)
    if broken:
        node = files.blamed(error.origin) or node
    read = [absmax[name] for name in files.read_by(error.pair)]
    moves = only_moves(node) and NORMAL_MIN <= error.absmax <= MAX  # outside, FP16 does not hold what it moves
    suspect = Suspect(
        node=label_of(node),
        op_type=node.op_type,
        tensor=error.origin,
        scope=files.scope(node),
        cause="nonfinite" if broken else "error",
        local_error=None if broken else error.relative,
        effect=effect if np.isfinite(effect) else None,
        inputs_absmax=max(read, default=None),
        output_absmax=error.absmax,
        rule=None,
        selector="" if moves else files.selector(node),
        explained=error.relative < WRONG or error.is_choice,
        sentence="",
    )
    sentence = _nonfinite(suspect, error, files.pessimistic) if broken else _wrong(suspect, moves)
    row = files.decision(node)
    if row is None:
        return replace(suspect, sentence=sentence)
    why = f"it runs in {str(row['precision']).upper()}: {row['reason']}"
    return replace(suspect, rule=row["rule"], sentence=f"{sentence}; {why}")


def only_moves(node: ir.Node) -> bool:
    """Whether a node only moves values (Pad, Reshape, Slice, Concat): no precision is at fault there."""
    return is_op(node, *MOVES) and "reduction" not in node.attributes


def summary(suspects: Sequence[Suspect], looked_at: str) -> str:
    """The first suspect in words."""
    return f"on {looked_at} " + (suspects[0].sentence if suspects else "no node computes anything else")


def or_inf(number: float | None) -> float:
    """Of a Suspect's numbers, where None stands for what is not finite."""
    return float("inf") if number is None else number


def _wrong(suspect: Suspect, moves: bool) -> str:
    effect = suspect.effect
    moved = "makes the outputs NaN or Inf" if effect is None else f"changes the outputs by {_share(effect)}"
    share = f"has a relative error of {_share(or_inf(suspect.local_error))} by itself"
    sentence = f"{suspect.op_type} {suspect.node!r}, fed with the reference's tensors, {share} and {moved}"
    if moves:
        sentence += "; it only moves data, which FP16 does not change: it is not what the reference's node is"
    return sentence


def _nonfinite(suspect: Suspect, error: LocalError, pessimistic: bool) -> str:
    what = f"node {suspect.node!r} ({suspect.op_type})"
    if pessimistic and suspect.output_absmax <= MAX:
        what = f"a sum inside {what}"
    counts = f"{error.nan} NaN and {error.inf} Inf"
    sentence = f"the first non-finite values are those of {what}, tensor {suspect.tensor!r}: {counts}"
    if suspect.output_absmax > MAX:
        return f"{sentence}; |x| is {suspect.output_absmax:.3g} there, above FP16's largest, {MAX:g}"
    if suspect.inputs_absmax is not None:
        sentence += f"; the largest |x| it reads is {suspect.inputs_absmax:.3g}, FP16's largest {MAX:g}"
    return sentence


def _share(number: float) -> str:
    return f"{100 * number:{'.0f' if 0.1 <= number < 1000 else '.2g'}} %"
