"""Outputs that are no detections: which they are, and how far each sample is off.

All outputs of a model that is no detector are looked at so; of a detector those that are neither boxes nor scores,
nor count the detections of each image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.outputs import Outputs, finds_top_k, holds_columns, plain_outputs, read_columns
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.classification import ClassAgreement, classification_metrics
from truehalf.verification.metrics.yardstick import Draws, compared_places
from truehalf.verification.runs import Run


def judged_alone(runs: Sequence[Run], spec: IoSpec) -> list[str]:
    """Names of the reference's outputs that make up no detections; without counts of the scores above 0 of each image,
    [N] or [N, 1], that count in both files: of those the detections say all.
    """
    names = plain_outputs(spec, runs[0].reference)
    if not finds_top_k(spec):
        return names
    sides = [side for run in runs for side in (run.reference, run.candidate)]
    return [name for name in names if not all(_counts(side, name, spec) for side in sides)]


def _counts(outputs: Outputs, name: str, spec: IoSpec) -> bool:
    if name not in outputs or not holds_columns(outputs, spec):
        return False
    count, positive = np.asarray(outputs[name]), read_columns(outputs, spec)["score"][..., 0] > 0
    return count.shape in ((len(positive),), (len(positive), 1)) and bool((count.ravel() == positive.sum(axis=1)).all())


def classes_in_runs(runs: Sequence[Run], name: str, draws: Callable[[], Draws]) -> ClassAgreement | None:
    """truehalf.verification.metrics.classification.classification_metrics of all samples; None where shapes differ.

    Args:
        name: of the output.
        draws: see classification_metrics, by run.

    Raises:
        StageError: as classification_metrics, and where runs have other numbers of classes.
    """
    if not all(name in run.candidate and run.candidate[name].shape == run.reference[name].shape for run in runs):
        return None
    sides = [[run.reference[name] for run in runs], [run.candidate[name] for run in runs]]
    if len(widths := {side.shape[1:] for side in sides[0]}) > 1:
        got = " and ".join(str(list(each)) for each in sorted(widths)[:2])
        raise StageError("wrong-shape", f"class logits {name!r}: expected as many classes in all runs, got {got}")
    reference, candidate = map(np.concatenate, sides)
    return classification_metrics(reference, candidate, lambda: [np.concatenate(draw) for draw in draws()])


def errors_by_sample(runs: Sequence[Run], names: Iterable[str]) -> np.ndarray:
    """float64: the largest error of each sample of all runs, and of each run whose axis 0 counts none: the root mean
    square, as a share of the output's scale; of exact values the share that differs; infinite where they cannot be
    compared.

    Args:
        names: of the outputs that are looked at.
    """
    counts = [max(run.rows, 1) for run in runs]
    worst = np.zeros(sum(counts))
    for name in names:
        squares = np.concatenate([_squares(run, name, count) for run, count in zip(runs, counts, strict=True)])
        references = [np.asarray(run.reference[name]) for run in runs]
        scale = 1.0
        if references[0].dtype.kind == "f":
            values = np.concatenate([each[compared_places(each, each)].ravel() for each in references])
            scale = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = np.maximum(worst, np.nan_to_num(np.sqrt(squares) / scale, nan=0.0, posinf=np.inf))
    return worst


def _squares(run: Run, name: str, count: int) -> np.ndarray:
    """float64 [count]: mean squared error of each sample, or of the run."""
    if name not in run.candidate or run.candidate[name].shape != run.reference[name].shape:
        return np.full(count, np.inf)
    reference, candidate = (np.asarray(side[name]) for side in (run.reference, run.candidate))
    if reference.dtype.kind != "f" or candidate.dtype.kind != "f":
        squares = np.asarray(reference != candidate, np.float64)
    else:
        with np.errstate(invalid="ignore"):
            squares = np.square(np.subtract(candidate, reference, dtype=np.float64))
        masked = (reference <= -3e4) & (candidate <= -3e4)
        same = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate)) | masked
        squares = np.where(same, 0.0, np.where(np.isnan(squares), np.inf, squares))
    by_sample = squares.ndim and len(squares) == count
    rows = squares.reshape(count if by_sample else 1, -1)
    return np.asarray((rows.mean(axis=1) if rows.size else np.zeros(len(rows))) + np.zeros(count))
