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

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.verification.localize.align import source_node
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.effects import effects_of
from truehalf.verification.localize.node_errors import WRONG, LocalError, local_errors
from truehalf.verification.localize.suspects import Suspect, only_moves, pins_of, suspect_of
from truehalf.verification.metrics.tensors import rows_in_any_order

Feeds = Mapping[str, np.ndarray]
_SUSPECTS = 10
_LARGEST = 12  # errors: whether of wrong nodes or not
_RUNS = 40  # of the reference, for effects
_SINGLE = 1e-6  # effect: FP32 makes as much of another order of operations
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


def place_of(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str] | None, sample: str, looked_at: str
) -> Place:
    """The nodes at fault, see `locate`, in words too.

    Args:
        sample: the name of the worst.
        looked_at: what `batches` are called.
    """
    suspects = locate(files, batches, queries)
    at_fault = [each for each in suspects if each.is_wrong] or suspects
    entries = pins_of([each for each in at_fault if each.selector], files)
    found = suspects[0].sentence if suspects else "no node computes anything else"
    return Place(sample, f"on {looked_at} {found}", entries, files.selector_of(entries) if entries else "", suspects)


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
    """The first suspect's node.

    Args:
        failed: whether the file is known to be wrong; else None where rounding explains the first suspect.
    """
    return suspects[0].node if suspects and (failed or suspects[0].is_wrong) else None
