"""One output of two files, measured and judged.

tensor rule    no NaN or Inf where the reference is finite, integers and bools equal, and
               max |o - r| <= max(tolerance * max |r|, FLOOR)           r: reference, o: candidate; max over all runs
NaN            equals nothing, not even a NaN: where the reference itself holds one, nothing can be compared with it,
               and the output is not verified
Inf            equals an Inf of its sign, as in a mask; everything else is infinitely far from it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.verification.metrics.tensors import absolute_error

FLOOR = 4 * 2.0**-24  # steps of FP16 next to 0: of a smaller error, rounding may be the cause, whatever the reference
Pairs = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output o over all runs, r being the reference's; see docs/reference/verification.md.

    Attributes:
        dtype: of the reference's array ("float32", "int64", ...); float16 appears as float32 under emulation.
        elements: of the reference.
        max_abs, p99_abs, mean_abs: of |o - r|, infinite with a NaN on either side or an Inf on one; None of strings and
            of unequal shapes.
        max_rel: max of |o - r| / max(|r|, floor), floor = 0.001 max |r|; None as max_abs.
        cosine: r . o / (|r| |o|); None where an error is infinite, and of outputs that are no floats.
        sqnr_db: 10 log10(sum r^2 / sum (o - r)^2), dB; Inf when equal; None of outputs that are no floats.
        nan, inf: in the candidate; nan_reference, inf_reference: in the reference.
        nonfinite_new: NaN and Inf in the candidate where the reference is finite.
        limit: the largest max_abs that passes; 0 of integers, None where the tensor rule does not judge.
        paired: whether rows were paired as queries first.
        queries_beyond: of paired rows, the share (0..1) with a value beyond the tensor rule; else None.
        confident_max_abs: of paired rows, over the queries whose reference score reaches the threshold; else None.
        passed: True, False, or None: not verified.
        reason: why it did not pass; empty when it did.
    """

    dtype: str
    elements: int
    max_abs: float | None = None
    p99_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    sqnr_db: float | None = None
    nan: int = 0
    inf: int = 0
    nan_reference: int = 0
    inf_reference: int = 0
    nonfinite_new: int = 0
    limit: float | None = None
    paired: bool = False
    queries_beyond: float | None = None
    confident_max_abs: float | None = None
    passed: bool | None = None
    reason: str = ""

    @property
    def sure_max_abs(self) -> float | None:
        """The largest error, of queries over the confident ones; None where the tensor rule does not judge."""
        return self.confident_max_abs if self.paired or self.limit is None else self.max_abs


def output_errors(name: str, pairs: Pairs, tolerance: float, places: Sequence[str]) -> OutputErrors:
    """Measure an output by the tensor rule.

    Args:
        name: of the output, for the reasons.
        pairs: (reference, candidate) of each run.
        tolerance: see the tensor rule.
        places: what the runs are called.
    """
    nothing = OutputErrors(str(pairs[0][0].dtype), sum(reference.size for reference, _ in pairs))
    for (reference, other), place in zip(pairs, places, strict=True):
        if reference.shape != other.shape:
            wrong = f"output {name!r}: expected shape {list(reference.shape)}, got {list(other.shape)} on {place}"
            return replace(nothing, **_counts(pairs), passed=False, reason=coded("wrong-shape", wrong))
    if not nothing.elements:
        empty = f"output {name!r} is empty in every run: nothing was compared"
        return replace(nothing, reason=coded("nothing-compared", empty))
    a, b = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":  # strings
        different = int((a != b).sum())
        reason = coded("outputs-differ", f"output {name!r}: {different} of {a.size} values differ") if different else ""
        return replace(nothing, passed=not different, reason=reason)
    measured = tensor_errors(a, b)
    is_float = a.dtype.kind == "f"
    limit, passed, reason = _judged_floats(a, b, measured, tolerance) if is_float else _judged_integers(a, b)
    reason = coded("outputs-differ", f"output {name!r}: {reason}") if reason else ""
    return replace(measured, limit=limit, passed=passed, reason=reason)


def tensor_errors(reference: np.ndarray, other: np.ndarray) -> OutputErrors:
    """How far a tensor is from its reference, element by element, not judged; all errors of empty tensors are 0.

    Args:
        reference, other: numbers of one shape; compared in float64.

    Raises:
        StageError: when the shapes differ.
    """
    error = absolute_error(reference, other)
    magnitude = np.abs(np.asarray(reference, np.float64))
    floor = 1e-3 * float(magnitude[np.isfinite(magnitude)].max(initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(error == 0, 0.0, error / np.maximum(magnitude, floor))
    is_float = reference.dtype.kind == "f"
    return OutputErrors(
        dtype=str(reference.dtype),
        elements=int(error.size),
        max_abs=float(error.max(initial=0.0)),
        p99_abs=float(np.percentile(error, 99, method="higher")) if error.size else 0.0,
        mean_abs=float(error.mean()) if error.size else 0.0,
        max_rel=float(np.where(np.isnan(relative), np.inf, relative).max(initial=0.0)),
        cosine=_cosine(reference, other, error) if is_float else None,
        sqnr_db=_sqnr_db(reference, error) if is_float else None,
        nan=int(np.isnan(other).sum()),
        inf=int(np.isinf(other).sum()),
        nan_reference=int(np.isnan(reference).sum()),
        inf_reference=int(np.isinf(reference).sum()),
        nonfinite_new=int((np.isfinite(reference) & ~np.isfinite(other)).sum()),
    )


def _counts(pairs: Pairs) -> dict[str, Any]:
    """NaN and Inf where shapes differ; new are those that the reference has not as many of."""
    if any(each.dtype.kind != "f" for pair in pairs for each in pair):
        return {}
    nan, inf = (
        [sum(int(test(pair[side]).sum()) for pair in pairs) for side in (0, 1)] for test in (np.isnan, np.isinf)
    )
    new = max(nan[1] + inf[1] - nan[0] - inf[0], 0)
    return {"nan": nan[1], "inf": inf[1], "nan_reference": nan[0], "inf_reference": inf[0], "nonfinite_new": new}


def _judged_integers(a: np.ndarray, b: np.ndarray) -> tuple[float, bool, str]:
    different = int((a != b).sum())
    kind = "bool" if a.dtype.kind == "b" else "integer"
    return 0.0, not different, f"{different} of {a.size} {kind} values differ, expected equal ones" if different else ""


def _judged_floats(
    a: np.ndarray, b: np.ndarray, measured: OutputErrors, tolerance: float
) -> tuple[float, bool | None, str]:
    """The limit, whether the tensor rule holds, and why not."""
    magnitude = np.abs(a[np.isfinite(a)].astype(np.float64))
    largest = float(magnitude.max(initial=0.0))
    limit = max(tolerance * largest, FLOOR)
    comparable = ~np.isnan(a)
    error = float(absolute_error(a[comparable], b[comparable]).max(initial=0.0))
    if new := measured.nonfinite_new:
        nan = int((np.isfinite(a) & np.isnan(b)).sum())
        reason = f"{nan} NaN and {new - nan} Inf of {a.size} values where the reference is finite"
        return limit, False, coded("not-finite", reason)
    if error > limit:
        where = "a finite value or another Inf where the reference is Inf" if np.isinf(error) else _beyond(error, limit)
        return limit, False, f"{where} (tolerance {tolerance:g} of max |reference| {largest:.4g})"
    if nan := measured.nan_reference:
        reason = f"the reference itself holds {nan} NaN of {a.size} values: nothing can be compared with them"
        return limit, None, coded("not-finite", reason)
    return limit, True, ""


def _beyond(error: float, limit: float) -> str:
    return f"max |d| is {error:.4g}, expected at most {limit:.4g}"


def _cosine(reference: np.ndarray, other: np.ndarray, error: np.ndarray) -> float | None:
    """r . o / (|r| |o|) over the elements that are finite in both; 1 of two zero vectors, 0 where only one is zero."""
    if np.isinf(error).any():
        return None
    finite = np.isfinite(reference)  # and so is the other there: no error is infinite
    a, b = (np.asarray(each, np.float64)[finite] for each in (reference, other))
    largest = [float(np.abs(each).max(initial=0.0)) for each in (a, b)]
    if not all(largest):
        return float(largest[0] == largest[1])
    a, b = a / largest[0], b / largest[1]  # squares of what is left cannot overflow
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def _sqnr_db(reference: np.ndarray, error: np.ndarray) -> float:
    """Over the finite elements of r: Inf where there is no error, -Inf where one is infinite or there is no signal."""
    if not error.any():
        return float("inf")
    values = np.asarray(reference, np.float64)
    return 20.0 * (_log10_norm(values[np.isfinite(values)]) - _log10_norm(error.ravel()))


def _log10_norm(values: np.ndarray) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or np.isinf(largest):
        return -np.inf if largest == 0.0 else np.inf
    return float(np.log10(largest) + 0.5 * np.log10(np.square(values / largest).sum()))
