"""One output of two files, measured and judged.

floats      by the yardstick (truehalf.verification.metrics.yardstick)
exact       integers, bools, strings, and columns of floats that are whole numbers in both files, as labels are:
            equal ones; of those that half a step of the input turns, too, CAP floors may be others
not finite  NaN and Inf at the same places in both files are values like any other; new ones fail; where the
            reference alone holds a NaN, nothing can be compared with it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truehalf.codes import coded
from truehalf.verification.metrics.tensors import absolute_error
from truehalf.verification.metrics.yardstick import CAP, OF_CHANNEL, SLACK, Deviation, Draws, deviations

Pairs = Sequence[tuple[np.ndarray, np.ndarray]]
_MOST_WHOLE = 2.0**11  # float16 holds all whole numbers up to here


@dataclass(frozen=True)
class Response:
    """Response of an output to half a step of the input.

    Attributes:
        of: names what the step is of, as "a pixel".
        draws: gives the reference's arrays on moved inputs, by draw and run, in the shapes of the reference's.
    """

    of: Callable[[], str] = str
    draws: Callable[[], Draws] = tuple


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output over all runs; see docs/reference/verification.md.

    Attributes:
        dtype: of the reference's array ("float32", "int64", ...); float16 appears as float32 under emulation.
        elements: of the reference.
        rms: root mean square of the error, as a share of that of the reference; of integers, bools and strings the
            share of values that differ. None of outputs of another shape, and of boxes and scores.
        response: the same of the reference on inputs moved by half a step; None where it was not needed.
        max_abs, p99_abs: of |candidate - reference|, infinite where one alone is not finite; None of strings and of
            unequal shapes.
        cosine: r . c / (|r| |c|); None where an error is infinite, and of outputs that are no floats.
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
    p99_abs: float | None = None
    cosine: float | None = None
    nan: int = 0
    inf: int = 0
    nan_reference: int = 0
    inf_reference: int = 0
    nonfinite_new: int = 0
    passed: bool | None = None
    reason: str = ""


def output_errors(
    name: str, pairs: Pairs, places: Sequence[Sequence[str]], floor: float, response: Response
) -> OutputErrors:
    """Measure an output and judge it.

    Args:
        name: of the output, for the reasons.
        pairs: (reference, candidate) of each run.
        places: names of the samples that axis 0 counts, by run; one name where it counts none.
        floor: gates.tensor_rms_max.
    """
    nothing = OutputErrors(str(pairs[0][0].dtype), sum(reference.size for reference, _ in pairs))
    for (reference, other), names in zip(pairs, places, strict=True):
        if reference.shape != other.shape:
            wrong = f"output {name!r}: expected shape {list(reference.shape)}, got {list(other.shape)} on {names[0]}"
            return replace(_counted(nothing, pairs), passed=False, reason=coded("wrong-shape", wrong))
    if not nothing.elements:
        empty = f"output {name!r} is empty in every run: nothing was compared"
        return replace(nothing, reason=coded("nothing-compared", empty))
    if any(side.dtype.kind != "f" for pair in pairs for side in pair):
        return _judged_exact(name, nothing, pairs, floor, response)
    measured = _counted(_measured(nothing, pairs), pairs)
    if measured.nonfinite_new or any(_unlike(*pair).any() for pair in pairs):
        return _judged_nonfinite(name, measured, pairs)
    found = deviations([r for r, _ in pairs], [c for _, c in pairs], places, floor, response.draws)
    measured = replace(measured, rms=found[0].error, response=found[0].response)
    sentence = in_words(f"output {name!r}", found[0], response.of)
    if failed := [each for each in found if not each.passed]:
        of_output = not failed[0].part
        allowed = f"{floor:.2%} passes, or twice the latter and {CAP * floor:.2%}"
        if not of_output:
            sentence = f"{sentence}; {in_words(failed[0].part, failed[0], response.of)}"
            allowed = f"{OF_CHANNEL * floor:.2%} of a part passes, or twice the latter"
        return replace(measured, passed=False, reason=coded("outputs-differ", f"{sentence}; at most {allowed}"))
    return _with_whole_numbers(name, replace(measured, passed=True, reason=sentence), pairs, floor, response)


def in_words(what: str, deviation: Deviation, step: Callable[[], str]) -> str:
    """Say how far FP16 moves something, and how far half a step of the input does."""
    sentence = f"FP16 moves {what} by {_percent(deviation.error)}"
    if deviation.response is None:
        return sentence
    return f"{sentence}; half a step of {step()} moves it by {_percent(deviation.response)}"


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 or share == 0 else f"{100 * share:.1g}%"


def errors_of_detections(name: str, pairs: Pairs, sure: Pairs, places: Sequence[Sequence[str]]) -> OutputErrors:
    """Count NaN and Inf of an output whose values detections judge; it fails where its shape is another.

    Args:
        sure: of each run the rows whose errors are measured.
    """
    counted = _counted(OutputErrors(str(pairs[0][0].dtype), sum(r.size for r, _ in pairs)), pairs)
    for (reference, other), names in zip(pairs, places, strict=True):
        if reference.shape != other.shape:
            wrong = f"output {name!r}: expected shape {list(reference.shape)}, got {list(other.shape)} on {names[0]}"
            return replace(counted, passed=False, reason=coded("wrong-shape", wrong))
    errors = [_error(*pair).ravel() for pair in sure if pair[0].dtype.kind in "fiub"]
    if counted.nonfinite_new:
        counted = replace(counted, reason=_judged_nonfinite(name, counted, pairs).reason)
    return replace(counted, max_abs=float(np.concatenate(errors).max(initial=0.0)) if errors else None)


def _counted(measured: OutputErrors, pairs: Pairs) -> OutputErrors:
    """With NaN and Inf counted; where shapes differ, new are those that the reference has not as many of."""
    if any(side.dtype.kind != "f" for pair in pairs for side in pair):
        return measured
    counts = [[sum(int(test(pair[side]).sum()) for pair in pairs) for side in (0, 1)] for test in (np.isnan, np.isinf)]
    (nan_reference, nan), (inf_reference, inf) = counts
    new = max(nan + inf - nan_reference - inf_reference, 0)
    if all(r.shape == c.shape for r, c in pairs):
        new = sum(int((np.isfinite(r) & ~np.isfinite(c)).sum()) for r, c in pairs)
    return replace(
        measured, nan=nan, inf=inf, nan_reference=nan_reference, inf_reference=inf_reference, nonfinite_new=new
    )


def _measured(nothing: OutputErrors, pairs: Pairs) -> OutputErrors:
    """Errors of single values, which judge nothing."""
    error = np.concatenate([_error(*pair).ravel() for pair in pairs])
    reference, other = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    return replace(
        nothing,
        max_abs=float(error.max()),
        p99_abs=float(np.percentile(error, 99, method="higher")),
        cosine=_cosine(reference, other, error),
    )


def _error(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """|other - reference|, 0 where both are NaN."""
    return np.where(np.isnan(reference) & np.isnan(other), 0.0, absolute_error(reference, other))


def _unlike(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """bool: one is NaN or Inf, and the other is not the same."""
    same = (reference == other) | (np.isnan(reference) & np.isnan(other))
    return np.asarray(~same & ~(np.isfinite(reference) & np.isfinite(other)))


def _judged_nonfinite(name: str, measured: OutputErrors, pairs: Pairs) -> OutputErrors:
    if measured.nonfinite_new:
        nan = sum(int((np.isfinite(r) & np.isnan(c)).sum()) for r, c in pairs)
        reason = f"{nan} NaN and {measured.nonfinite_new - nan} Inf of {measured.elements} values"
        reason = coded("not-finite", f"output {name!r}: {reason} where the reference is finite")
        return replace(measured, passed=False, reason=reason)
    if any((_unlike(r, c) & np.isinf(r)).any() for r, c in pairs):
        reason = f"output {name!r}: a finite value or another Inf where the reference is Inf"
        return replace(measured, passed=False, reason=coded("outputs-differ", reason))
    reason = f"output {name!r}: the reference holds NaN where the file does not: nothing can be compared with them"
    return replace(measured, reason=coded("not-finite", reason))


def _judged_exact(name: str, nothing: OutputErrors, pairs: Pairs, floor: float, response: Response) -> OutputErrors:
    numbers = all(side.dtype.kind in "fiub" for pair in pairs for side in pair)
    largest = max((float(absolute_error(*pair).max(initial=0.0)) for pair in pairs), default=0.0) if numbers else None
    different, excused = _changed(pairs, floor, response)
    share = different / nothing.elements
    passed = different <= excused
    count = f"{nothing.elements} {nothing.dtype} values"
    reason = coded("outputs-differ", f"output {name!r}: {different} of {count} differ")
    if passed:
        reason = f"output {name!r}: {nothing.elements - different} of {count} are equal"
    return replace(nothing, rms=share, max_abs=largest, passed=passed, reason=reason)


def _changed(pairs: Pairs, floor: float, response: Response) -> tuple[int, int]:
    """How many values differ, and how many may: SLACK times as many as half a step of the input turns, CAP floors at
    most, if it turns half of the same ones, too.
    """
    unequal = [_not_equal(*pair) for pair in pairs]
    different = sum(int(each.sum()) for each in unequal)
    if not different:
        return 0, 0
    draws = [[_not_equal(r, moved) for (r, _), moved in zip(pairs, draw, strict=True)] for draw in response.draws()]
    if not draws:
        return different, 0
    turned = [np.logical_or.reduce(each) for each in zip(*draws, strict=True)]
    shared = sum(int((a & b).sum()) for a, b in zip(unequal, turned, strict=True))
    usual = sum(int(each.sum()) for draw in draws for each in draw) / len(draws)
    most = min(SLACK * usual, CAP * floor * sum(each.size for each in unequal))
    return different, int(most) if 2 * shared >= different else 0


def _not_equal(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray(reference != other)


def _with_whole_numbers(
    name: str, measured: OutputErrors, pairs: Pairs, floor: float, response: Response
) -> OutputErrors:
    """Judge columns of whole numbers, of which an error that the yardstick allows makes others."""
    widths = {reference.shape[-1:] for reference, _ in pairs}
    one_width = len(widths) == 1 and pairs[0][0].ndim > 1

    def columns(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, array.shape[-1] if one_width else 1)

    tables = [tuple(map(columns, pair)) for pair in pairs if pair[0].size]
    whole = np.ones(tables[0][0].shape[1], bool)
    for table in tables:
        for side in table:
            finite = np.where(np.isfinite(side), side, 0.5)
            whole &= ((np.rint(finite) == finite) & (np.abs(finite) <= _MOST_WHOLE)).all(axis=0)
    if not whole.any() or not any((r != c)[:, whole].any() for r, c in tables):
        return measured

    def draws() -> Draws:
        return [[columns(each)[:, whole] for each in draw if each.size] for draw in response.draws()]

    chosen = [(r[:, whole], c[:, whole]) for r, c in tables]
    different, excused = _changed(chosen, floor, replace(response, draws=draws))
    if different <= excused:
        return measured
    count = sum(r.size for r, _ in chosen)
    reason = f"{different} of {count} whole numbers in output {name!r} are others, and rounding explains none of them"
    return replace(measured, passed=False, reason=coded("outputs-differ", reason))


def _cosine(reference: np.ndarray, other: np.ndarray, error: np.ndarray) -> float | None:
    """r . c / (|r| |c|) over the elements that are finite; 1 of two zero vectors, 0 where only one is zero."""
    if np.isinf(error).any():
        return None
    finite = np.isfinite(reference)  # and so is the other there: no error is infinite
    a, b = (np.asarray(each, np.float64)[finite] for each in (reference, other))
    largest = [float(np.abs(each).max(initial=0.0)) for each in (a, b)]
    if not all(largest):
        return float(largest[0] == largest[1])
    a, b = a / largest[0], b / largest[1]  # squares of what is left cannot overflow
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))
