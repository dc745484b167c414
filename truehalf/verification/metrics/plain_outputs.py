"""Outputs of a chain that are no detections: class logits, and tensors of which nothing is known.

    tensor error   max |o - r| / max |r| of an output, r: reference, o: the file; max over all samples and outputs;
                   0 where |o - r| is at most FLOOR; infinite where o is not finite, has another shape, or is another
                   integer, bool or string
    label flips    of class logits: samples whose best class is another, and no near tie

    masked         errors in parts of an output of a far smaller scale (truehalf.verification.metrics.scales), and
                   other whole numbers in an output or column that holds only whole numbers, as labels are, up to 2^11,
                   where FP16 has all of them: not verified

All outputs of a model that is no detector are looked at so; of a detector those that are neither boxes nor scores,
nor count the detections of each image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.outputs import (
    CLASSIFICATION,
    Outputs,
    classes_of,
    finds_top_k,
    holds_columns,
    plain_outputs,
    read_columns,
    task_of,
)
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.classification import ClassAgreement, classification_metrics
from truehalf.verification.metrics.output_errors import FLOOR
from truehalf.verification.metrics.scales import ALL, masked_by_scale
from truehalf.verification.metrics.tensors import absolute_error
from truehalf.verification.runs import Run

_MOST_WHOLE = 2.0**11  # FP16 holds all whole numbers up to here


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


def classes_in_runs(runs: Sequence[Run], spec: IoSpec, tie_margin: float = 0.0) -> ClassAgreement | None:
    """truehalf.verification.metrics.classification.classification_metrics of all samples; None of other models, and
    where shapes differ.

    Raises:
        StageError: as classification_metrics, and where runs have other numbers of classes.
    """
    name = classes_of(spec) if task_of(spec) == CLASSIFICATION else ""
    if not all(name in run.candidate and run.candidate[name].shape == run.reference[name].shape for run in runs):
        return None
    sides = [[run.reference[name] for run in runs], [run.candidate[name] for run in runs]]
    if len(widths := {side.shape[1:] for side in sides[0]}) > 1:
        got = " and ".join(str(list(each)) for each in sorted(widths)[:2])
        raise StageError("wrong-shape", f"class logits {name!r}: expected as many classes in all runs, got {got}")
    reference, candidate = map(np.concatenate, sides)
    return classification_metrics(reference, candidate, tie_margin)


def errors_by_sample(runs: Sequence[Run], names: Iterable[str]) -> np.ndarray:
    """float64: the largest tensor error of each sample of all runs, and of each run whose axis 0 counts none.

    Args:
        names: of the outputs that are looked at.
    """
    places = [max(run.rows, 1) for run in runs]
    worst = np.zeros(sum(places))
    for name in names:
        scale = max(_largest(np.asarray(run.reference[name])) for run in runs)
        apart = np.concatenate([_apart(run, name, count) for run, count in zip(runs, places, strict=True)])
        worst = np.maximum(worst, np.where(apart <= FLOOR, 0.0, apart / scale if scale else np.inf))
    return worst


def masked_in(name: str, runs: Sequence[Run], tolerance: float, parts: str = ALL) -> str:
    """A sentence on a part of an output of a far smaller scale that is wrong; empty where there is none.

    Args:
        tolerance: the largest tensor error that passes.
        parts: see masked_by_scale.
    """
    pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in runs]
    by_scale = masked_by_scale(name, pairs, tolerance, [run.names for run in runs], parts)
    return by_scale or _other_whole_numbers(name, pairs)


def _other_whole_numbers(name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
    if any(a.dtype.kind != "f" or a.shape != b.shape for a, b in pairs):
        return ""
    rows = [[_by_columns(side) for side in pair] for pair in pairs if pair[0].size]
    if len({a.shape[1] for a, _ in rows}) > 1:  # columns of runs that have other ones
        rows = [[side.reshape(-1, 1) for side in pair] for pair in rows]
    if not rows:
        return ""
    a, b = (np.concatenate([pair[side] for pair in rows]) for side in (0, 1))
    whole = np.ones(a.shape[1], bool)
    for side in (a, b):
        whole &= (np.isfinite(side) & (np.rint(side) == side) & (np.abs(side) <= _MOST_WHOLE)).all(axis=0)
    different = int((a != b)[:, whole].sum())
    if not different:
        return ""
    changed = f"{different} of {int(whole.sum()) * len(a)} whole numbers in output {name!r} are others"
    return coded("hidden-by-scale", f"{changed}; the tensor rule allows it, and rounding to FP16 explains none of them")


def _by_columns(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1] if values.ndim > 1 else 1)


def _largest(values: np.ndarray) -> float:
    """The largest finite |r|; 1 of what has no size."""
    if values.dtype.kind != "f":
        return 1.0
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _apart(run: Run, name: str, count: int) -> np.ndarray:
    """float64 [count]: the largest |o - r| of each sample, or of the run; infinite where it has another shape. A NaN of
    the reference is compared with nothing; integers, bools and strings are equal or infinitely far apart.
    """
    if name not in run.candidate or run.candidate[name].shape != run.reference[name].shape:
        return np.full(count, np.inf)
    a, b = (np.asarray(side[name]) for side in (run.reference, run.candidate))
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        apart = np.where(a == b, 0.0, np.inf)
    else:
        apart = np.where(np.isnan(a), 0.0, absolute_error(a, b))
    by_sample = apart.ndim and len(apart) == count
    return np.asarray(apart.reshape(count if by_sample else 1, -1).max(axis=1, initial=0.0) + np.zeros(count))
