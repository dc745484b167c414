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
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import label_of
from truehalf.verification.localize.align import source_node
from truehalf.verification.localize.both_files import BothFiles, Pair
from truehalf.verification.localize.combined import combined_selectors
from truehalf.verification.localize.effects import effects_of
from truehalf.verification.localize.node_errors import WRONG, LocalError, errors_in_run, local_errors
from truehalf.verification.localize.suspects import Suspect, only_moves, or_inf, summary, suspect_of
from truehalf.verification.metrics.query_rows import rows_in_any_order

if TYPE_CHECKING:
    from truehalf.report.drawings import NodeRow

Feeds = Mapping[str, np.ndarray]
_SUSPECTS = 10
_LARGEST = 12  # errors: whether of wrong nodes or not
_RUNS = 40  # of the reference, for effects
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
        suspects: nodes of the candidate that may cause the failure, the likeliest first.
    """

    sample: str
    sentence: str
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
    at_fault = [each for each in suspects if _is_wrong(each)] or suspects
    pinned = [each for each in at_fault if each.selector]
    return Place(sample, summary(suspects, looked_at), combined_selectors(pinned, files), suspects)


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
    absmax = {error.pair.candidate: error.absmax for error in errors}
    by_node: dict[ir.Node, list[LocalError]] = defaultdict(list)
    largest = {id(error) for error in sorted(errors, key=lambda error: -error.relative)[:_LARGEST]}
    for error in (error for error in errors if error.relative >= WRONG or id(error) in largest):
        node = source_node(files.values[error.pair.candidate])
        if node is not None and error.computed is not None and error.relative > 0:
            by_node[node].append(error)
    effects = _effects(files, batches, queries, list(by_node.values()))
    suspects: dict[str, Suspect] = {}
    for i, (node, found) in enumerate(by_node.items()):
        if i in effects:
            suspect = suspect_of(node, max(found, key=lambda error: error.relative), effects[i], absmax, files)
            if not (only_moves(node) and suspect.explained):
                suspects.setdefault(suspect.node, suspect)
    return _ranked(list(suspects.values()))[:_SUSPECTS]


def _effects(
    files: BothFiles, batches: Sequence[Feeds], queries: Collection[str], nodes: Sequence[list[LocalError]]
) -> dict[int, float]:
    """Effects of single nodes by position. Those that are not finite are asked for one by one: in a part, what is given
    behind such a node would hide it.
    """
    broken = [i for i, errors in enumerate(nodes) if any(math.isinf(error.relative) for error in errors)][:_SUSPECTS]
    others = [i for i in range(len(nodes)) if i not in broken]
    effects: dict[int, float] = {}
    for places, single in ((broken, len(broken)), (others, _SUSPECTS)):
        asked = [nodes[i] for i in places]
        found = effects_of(files, batches, queries, asked, single=single, runs=_RUNS) if asked else []
        effects |= {places[each.nodes[0]]: each.error for each in found if len(each.nodes) == 1}
    return effects


def _ranked(suspects: list[Suspect]) -> list[Suspect]:
    """Suspects in graph order, the likeliest first."""
    wrong = [each for each in suspects if _is_wrong(each)]
    broken = [each for each in wrong if each.cause == "nonfinite"]
    by_effect = sorted(suspects, key=lambda each: -or_inf(each.effect))
    rounded = [or_inf(each.effect) for each in suspects if each.explained]
    least = max(_NEXT_TO * max(rounded, default=0.0), _SINGLE)
    first = [*broken, *(each for each in by_effect if each in wrong and each not in broken)]
    later = [each for each in by_effect if each not in first]
    return first + sorted(later, key=lambda each: each.explained or or_inf(each.effect) < least)


def _is_wrong(suspect: Suspect) -> bool:
    """Beyond what rounding explains, in its output and in those of the graph."""
    return not suspect.explained and or_inf(suspect.effect) >= _FELT


def first_bad_node(suspects: Sequence[Suspect], *, failed: bool = True) -> str | None:
    """The first suspect's node.

    Args:
        failed: whether the file is known to be wrong; else None where rounding explains the first suspect.
    """
    if not suspects or not (failed or _is_wrong(suspects[0])):
        return None
    return suspects[0].node


def error_profile(files: BothFiles, feeds: Feeds) -> list[NodeRow]:
    """Errors of every node with a float output, in graph order; behind TopK of the queries that the reference chooses.

    Raises:
        StageError: as locate.
    """
    worst: dict[ir.Node, tuple[Pair, float, float]] = {}
    for pair, local_error, error in errors_in_run(files, feeds):
        value = files.values[pair.candidate]
        node = source_node(value)
        if node is None or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
            continue
        if node not in worst or local_error > worst[node][1]:
            worst[node] = pair, local_error, error
    order = {node: number for number, node in enumerate(files.candidate.graph)}
    rows: list[NodeRow] = []
    for node in sorted(worst, key=order.__getitem__):
        half = any(output.dtype == ir.DataType.FLOAT16 for output in node.outputs)
        pair, local_error, error = worst[node]
        rows.append(
            {
                "node": label_of(node),
                "op_type": node.op_type,
                "tensor": pair.candidate,
                "precision": "fp16" if half else "fp32",
                "error": _finite(error),
                "local_error": _finite(local_error),
            }
        )
    return rows


def _finite(number: float) -> float | None:
    """The number, or None where JSON has none for it."""
    return float(number) if np.isfinite(number) else None
