"""Errors between tensors, and the rule by which two runs of one network are the same.

Value rule      |o - r| <= atol + rtol * |r|        r: reference, o: other; a NaN equals nothing, not even a NaN
Run rule        the value rule holds for at least SHARE of all values, and for SHARE_OF_EACH of those of each output:
                a large output hides no small one
Query rule      detectors of the DETR family put their queries in top-k order, so two correct runs may hold the same
                query in different rows. Rows are therefore paired one to one in each image before values are
                compared: the pairing p -> q with the least total of
                    distance(p, q) = sum over outputs of mean(min(1, |o_q - r_p|))
                A value's part ends at 1 so that one truly different query cannot push others out of their pairs.
                Of more rows than MOST_QUERIES (truehalf.io_spec.outputs) those that are off by at most STAYED of the
                largest |r| keep their places; if as many others are left, so do all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.io_spec.outputs import MOST_QUERIES, ROWS, columns_in
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import values_read
from truehalf.verification.findings import NOT_VERIFIED, VERIFIED

SHARE = 0.999  # of the values that must agree: single values at a kink (a sampling cell's border) may differ
SHARE_OF_EACH = 0.9  # of the values of each output, of which there may be few
STAYED = 0.02
_AT_ONCE = 256  # rows, each against all
Outputs = Mapping[str, np.ndarray]


class Parity(TypedDict, total=False):
    """Whether two networks compute the same: "verified", or "not verified" and why.

    `share` is of values for which the tolerance holds, max_abs the largest difference by output; of other heights and
    widths `sizes` has the same beside `inputs`.
    """

    status: str
    reason: str
    samples: int
    batch_sizes: list[int]
    provider: str
    share: float
    max_abs: dict[str, float]
    inputs: dict[str, list[int]]
    sizes: list[Parity]


@dataclass(frozen=True)
class ComparedRuns:
    """Outputs of two networks, compared by the value rule.

    Attributes:
        share: of the values for which it holds; 0 where nothing was compared.
        wrong: by output that has less than SHARE_OF_EACH, its share.
        max_abs: largest difference by output.
        nonfinite: NaN and Inf values, of the reference and of the other.
    """

    share: float
    wrong: dict[str, float]
    max_abs: dict[str, float]
    nonfinite: tuple[int, int]

    @property
    def agree(self) -> bool:
        """True if the run rule holds."""
        return self.share >= SHARE and not self.wrong


def query_outputs(spec: IoSpec) -> list[str]:
    """List the outputs whose axis 1 counts queries, or detections where top-k is inside the model; of anchors in one
    tensor none, as each has its place.
    """
    in_one = {each.name for each in spec.outputs if each.kind == ROWS}
    chosen = {each.name for each in spec.outputs if each.axis == 2 and "score" in columns_in(each)}
    batched = (each.name for each in spec.outputs if columns_in(each) and each.batched is not False)
    return [name for name in batched if name not in in_one or name in chosen]


def rows_in_any_order(reference: ir.Model) -> list[str]:
    """List outputs whose rows are queries: those that the I/O spec declares, else those of three axes selected by a
    TopK.
    """
    if SPEC_KEY in reference.metadata_props:
        return query_outputs(spec_inside(reference))
    ranked = _selected_by_top_k(reference)
    outputs = [value for value in reference.graph.outputs if value.shape is not None and len(value.shape) == 3]
    return [str(value.name) for value in outputs if value in ranked]


def _selected_by_top_k(model: ir.Model) -> set[ir.Value]:
    """Collect the values of the main graph that depend on a TopK."""
    found: set[ir.Value] = set()
    for node in model.graph:
        if node.op_type == "TopK" or any(value in found for value in values_read(node)):
            found.update(node.outputs)
    return found


def outputs_apart(
    reference: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], queries: Collection[str] | None = None
) -> float:
    """Relative RMS difference of the worst output; 1 where its shape differs, Inf where it ceases to be finite.

    Args:
        queries: outputs [N, queries, values] whose rows are put in order of size first, number by number; None: all of
            three axes.
    """
    worst = 0.0
    for name, ours in reference.items():
        if name not in other or ours.dtype.kind != "f":
            continue
        if ours.shape != other[name].shape:
            worst = max(worst, 1.0)
            continue
        a, b = (each.astype(np.float64) for each in (ours, other[name]))
        if ours.ndim == 3 and (queries is None or name in queries):
            a, b = np.sort(a, axis=1), np.sort(b, axis=1)
        counts = np.isfinite(a)
        if not np.isfinite(b[counts]).all():
            return float("inf")
        size = float(np.linalg.norm(a[counts]))
        worst = max(worst, float(np.linalg.norm(b[counts] - a[counts])) / (size or 1.0))
    return worst


def pair_queries(reference: Outputs, other: Outputs, names: Sequence[str]) -> np.ndarray:
    """Pair each row of `reference` with a row of `other`, by the query rule.

    Args:
        reference, other: [images, queries, values], or [images, queries], by name; non-finite values count as far
            away.
        names: the outputs that take part.

    Returns:
        int64 [images, queries].
    """
    from scipy.optimize import linear_sum_assignment

    images, queries = reference[names[0]].shape[:2]
    rows = np.tile(np.arange(queries), (images, 1))
    for image in range(images):
        ours, theirs = ({name: outputs[name][image] for name in names} for outputs in (reference, other))
        left = np.arange(queries) if queries <= MOST_QUERIES else _moved(ours, theirs)
        distance = np.zeros((len(left), len(left)))
        for name in names:
            distance += _distances(ours[name][left], theirs[name][left])
        rows[image, left] = left[linear_sum_assignment(distance)[1]]
    return rows


def _moved(reference: Outputs, other: Outputs) -> np.ndarray:
    """List the rows that are not near those in their places; none if they are too many to be paired."""
    found = np.zeros(len(next(iter(reference.values()))), bool)
    for name, ours in reference.items():
        limit = STAYED * float(np.abs(ours[np.isfinite(ours)]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            near = np.abs(np.asarray(other[name], np.float64) - ours) <= limit
        found |= ~near.reshape(len(found), -1).all(axis=1)
    return np.flatnonzero(found) if found.sum() <= MOST_QUERIES else np.zeros(0, np.int64)


def in_rows(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values [images, queries] or [images, queries, values] in the order that `pair_queries` found."""
    return np.take_along_axis(values, rows.reshape(rows.shape + (1,) * (values.ndim - 2)), axis=1)


def compare_runs(
    runs: Sequence[tuple[Outputs, Outputs]], *, atol: float, rtol: float, queries: Sequence[str] = ()
) -> ComparedRuns:
    """Compare outputs of two networks, run by run (one run: one batch).

    Args:
        runs: (reference, other) outputs by name.
        atol, rtol: of the value rule.
        queries: outputs whose rows are queries, paired before values are compared.

    Raises:
        StageError: when names or shapes differ.
    """
    references: dict[str, list[np.ndarray]] = {}
    others: dict[str, list[np.ndarray]] = {}
    for reference, other in runs:
        _check_alike(reference, other)
        aligned = dict(other)
        if queries:
            rows = pair_queries(reference, other, queries)
            aligned |= {name: in_rows(other[name], rows) for name in queries}
        for name in reference:
            references.setdefault(name, []).append(np.ravel(reference[name]))
            others.setdefault(name, []).append(np.ravel(aligned[name]))
    joined = {name: (np.concatenate(references[name]), np.concatenate(others[name])) for name in references}
    within = {name: _within(*pair, atol, rtol) for name, pair in joined.items()}
    shares = {name: float(each.mean()) for name, each in within.items() if each.size}
    return ComparedRuns(
        share=sum(int(each.sum()) for each in within.values()) / max(sum(each.size for each in within.values()), 1),
        wrong={name: share for name, share in shares.items() if share < SHARE_OF_EACH},
        max_abs={name: float(absolute_error(*pair).max(initial=0.0)) for name, pair in joined.items()},
        nonfinite=(_nonfinite(references), _nonfinite(others)),
    )


def _nonfinite(arrays: Mapping[str, Sequence[np.ndarray]]) -> int:
    return sum(int((~np.isfinite(array)).sum()) for each in arrays.values() for array in each)


def check_runs(
    runs: Sequence[tuple[Outputs, Outputs]],
    spec: IoSpec,
    *,
    atol: float,
    rtol: float,
    sides: tuple[str, str] = ("reference", "other"),
    queries: Sequence[str] | None = None,
) -> Parity:
    """Judge `compare_runs` by the run rule, given what the I/O spec says of outputs and weights.

    Untrained weights score queries nearly or exactly alike, so that rounding decides which are kept, and a detector
    may rightly return others: a difference is then "not verified", never "verified".

    Args:
        queries: see `compare_runs`; None: those of the I/O spec.

    Returns:
        status: "verified" or "not verified", the latter with reason; the others as compare_runs has them.

    Raises:
        StageError: on a NaN or Inf on either side, and on a difference where spec["trained"] (default: true).
    """
    names = query_outputs(spec) if queries is None else queries
    compared = compare_runs(runs, atol=atol, rtol=rtol, queries=names)
    for side, count in zip(sides, compared.nonfinite, strict=True):
        if count:
            raise StageError("not-finite", f"expected finite outputs, got {count} NaN or Inf values from {side}")
    facts: Parity = {"share": compared.share, "max_abs": compared.max_abs}
    if compared.agree:
        return {"status": VERIFIED, **facts}
    if not any(np.size(value) for reference, _ in runs for value in reference.values()):
        return {"status": NOT_VERIFIED, "reason": coded("nothing-compared", "all outputs are empty"), **facts}
    worst = ", ".join(f"{name} {error:.3g}" for name, error in compared.max_abs.items())
    each = "".join(f", on {share:.2%} of {name!r}" for name, share in compared.wrong.items())
    message = (
        f"{sides[0]} and {sides[1]} agree on {compared.share:.2%} of the values{each}, expected {SHARE:.1%}, "
        f"and {SHARE_OF_EACH:.0%} of each output (atol {atol:g}, rtol {rtol:g}; largest differences: {worst})"
    )
    if spec.trained:
        raise StageError("outputs-differ", message)
    reason = coded("weights-random", f"{message}; untrained weights keep arbitrary queries")
    return {"status": NOT_VERIFIED, "reason": reason, **facts}


def _check_alike(reference: Outputs, other: Outputs) -> None:
    """Raise StageError where names differ, or for the first output of another shape than the reference's."""
    if list(reference) != list(other):
        raise StageError("not-comparable", f"outputs: expected {', '.join(reference)}, got {', '.join(other)}")
    for name, value in reference.items():
        if value.shape != other[name].shape:
            raise StageError(
                "not-comparable", f"output {name!r}: expected shape {list(value.shape)}, got {list(other[name].shape)}"
            )


def _within(reference: np.ndarray, other: np.ndarray, atol: float, rtol: float) -> np.ndarray:
    magnitude = np.abs(np.asarray(reference, np.float64))
    limit = atol + rtol * np.where(np.isfinite(magnitude), magnitude, 0.0)
    return np.asarray(absolute_error(reference, other) <= limit)


def _distances(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[queries, queries]: rows of the reference against rows of the other."""
    r, o = (np.asarray(each, np.float64) for each in (reference, other))
    r, o = (each.reshape(len(each), math.prod(each.shape[1:])) for each in (r, o))  # of no rows, too
    found = np.zeros((len(r), len(o)))
    for start in range(0, len(r), _AT_ONCE):
        with np.errstate(invalid="ignore"):
            apart = np.abs(r[start : start + _AT_ONCE, None, :] - o[None, :, :])
        found[start : start + _AT_ONCE] = np.minimum(np.nan_to_num(apart, nan=1.0), 1.0).mean(axis=2)
    return found


def absolute_error(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """|other - reference| of arrays of one shape in float64; equal infinities differ by 0, a NaN from all by Inf."""
    a, b = np.asarray(reference, np.float64), np.asarray(other, np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(a == b, 0.0, np.abs(b - a))
    return np.where(np.isnan(error), np.inf, error)
