"""Localization of the nodes that introduce an error, the likeliest first.

    1  NaN and Inf    nodes whose output is not finite although all that they read is, and that spoil an output; in
                      graph order
    2  errors         nodes by the effect of their local error: how far the reference's outputs move when only this node
                      is computed as the candidate computes it
    3  symptoms       NaN and Inf of nodes that are finite on the reference's tensors: what they read was wrong already

A node that only moves data is no suspect where rounding explains its error, and is never pinned where it does not.

Rows of queries are compared in order of size, because detectors output them in an order that rounding may change;
rows of anything else are compared as they stand, because there another order is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.combined import combined_selectors
from truehalf.verification.localize.first_nonfinite import Nonfinite, first_nonfinite
from truehalf.verification.localize.local_errors import WRONG, LocalErrors
from truehalf.verification.localize.suspects import Suspect, blamed, of_error, of_nonfinite, only_moves, or_inf, summary
from truehalf.verification.metrics.query_rows import rows_in_any_order

if TYPE_CHECKING:
    from truehalf.report.drawings import NodeRow

Feeds = Mapping[str, np.ndarray]
_SUSPECTS = 10
_FELT = 0.005  # effect that rounding does not explain
_SINGLE = 1e-6  # effect: FP32 makes as much of another order of operations
_NEXT_TO = 0.1  # of the largest effect of rounding: a wrong node that has less moved nothing


@dataclass(frozen=True)
class Place:
    """Where a file goes wrong.

    Attributes:
        sample: the worst that was looked at.
        sentence: what was found, in words.
        selectors: what keeps those suspects FP32 whose error rounding does not explain, or all where it explains each
            of them, quoted for the command line.
        nonfinite: tensors that are not finite, those first that reach an output; five at most.
        suspects: nodes of the candidate that may cause the failure, the likeliest first.
    """

    sample: str
    sentence: str
    selectors: str
    nonfinite: list[Nonfinite]
    suspects: list[Suspect]


def place_of(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str] | None, sample: str, looked_at: str
) -> Place:
    """The nodes at fault, see `locate`, in words too.

    Args:
        sample: the name of the worst.
        looked_at: what `batches` are called.
    """
    suspects, nonfinite = locate(files, batches, queries)
    nonfinite = sorted(nonfinite, key=lambda item: not item.reaches_output)
    sentence = summary(suspects, [blamed(item, files) for item in nonfinite], looked_at)
    at_fault = [each for each in suspects if each.cause == "nonfinite" or _is_wrong(each)] or suspects
    pinned = [each for each in at_fault if each.selector]
    return Place(sample, sentence, combined_selectors(pinned, files), nonfinite[:5], suspects)


def locate(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str] | None = None
) -> tuple[list[Suspect], list[Nonfinite]]:
    """Search for the nodes at fault: _SUSPECTS at most, the likeliest first; and what is not finite although it is in
    the reference, in graph order.

    Args:
        files: the FP32 reference, and the file made from it, FP16 or mixed, by whatever tool.
        batches: what is run; errors are the largest of all.
        queries: outputs [N, queries, values], whose rows may come in any order; None: those that the I/O spec in the
            reference's metadata declares as such, and where there is no spec, those of three axes that depend on a
            TopK.

    Raises:
        StageError: when a model cannot be emulated or run, or their inputs differ.
    """
    local_errors = LocalErrors(files, batches, rows_in_any_order(files.reference) if queries is None else queries)
    found: list[Nonfinite] = []
    if not np.isfinite(local_errors.error).all() or not local_errors.covers_outputs():
        found = first_nonfinite(files.candidate, batches, reference=files.reference, pessimistic=files.pessimistic)
        found = [item for item in found if item.reference_finite is not False]  # masks are not finite in FP32 either
    origins = [item for item in found if item.reaches_output]
    symptoms = [item for item in origins if local_errors.inherited(item)]
    first = [of_nonfinite(item, files, local_errors) for item in origins if item not in symptoms]
    found_errors = [(each[0], of_error(*each, local_errors, files)) for each in local_errors.by_effect()]
    errors = [each for node, each in found_errors if not (only_moves(node) and _by_rounding(each))]
    wrong = [each for each in errors if _is_wrong(each)]
    later = [of_nonfinite(item, files, local_errors) for item in symptoms]
    rest = _wrong_ones_first([each for each in errors if each not in wrong])
    suspects: dict[str, Suspect] = {}
    for each in [*first, *wrong, *later, *rest]:
        suspects.setdefault(each.node, each)
    return list(suspects.values())[:_SUSPECTS], found


def _is_wrong(suspect: Suspect) -> bool:
    """Beyond what rounding explains, in its output and in those of the graph."""
    return not _by_rounding(suspect) and or_inf(suspect.effect) >= _FELT


def _by_rounding(suspect: Suspect) -> bool:
    """Whether rounding explains the error of its output."""
    return suspect.explained or or_inf(suspect.local_error) < WRONG


def _wrong_ones_first(suspects: list[Suspect]) -> list[Suspect]:
    """Those whose error rounding does not explain first, where their effect is no smaller than that of rounding."""
    rounded = [or_inf(each.effect) for each in suspects if _by_rounding(each)]
    least = max(_NEXT_TO * max(rounded, default=0.0), _SINGLE)

    def comes_later(each: Suspect) -> bool:
        return _by_rounding(each) or or_inf(each.effect) < least

    return sorted(suspects, key=comes_later)


def first_bad_node(suspects: Sequence[Suspect], *, failed: bool = True) -> str | None:
    """The first suspect's node.

    Args:
        failed: whether the file is known to be wrong; else None where rounding explains the first suspect.
    """
    if not suspects or not (failed or suspects[0].cause == "nonfinite" or _is_wrong(suspects[0])):
        return None
    return suspects[0].node


def error_profile(files: BothFiles, feeds: Feeds) -> list[NodeRow]:
    """Errors of every node with a float output, in graph order; behind TopK of the queries that the reference chooses.

    Raises:
        StageError: as locate.
    """
    return LocalErrors(files, [feeds], (), same_choices=True).profile()
