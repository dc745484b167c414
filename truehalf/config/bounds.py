"""Bounds of numbers, said of all that are outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truehalf.codes import coded


def outside(values: Mapping[str, float], low: float, high: float | None) -> Iterator[str]:
    """A line for each value below `low`, above `high` (None: no limit) or NaN, by its dotted path."""
    expected = f"{low:g} or more" if high is None else f"{low:g} to {high:g}"
    for path, value in values.items():
        if not value >= low or not (high is None or value <= high):  # NaN is outside, too
            yield coded("out-of-range", f"{path}: expected {expected}, got {value:g}")
