"""Height and width that vary: other sizes of the inputs to check a trace at, and what to say where it does not hold.

A side s becomes 3/4 s and 5/4 s, rounded outwards to multiples of 32 (of 16, 14, 8, 4 or 2 where s is none of 32): two
sizes that were not traced. Height and width take opposite ones, unless their axes have one name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.spec import InputSpec

Arrays = Mapping[str, np.ndarray]
Axes = Mapping[str, Mapping[int, str]]
_STEPS = (32, 16, 14, 8, 4, 2, 1)
REMEDY = (
    "take it out of trace.dynamic_axes, or let forward compute what depends on it from tensor.shape, without int() and "
    "without numbers kept from another call (`truehalf lint --explain baked-item`)"
)


def step(side: int) -> int:
    """In what steps a side of images varies: the first of 32, 16, 14, 8, 4 and 2 that divides it, else 1."""
    return next(step for step in _STEPS if side % step == 0)


def other_sides(side: int) -> tuple[int, int]:
    """Two other lengths of a side, the smaller one first."""
    by = step(side)
    smaller, larger = side * 3 // 4 // by * by, -(-side * 5 // (4 * by)) * by
    return (smaller, larger) if smaller >= by else (larger, larger + by)


def at_other_sizes(inputs: Sequence[InputSpec], axes: Axes) -> list[list[InputSpec]]:
    """The inputs at two other sizes of their images; empty where no image's height or width varies."""
    changed = [[_resized(each, axes.get(each.name, {}), pick) for each in inputs] for pick in (0, 1)]
    return changed if changed[0] != list(inputs) else []


def _resized(entry: InputSpec, axes: Mapping[int, str], pick: int) -> InputSpec:
    if entry.kind != "images" or entry.size is None:
        return entry
    first = 1 if entry.layout == "NHWC" else 2
    one_name = axes.get(first) == axes.get(first + 1)
    sides = [
        other_sides(side)[pick if position == 0 or one_name else 1 - pick] if first + position in axes else side
        for position, side in enumerate(entry.size)
    ]
    shape = (*entry.sides[:first], *sides, *entry.sides[first + 2 :])
    return replace(entry, size=tuple(sides), shape=shape)


def other_axes(feed: Arrays, example: Arrays) -> list[tuple[str, int]]:
    """(input, axis) of every axis, the batch apart, on which a feed is of another size than the example."""
    return [
        (name, axis)
        for name, array in feed.items()
        for axis in range(1, array.ndim)
        if array.ndim == example[name].ndim and array.shape[axis] != example[name].shape[axis]
    ]


def varying_axes(runs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, list[int]]:
    """By output, the axes on which runs differ in size."""
    varying: dict[str, list[int]] = {}
    for name in runs[0] if runs else ():
        shapes = [run[name].shape for run in runs]
        ranks = {len(shape) for shape in shapes}
        varying[name] = [axis for axis in range(min(ranks)) if len({shape[axis] for shape in shapes}) > 1]
    return varying


def refusal(feed: Arrays, example: Arrays, axes: Axes, what: str) -> StageError:
    """The error for a size at which a trace does not hold.

    Args:
        feed: of another size than the example.
        axes: names of the axes, by input.
        what: what went wrong with it.
    """
    changed = other_axes(feed, example)
    symbols = [axes.get(name, {}).get(axis, "not named") for name, axis in changed]
    named = ", ".join(
        f"axis {axis} of {name!r} ({symbol})" for (name, axis), symbol in zip(changed, symbols, strict=True)
    )
    sizes = ", ".join(
        f"{name} {list(feed[name].shape)} (traced at {list(example[name].shape)})"
        for name in dict.fromkeys(name for name, _ in changed)
    )
    return StageError("axis-fixed", f"{named} cannot vary: at {sizes}, {what}; {REMEDY}")
