"""Nodes that may cause a failure, with all that is known of them, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.float16 import MAX, NORMAL_MIN
from truehalf.ir.facts import is_op, label_of
from truehalf.ir.ops import MOVES
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.first_nonfinite import Nonfinite
from truehalf.verification.localize.local_errors import LocalErrors, finite


@dataclass(frozen=True)
class Suspect:
    """A node that may cause a failure.

    Attributes:
        node: its name in the candidate, or "OpType -> <first output>" where it has none.
        op_type, tensor, scope: its operator, its output, the module that it was exported from.
        cause: "nonfinite" or "error".
        local_error: relative error of its output when it reads the reference's tensors
            (truehalf.verification.localize.node_errors); None where that is not finite or unknown.
        error: the same in the candidate's run.
        effect: relative RMS error of the outputs (the worst one) when only this node is as the candidate has it; None
            where that is not finite, or was not asked for.
        inputs_absmax, output_absmax: largest |x| of what it reads and writes; for "nonfinite" in the candidate's
            run, before rounding; for "error" in the reference.
        rule: the rule that let it into FP16 (or kept it out), where decisions are given.
        selector: what keeps it FP32, beside the entries in force, quoted for the command line; empty where that would
            change nothing, as the node only moves data.
        explained: whether rounding what it reads explains its error (truehalf.verification.localize.both_files,
            chooses_alike).
        sentence: all that in words.
    """

    node: str
    op_type: str
    tensor: str
    scope: str
    cause: str
    local_error: float | None
    error: float | None
    effect: float | None
    inputs_absmax: float | None
    output_absmax: float | None
    rule: str | None
    selector: str
    sentence: str
    explained: bool = False


def of_error(node: ir.Node, position: int, effect: float, local_errors: LocalErrors, files: BothFiles) -> Suspect:
    """A node that computes something else than the reference from the same tensors."""
    local_error, whole = finite(local_errors.local_error[position]), local_errors.whole
    local = "is not finite" if local_error is None else f"has a relative error of {_share(local_error)} by itself"
    moved = f"changes the outputs by {_share(effect)}" if np.isfinite(effect) else "makes the outputs NaN or Inf"
    of = f" (all nodes together: {_share(whole)})" if np.isfinite(whole) else ""
    absmax = float(local_errors.absmax[position])
    moves = only_moves(node) and NORMAL_MIN <= absmax <= MAX  # outside, FP16 does not hold what it moves
    if moves:
        of += "; it only moves data, which FP16 does not change: it is not what the reference's node is"
    suspect = Suspect(
        node=label_of(node),
        op_type=node.op_type,
        tensor=local_errors.pairs[position].candidate,
        scope=files.scope(node),
        cause="nonfinite" if local_error is None else "error",
        local_error=local_error,
        error=finite(local_errors.error[position]),
        effect=finite(effect),
        inputs_absmax=local_errors.inputs_absmax(node),
        output_absmax=absmax,
        rule=None,
        selector="" if moves else files.selector(node),
        explained=files.chooses_alike(node),
        sentence=f"{node.op_type} {label_of(node)!r}, fed with the reference's tensors, {local} and {moved}{of}",
    )
    return _with_decision(suspect, files.decision(node))


def only_moves(node: ir.Node) -> bool:
    """Whether a node only moves values (Pad, Reshape, Slice, Concat): no precision is at fault there."""
    return is_op(node, *MOVES) and "reduction" not in node.attributes


def of_nonfinite(item: Nonfinite, files: BothFiles, local_errors: LocalErrors) -> Suspect:
    """A node that makes NaN or Inf of what is finite in the reference."""
    node = files.blamed(item.tensor)
    i = local_errors.of(item.tensor)
    written = blamed(item, files)
    suspect = Suspect(
        node=f"{item.op_type} -> {item.tensor}" if node is None else label_of(node),
        op_type=written.op_type,
        tensor=item.tensor,
        scope=files.scope(node) if node is not None else "",
        cause="nonfinite",
        local_error=finite(local_errors.local_error[i]) if i is not None else None,
        error=finite(local_errors.error[i]) if i is not None else None,
        effect=None,
        inputs_absmax=item.inputs_absmax,
        output_absmax=item.unrounded_absmax,
        rule=None,
        selector=files.selector(node) if node is not None else "precision.keep_io_types=true",
        sentence=_first_nonfinite_sentence(written, None),
    )
    return _with_decision(suspect, files.decision(node) if node is not None else None)


def blamed(item: Nonfinite, files: BothFiles) -> Nonfinite:
    """What is not finite, with the node that causes it."""
    node = files.blamed(item.tensor)
    return item if node is None else replace(item, node=label_of(node), op_type=node.op_type)


def summary(suspects: Sequence[Suspect], found: Sequence[Nonfinite], looked_at: str) -> str:
    """The first suspect, and the first non-finite node where it is another."""
    if suspects and suspects[0].cause == "nonfinite":
        first = next((item for item in found if item.tensor == suspects[0].tensor), None)
        if first is not None:
            return _first_nonfinite_sentence(first, looked_at)
    if not found:
        sentence = f"on {looked_at} FP16 makes no NaN and no Inf"
        return f"{sentence}; {suspects[0].sentence}" if suspects else sentence
    first_nonfinite = _first_nonfinite_sentence(found[0], None if suspects else looked_at)
    if not found[0].reaches_output:
        first_nonfinite += "; they reach no output"
    return f"on {looked_at} {suspects[0].sentence}; {first_nonfinite}" if suspects else first_nonfinite


def or_inf(number: float | None) -> float:
    """Of a Suspect's numbers, where None stands for what is not finite."""
    return float("inf") if number is None else number


def _with_decision(suspect: Suspect, row: Mapping[str, Any] | None) -> Suspect:
    if row is None:
        return suspect
    why = f"it runs in {str(row['precision']).upper()}: {row['reason']}"
    return replace(suspect, rule=row["rule"], sentence=f"{suspect.sentence}; {why}")


def _first_nonfinite_sentence(first: Nonfinite, where: str | None) -> str:
    what = f"node {first.node!r} ({first.op_type})" if first.node else first.op_type.lower()
    if first.inside:
        what = f"a sum inside {what}"
    bad = f"{first.nan} NaN and {first.posinf + first.neginf} Inf"
    on = f" on {where}" if where else ""
    sentence = f"the first non-finite values{on} are those of {what}, tensor {first.tensor!r}: {bad}"
    if first.unrounded_absmax is not None and first.unrounded_absmax > MAX:
        return f"{sentence}; |x| is {first.unrounded_absmax:.3g} there, above FP16's largest, {MAX:g}"
    if first.inputs_absmax is not None:
        sentence += f"; the largest |x| it reads is {first.inputs_absmax:.3g}"
    return sentence


def _share(number: float) -> str:
    return f"{100 * number:{'.0f' if 0.1 <= number < 1000 else '.2g'}} %"
