"""Localization of the nodes that introduce an error, the likeliest first.

    1  NaN and Inf    nodes whose output is not finite although all that they read is, and that spoil an output; in
                      graph order
    2  errors         nodes by the effect of their local error: how far the reference's outputs move when only this node
                      is computed as the candidate computes it
    3  symptoms       NaN and Inf of nodes that are finite on the reference's tensors: what they read was wrong already

Rows of queries are compared in order of size, because detectors output them in an order that rounding may change;
rows of anything else are compared as they stand, because there another order is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from truehalf.data.samples import stacked
from truehalf.emulation.sessions import EVALUATION, PESSIMISTIC
from truehalf.ir.model_forms import ModelFile
from truehalf.report.forms import Decision
from truehalf.report.page import Location
from truehalf.verification.chain.stage_results import sample_facts
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.combined import combined_selectors
from truehalf.verification.localize.first_nonfinite import Nonfinite, first_nonfinite
from truehalf.verification.localize.local_errors import WRONG, LocalErrors, NodeError
from truehalf.verification.localize.suspects import Suspect, blamed, of_error, of_nonfinite, or_inf, summary
from truehalf.verification.localize.worst_sample import worst_samples
from truehalf.verification.metrics.query_rows import rows_in_any_order
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import FP32_CPU

if TYPE_CHECKING:
    from truehalf.verification.localize.failing import Failing

Feeds = Mapping[str, np.ndarray]
_SUSPECTS = 10
_SAMPLES = 4  # the worst, looked at
_FELT = 0.005  # effect that rounding does not explain
_SINGLE = 1e-6  # effect: FP32 makes as much of another order of operations
_NEXT_TO = 0.1  # of the largest effect of rounding: a wrong node that has less moved nothing


def find_suspects(
    files: BothFiles, feeds: Feeds | Sequence[Feeds], queries: Collection[str] | None = None, limit: int = _SUSPECTS
) -> list[Suspect]:
    """The nodes of the candidate that may cause the failure, the likeliest first.

    Args:
        files: the FP32 reference, and the file made from it, FP16 or mixed, by whatever tool.
        feeds: one batch, or several; errors are the largest of all.
        queries: outputs [N, queries, values], whose rows may come in any order; None: those that the I/O spec in the
            reference's metadata declares as such, and where there is no spec, those of three axes that depend on a
            TopK.
        limit: suspects at most.

    Raises:
        StageError: when a model cannot be emulated or run, or their inputs differ.
    """
    return _search(files, [feeds] if isinstance(feeds, Mapping) else list(feeds), limit, queries)[0]


def _search(
    files: BothFiles, batches: Sequence[Feeds], limit: int, queries: Collection[str] | None
) -> tuple[list[Suspect], list[Nonfinite]]:
    """The suspects, and what is not finite although it is in the reference."""
    local_errors = LocalErrors(files, batches, rows_in_any_order(files.reference) if queries is None else queries)
    found: list[Nonfinite] = []
    if not np.isfinite(local_errors.error).all() or not local_errors.covers_outputs():
        found = first_nonfinite(files.candidate, batches, reference=files.reference, pessimistic=files.pessimistic)
        found = [item for item in found if item.reference_finite is not False]  # masks are not finite in FP32 either
    origins = [item for item in found if item.reaches_output]
    symptoms = [item for item in origins if local_errors.inherited(item)]
    first = [of_nonfinite(item, files, local_errors) for item in origins if item not in symptoms]
    errors = [of_error(each, files) for each in local_errors.by_effect()]
    wrong = [each for each in errors if _is_wrong(each)]
    later = [of_nonfinite(item, files, local_errors) for item in symptoms]
    rest = _wrong_ones_first([each for each in errors if each not in wrong])
    suspects: dict[str, Suspect] = {}
    for each in [*first, *wrong, *later, *rest]:
        suspects.setdefault(each.node, each)
    return list(suspects.values())[:limit], found


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


def error_profile(files: BothFiles, feeds: Feeds) -> list[NodeError]:
    """Errors of every node with a float output, in graph order; behind TopK of the queries that the reference chooses.

    Raises:
        StageError: as find_suspects.
    """
    return LocalErrors(files, [feeds], (), same_choices=True).profile()


def locate(
    failing: Failing,
    file: ModelFile,
    fp32: ModelFile,
    decisions: Iterable[Decision] | None = None,
    pinned: Sequence[str] = (),
) -> Location | None:
    """Where a failed FP16 file goes wrong.

    Looks at the worst samples (a file with a fixed batch gets each as often as it asks for), or at the run that fails,
    by the emulation that failed, and by the plain one where another machine ran the file. None for a file without FP16.

    Args:
        failing: the samples that it fails on.
        decisions: rows of decisions.json.
        pinned: entries of precision.node_block_list in force, which a selector repeats.

    Raises:
        StageError: as find_suspects.
    """
    evaluation = failing.final.facts["evaluation"]
    if evaluation == FP32_CPU:
        return None
    reference, copies = failing.reference, file.fixed_batch or fp32.fixed_batch or 1
    samples, looked_at = list(reference.samples), f"a run of {len(reference.names)} samples"
    batches = [stacked(samples)] if failing.together else []
    if not failing.together:
        rows = sample_facts(reference, failing.final)
        samples = [reference.samples[i] for i in worst_samples(rows, _SAMPLES)]
        batches = [stacked([sample] * copies) for sample in samples]
        several = f"the worst {len(samples)} of {len(rows)} samples"
        looked_at = several if len(samples) > 1 else f"sample {samples[0].name}"
        looked_at += f" (repeated {copies} times: the batch is fixed)" if copies > 1 else ""
    files = BothFiles(fp32.model, file.model, decisions=decisions, pinned=pinned, pessimistic=evaluation == PESSIMISTIC)
    suspects, found = _search(files, batches, _SUSPECTS, query_outputs(reference.spec))
    found.sort(key=lambda item: not item.reaches_output)
    if evaluation not in (EVALUATION, PESSIMISTIC):
        looked_at += f", in emulated FP16 (the file failed on {evaluation})"
    return {
        "sample": samples[0].name,
        "sentence": summary(suspects, [blamed(item, files) for item in found], looked_at),
        "selectors": combined_selectors(suspects, files),
        "nonfinite": [asdict(item) for item in found[:5]],
        "suspects": [asdict(each) for each in suspects],
    }
