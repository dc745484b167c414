"""What differs on each sample, and which differ most: NaN and Inf first, then lost and new detections, then errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.detections import Matching
from truehalf.verification.metrics.plain_outputs import errors_by_sample, judged_alone
from truehalf.verification.runs import Run

_SPREADS = ("box_error_px_max", "score_error_max", "low_score_error_max", "rank_error_max")


def facts_by_sample(runs: Sequence[Run], matchings: Sequence[Matching], spec: IoSpec) -> list[dict[str, Any]]:
    """A row for each sample, in their order; for a run whose axis 0 counts none, one.

    Args:
        runs: at least one.
        matchings: by sample; empty where nothing was compared.
        spec: says which outputs have a tensor error (truehalf.verification.metrics.plain_outputs).
    """
    errors = errors_by_sample(runs, judged_alone(runs, spec))
    places = [(run, row, name) for run in runs for row, name in enumerate(run.names[: max(run.rows, 1)])]
    rows = []
    for i, (run, row, name) in enumerate(places):
        one = matchings[i] if run.rows and i < len(matchings) else None
        spreads = (one.box_error_px, one.score_error, one.low_score_error, one.rank_error) if one else ()
        largest = [float(np.abs(each).max(initial=0.0)) for each in spreads] or [0.0] * len(_SPREADS)
        rows.append(
            {
                "sample": name,
                "reference": one.reference if one else 0,
                "matched": one.reference - one.missed if one else 0,
                "missed": one.missed if one else 0,
                "label_flips": len(one.relabelled) if one else 0,
                "extra": len(one.extra) if one else 0,
                **dict(zip(_SPREADS, largest, strict=True)),
                "tensor_error": float(errors[i]),
                "nonfinite": sum(_nonfinite(run, row, output) for output in run.candidate),
            }
        )
    return rows


def worst_samples(rows: Sequence[Mapping[str, Any]], count: int, beyond: Sequence[int] = ()) -> list[int]:
    """Positions of the samples that differ most, by rows of `facts_by_sample`; samples in which neither the reference
    nor the file finds anything come last.

    Args:
        beyond: by sample, how many of its queries are beyond the tensor rule; empty where there are none.
    """

    def key(i: int) -> tuple[float, ...]:
        return (*badness(rows[i]), beyond[i] if beyond else 0, rows[i]["reference"] > 0)

    return sorted(range(len(rows)), key=key, reverse=True)[:count]


def badness(row: Mapping[str, Any]) -> tuple[float, ...]:
    """Of a row, what makes a sample worse than another, the heaviest first; nothing but 0 where nothing differs."""
    return (row["nonfinite"], row["missed"] + row["extra"], max(row[name] for name in _SPREADS), row["tensor_error"])


def _nonfinite(run: Run, row: int, output: str) -> int:
    """NaN and Inf of a sample; where the reference has a value for each, those that it has not."""
    values, expected = np.asarray(run.candidate[output]), np.asarray(run.reference[output])
    if values.dtype.kind != "f":
        return 0
    alike = values.shape == expected.shape
    if run.rows and values.ndim and (len(values) == run.rows or not alike):
        values, expected = values[row : row + 1], expected[row : row + 1]
    return int((~np.isfinite(values) & (np.isfinite(expected) if alike else True)).sum())
