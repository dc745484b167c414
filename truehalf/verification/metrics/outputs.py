"""One output of two files, measured and judged.

floats      by the yardstick (truehalf.verification.metrics.yardstick)
exact       integers, bools, strings, and columns of floats that are whole numbers in both files, as labels are:
            equal ones; of those that half a step of the input turns, too, CAP floors may be others
not finite  NaN and Inf at the same places in both files are values like any other; new ones fail; where the
            reference alone holds a NaN, nothing can be compared with it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truehalf.codes import coded
from truehalf.verification.metrics.half_steps import Response
from truehalf.verification.metrics.tensors import absolute_error
from truehalf.verification.metrics.yardstick import (
    CAP,
    MASK,
    OF_CHANNEL,
    SLACK,
    Deviation,
    Draws,
    compared_places,
    deviations,
)
from truehalf.verification.runs import Run

Pairs = Sequence[tuple[np.ndarray, np.ndarray]]
_MOST_WHOLE = 2.0**11  # float16 holds all whole numbers up to here


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output over all runs; see docs/reference/verification.md.

    Attributes:
        dtype: of the reference's array ("float32", "int64", ...); float16 appears as float32 under emulation.
        elements: of the reference.
        rms: root mean square of the error, as a share of that of the reference; of integers, bools and strings the
            share of values that differ. None of outputs of another shape, and of boxes and scores.
        response: the same of the reference on inputs moved by half a step; None where it was not needed.
        max_abs: of |candidate - reference|, infinite where one alone is not finite; None of strings and of unequal
            shapes.
        nan, inf: in the candidate; nan_reference, inf_reference: in the reference.
        nonfinite_new: NaN and Inf in the candidate where the reference is finite.
        passed: True, False, or None: not verified.
        reason: what was compared, or why it did not pass.
    """

    dtype: str
    elements: int
    rms: float | None = None
    response: float | None = None
    max_abs: float | None = None
    nan: int = 0
    inf: int = 0
    nan_reference: int = 0
    inf_reference: int = 0
    nonfinite_new: int = 0
    passed: bool | None = None
    reason: str = ""


def output_errors(
    name: str,
    pairs: Pairs,
    places: Sequence[Sequence[str]],
    floor: float,
    response: Response,
    of_classes: bool = False,
) -> OutputErrors:
    """Measure an output and judge it.

    Args:
        name: of the output, for the reasons.
        pairs: (reference, candidate) of each run.
        places: names of the samples that axis 0 counts, by run; one name where it counts none.
        floor: gates.tensor_rms_max.
        of_classes: see truehalf.verification.metrics.yardstick.deviations.
    """
    counted = counted_errors(name, pairs, places)
    if counted.passed is False:
        return counted
    if not counted.elements:
        empty = f"output {name!r} is empty in every run: nothing was compared"
        return replace(counted, reason=coded("nothing-compared", empty))
    if any(side.dtype.kind != "f" for pair in pairs for side in pair):
        return _judged_exact(name, counted, pairs, floor, response)
    if counted.reason:
        return replace(counted, passed=False if counted.nonfinite_new or _is_other_inf(pairs) else None)
    found = deviations([r for r, _ in pairs], [c for _, c in pairs], places, floor, response.draws, of_classes)
    measured = replace(counted, rms=found[0].error, response=found[0].response)
    sentence = in_words(f"output {name!r}", found[0], response.of)
    if failed := [each for each in found if not each.passed]:
        allowed = f"{floor:.2%} passes, or twice the latter and {CAP * floor:.2%}"
        if failed[0].part:
            sentence = f"{sentence}; {in_words(failed[0].part, failed[0], response.of)}"
            allowed = f"{OF_CHANNEL * floor:.2%} of a part passes, or twice the latter"
        return replace(measured, passed=False, reason=coded("outputs-differ", f"{sentence}; at most {allowed}"))
    return _with_whole_numbers(name, replace(measured, passed=True, reason=sentence), pairs, floor, response)


def counted_errors(name: str, pairs: Pairs, places: Sequence[Sequence[str]], sure: Pairs | None = None) -> OutputErrors:
    """Count NaN and Inf of an output, and measure its largest error.

    Args:
        name, pairs, places: see `output_errors`.
        sure: of each run the values whose errors are measured; None: all.

    Returns:
        Errors that are not judged, but for those of another shape, which fail. `reason` says what is not finite on one
        side alone.
    """
    counted = OutputErrors(str(pairs[0][0].dtype), sum(reference.size for reference, _ in pairs))
    is_float = all(side.dtype.kind == "f" for pair in pairs for side in pair)
    wrong = [(r, c, names) for (r, c), names in zip(pairs, places, strict=True) if r.shape != c.shape]
    if is_float:
        nan, inf = ([sum(int(test(pair[side]).sum()) for pair in pairs) for side in (0, 1)] for test in _NOT_FINITE)
        new = sum(int((np.isfinite(r) & ~np.isfinite(c)).sum()) for r, c in pairs if r.shape == c.shape)
        new = max(nan[1] + inf[1] - nan[0] - inf[0], 0) if wrong else new
        counted = replace(counted, nan_reference=nan[0], nan=nan[1], inf_reference=inf[0], inf=inf[1])
        counted = replace(counted, nonfinite_new=new)
    if wrong:
        reference, other, names = wrong[0]
        shapes = f"output {name!r}: expected shape {list(reference.shape)}, got {list(other.shape)} on {names[0]}"
        return replace(counted, passed=False, reason=coded("wrong-shape", shapes))
    if not all(side.dtype.kind in "fiub" for pair in pairs for side in pair):
        return counted
    largest = max((float(_error(*pair).max(initial=0.0)) for pair in (pairs if sure is None else sure)), default=0.0)
    return replace(counted, max_abs=largest, reason=_unlike_reason(name, counted, pairs) if is_float else "")


_NOT_FINITE: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.isnan, np.isinf)


def in_words(what: str, deviation: Deviation, step: Callable[[], str]) -> str:
    """Say how far FP16 moves something, and how far half a step of the input does."""
    sentence = f"FP16 moves {what} by {_percent(deviation.error)}"
    if deviation.response is None:
        return sentence
    return f"{sentence}; half a step of {step()} moves it by {_percent(deviation.response)}"


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 or share == 0 else f"{100 * share:.1g}%"


def _error(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """|other - reference|, 0 where both are NaN."""
    same = np.isnan(reference) & np.isnan(other)
    return np.where(same, 0.0, absolute_error(reference, other))


def _unlike(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """bool: one is NaN or Inf, and the other is not the same."""
    same = (reference == other) | (np.isnan(reference) & np.isnan(other))
    return np.asarray(~same & ~(np.isfinite(reference) & np.isfinite(other)))


def _is_other_inf(pairs: Pairs) -> bool:
    return any((_unlike(r, c) & np.isinf(r)).any() for r, c in pairs)


def _unlike_reason(name: str, counted: OutputErrors, pairs: Pairs) -> str:
    """Say which values are not finite on one side alone; empty where NaN and Inf stand at the same places."""
    if counted.nonfinite_new:
        nan = sum(int((np.isfinite(r) & np.isnan(c)).sum()) for r, c in pairs)
        reason = f"{nan} NaN and {counted.nonfinite_new - nan} Inf of {counted.elements} values"
        return coded("not-finite", f"output {name!r}: {reason} where the reference is finite")
    if _is_other_inf(pairs):
        reason = f"output {name!r}: a finite value or another Inf where the reference is Inf"
        return coded("outputs-differ", reason)
    if any(_unlike(r, c).any() for r, c in pairs):
        reason = f"output {name!r}: the reference holds NaN where the file does not: nothing can be compared with them"
        return coded("not-finite", reason)
    return ""


# --- exact values -----------------------------------------------------------------------------------------------------


def _judged_exact(name: str, counted: OutputErrors, pairs: Pairs, floor: float, response: Response) -> OutputErrors:
    different, excused = _changed(pairs, floor, response)
    passed = different <= excused
    count = f"{counted.elements} {counted.dtype} values"
    reason = coded("outputs-differ", f"output {name!r}: {different} of {count} differ")
    if passed:
        reason = f"output {name!r}: {counted.elements - different} of {count} are equal"
    return replace(counted, rms=different / counted.elements, passed=passed, reason=reason)


def _changed(pairs: Pairs, floor: float, response: Response) -> tuple[int, int]:
    """Count values that differ, and those that may: SLACK times as many as half a step of the input turns, CAP floors
    at most, if it turns half of the same ones, too.
    """
    unequal = [np.asarray(r != c) for r, c in pairs]
    different = sum(int(each.sum()) for each in unequal)
    if not different:
        return 0, 0
    draws = [[np.asarray(r != moved) for (r, _), moved in zip(pairs, draw, strict=True)] for draw in response.draws()]
    if not draws:
        return different, 0
    turned = [np.logical_or.reduce(each) for each in zip(*draws, strict=True)]
    shared = sum(int((a & b).sum()) for a, b in zip(unequal, turned, strict=True))
    usual = sum(int(each.sum()) for draw in draws for each in draw) / len(draws)
    most = min(SLACK * usual, CAP * floor * sum(each.size for each in unequal))
    return different, int(most) if 2 * shared >= different else 0


def _with_whole_numbers(
    name: str, measured: OutputErrors, pairs: Pairs, floor: float, response: Response
) -> OutputErrors:
    """Judge columns of whole numbers, of which an error that the yardstick allows makes others."""
    one_width = len({reference.shape[-1:] for reference, _ in pairs}) == 1 and pairs[0][0].ndim > 1

    def columns(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, array.shape[-1] if one_width else 1)

    tables = [(columns(r), columns(c)) for r, c in pairs if r.size]
    whole = np.ones(tables[0][0].shape[1], bool)
    for table in tables:
        for side in table:
            finite = np.where(np.isfinite(side), side, 0.5)
            whole &= ((np.rint(finite) == finite) & (np.abs(finite) <= _MOST_WHOLE)).all(axis=0)
    chosen = [(r[:, whole], c[:, whole]) for r, c in tables]

    def draws() -> Draws:
        return [[columns(each)[:, whole] for each in draw if each.size] for draw in response.draws()]

    different, excused = _changed(chosen, floor, replace(response, draws=draws))
    if different <= excused:
        return measured
    count = sum(r.size for r, _ in chosen)
    reason = f"{different} of {count} whole numbers in output {name!r} are others, and rounding explains none of them"
    return replace(measured, passed=False, reason=coded("outputs-differ", reason))


# --- by sample --------------------------------------------------------------------------------------------------------


def errors_by_sample(runs: Sequence[Run], names: Iterable[str]) -> np.ndarray:
    """Measure float64: the largest error of each sample of all runs, and of each run whose axis 0 counts none: the root
    mean square, as a share of the output's scale; of exact values the share that differs; infinite where they cannot be
    compared.

    Args:
        names: of the outputs that are looked at.
    """
    worst = np.zeros(sum(len(run.places) for run in runs))
    for name in names:
        squares = np.concatenate([_squares(run, name) for run in runs])
        references = [np.asarray(run.reference[name]) for run in runs]
        scale = 1.0
        if references[0].dtype.kind == "f":
            values = np.concatenate([each[compared_places(each, each)].ravel() for each in references])
            scale = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = np.maximum(worst, np.nan_to_num(np.sqrt(squares) / scale, nan=0.0, posinf=np.inf))
    return worst


def _squares(run: Run, name: str) -> np.ndarray:
    """Measure float64: mean squared error of each sample, or of the run."""
    count = len(run.places)
    if name not in run.candidate or run.candidate[name].shape != run.reference[name].shape:
        return np.full(count, np.inf)
    reference, candidate = (np.asarray(side[name]) for side in (run.reference, run.candidate))
    if reference.dtype.kind != "f" or candidate.dtype.kind != "f":
        squares = np.asarray(reference != candidate, np.float64)
    else:
        with np.errstate(invalid="ignore"):
            squares = np.square(np.subtract(candidate, reference, dtype=np.float64))
        masked = (reference <= MASK) & (candidate <= MASK)
        same = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate)) | masked
        squares = np.where(same, 0.0, np.where(np.isnan(squares), np.inf, squares))
    by_sample = squares.ndim and len(squares) == count
    rows = squares.reshape(count if by_sample else 1, -1)
    return np.asarray((rows.mean(axis=1) if rows.size else np.zeros(len(rows))) + np.zeros(count))
