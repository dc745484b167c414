"""Localization of the nodes that introduce an error, the likeliest first.

    1  NaN and Inf    nodes that make them of the reference's tensors, and move the outputs; in graph order
    2  errors         nodes whose error rounding does not explain, by effect: how far the reference's outputs move when
                      only this node is as the candidate has it
    3  rounding       all others, by effect

A node that only moves data is no suspect where rounding explains its error, and is never pinned where it does not.

Rows of queries are compared in order of size, because detectors output them in an order that rounding may change;
rows of anything else are compared as they stand, because there another order is an error.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import onnx_ir as ir

from truehalf.float16 import MAX, NORMAL_MIN
from truehalf.ir.facts import is_op, label_of, name_of
from truehalf.ir.ops import MOVES, Trait, has
from truehalf.verification.localize.both_files import BothFiles, source_node, with_makers
from truehalf.verification.localize.node_errors import WRONG, LocalError, effects_of, local_errors
from truehalf.verification.metrics.tensors import rows_in_any_order
from truehalf.verification.pinning.as_argument import entry_of, pins_argument

Feeds = Mapping[str, np.ndarray]
_SUSPECTS = 10
_LARGEST = 12  # errors: whether of wrong nodes or not
_RUNS = 40  # of the reference, for effects
_SINGLE = 1e-6  # effect: FP32 makes as much of another order of operations
_FELT = 0.005  # effect that rounding does not explain
_LARGEST_MODULE = 0.1  # of the graph's nodes, to be pinned as a whole
_NEXT_TO = 0.1  # of the largest effect of rounding: a wrong node that has less moved nothing


@dataclass(frozen=True)
class Place:
    """Where a file goes wrong.

    Attributes:
        sample: the worst that was looked at.
        sentence: what was found, in words.
        node_block_list: entries that keep those suspects FP32 whose error rounding does not explain, or all where it
            explains each of them.
        selectors: the same beside the entries in force, quoted for the command line; empty without.
        suspects: nodes of the candidate that may cause the failure, the likeliest first.
    """

    sample: str
    sentence: str
    node_block_list: list[str]
    selectors: str
    suspects: list[Suspect]


def located(
    files: BothFiles,
    batches: Sequence[Feeds],
    queries: Collection[str] | None,
    sample: str,
    looked_at: str,
    pinned: Sequence[str] = (),
) -> Place:
    """Locate the nodes at fault, see `locate`, and describe them in words.

    Args:
        sample: the name of the worst.
        looked_at: what `batches` are called.
        pinned: entries of precision.node_block_list in force, which the selectors repeat.
    """
    suspects = locate(files, batches, queries)
    at_fault = [each for each in suspects if each.is_wrong] or suspects
    entries = pins_of([each for each in at_fault if each.can_be_pinned], files)
    selectors = pins_argument("node_block_list", entries, pinned) if entries else ""
    found = suspects[0].sentence if suspects else "no node computes anything else"
    return Place(sample, f"on {looked_at} {found}", entries, selectors, suspects)


def locate(
    files: BothFiles,
    batches: Sequence[Feeds],
    queries: Collection[str] | None = None,
    errors: Sequence[LocalError] | None = None,
) -> list[Suspect]:
    """Search for the nodes at fault: _SUSPECTS at most, the likeliest first.

    Args:
        files: the FP32 reference, and the file made from it, FP16 or mixed, by whatever tool.
        batches: what is run; errors are the largest of all.
        queries: outputs [N, queries, values], whose rows may come in any order; None: those that the I/O spec in the
            reference's metadata declares as such, and where there is no spec, those of three axes that depend on a
            TopK.
        errors: local errors on these batches, where they are known.

    Raises:
        StageError: when a model cannot be emulated or run, or their inputs differ.
    """
    queries = rows_in_any_order(files.reference) if queries is None else queries
    errors = local_errors(files, batches) if errors is None else errors
    largest = {id(error) for error in sorted(errors, key=lambda error: -error.relative)[:_LARGEST]}
    by_node: dict[ir.Node, list[LocalError]] = defaultdict(list)
    for error in (error for error in errors if error.relative >= WRONG or id(error) in largest):
        node = source_node(files.values[error.pair.candidate])
        if node is not None and error.computed is not None and error.relative > 0:
            by_node[node].append(error)
    absmax = {error.pair.candidate: error.absmax for error in errors}
    nodes = list(by_node)
    suspects: dict[str, Suspect] = {}
    effects = effects_of(files, batches, queries, list(by_node.values()), single=_SUSPECTS, runs=_RUNS)
    for effect in sorted((each for each in effects if len(each.nodes) == 1), key=lambda each: each.nodes):
        node = nodes[effect.nodes[0]]
        worst = max(by_node[node], key=lambda error: error.relative)
        suspect = suspect_of(node, worst, effect.error, absmax, files)
        if not (only_moves(node) and suspect.explained):
            suspects.setdefault(suspect.node, suspect)
    return _ranked(list(suspects.values()))[:_SUSPECTS]


def _ranked(suspects: list[Suspect]) -> list[Suspect]:
    """Suspects in graph order, the likeliest first."""
    broken = [each for each in suspects if each.is_wrong and each.cause == "nonfinite"]
    by_effect = sorted(suspects, key=lambda each: -each.moves_outputs)
    rounded = [each.moves_outputs for each in suspects if each.explained]
    least = max(_NEXT_TO * max(rounded, default=0.0), _SINGLE)
    first = [*broken, *(each for each in by_effect if each.is_wrong and each not in broken)]
    later = [each for each in by_effect if each not in first]
    return first + sorted(later, key=lambda each: each.explained or each.moves_outputs < least)


def first_bad_node(suspects: Sequence[Suspect], *, failed: bool = True) -> str | None:
    """Return the first suspect's node.

    Args:
        failed: True if the file is known to be wrong; else None where rounding explains the first suspect.
    """
    return suspects[0].node if suspects and (failed or suspects[0].is_wrong) else None


# --- suspects ---------------------------------------------------------------------------------------------------------


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
        can_be_pinned: False where FP32 would change nothing, as the node only moves data.
        explained: True if rounding explains its error.
        sentence: all that in words.
    """

    node: str
    op_type: str
    tensor: str
    cause: str
    local_error: float | None
    effect: float | None
    output_absmax: float
    can_be_pinned: bool
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
    """Describe a node that computes something else than the reference from the same tensors.

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
    return Suspect(
        node=label_of(node),
        op_type=node.op_type,
        tensor=error.origin or error.pair.candidate,
        cause="nonfinite" if is_broken else "error",
        local_error=None if is_broken else error.relative,
        effect=effect if math.isfinite(effect) else None,
        output_absmax=error.absmax,
        can_be_pinned=not moves,
        explained=error.relative < WRONG,
        sentence=sentence,
    )


def only_moves(node: ir.Node) -> bool:
    """True if a node only moves values (Pad, Reshape, Slice, Concat): no precision is at fault there."""
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
    """List entries for a node and the readers of its values: the beginning of their names up to a "/", else their
    names, those behind nodes that only move the values, too.
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
