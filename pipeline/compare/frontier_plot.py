"""The frontier as an image: one panel for each pair of an error and a cost.

Runs are numbers, as in the table beside. Shape and fill carry the meaning, colour only repeats it: full circle on the
frontier, empty one beaten by another run, a cross outside its gates, a ring around the chosen run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pipeline.compare.compared_runs import ComparedRun
from pipeline.compare.frontier import Axis, front_of, points
from truehalf.report.drawings import Panel, panels

_NUMBERED = 30  # beyond that many runs, only those on the frontier and the chosen one carry their number
_EDGE = 0.25  # of what runs span that have not failed: how far beyond it a failed one is drawn
_TOGETHER = 3  # numbers at one point; of further ones, how many there are
_CHARACTER, _LINE = 0.035, 0.06  # of an annotation, as shares of what a panel spans


def drawn(
    runs: Sequence[ComparedRun], axes: tuple[Sequence[Axis], Sequence[Axis]], chosen: int | None, first: int = 0
) -> str:
    """SVG; equal runs give equal text.

    Args:
        runs: of one group.
        axes: errors and costs.
        chosen: position of the run with the ring.
        first: how many runs other groups have before; numbers go on from there.
    """
    rows = [[_panel(runs, (error, cost), chosen, first) for cost in axes[1]] for error in axes[0]]
    return panels(rows)


def _panel(runs: Sequence[ComparedRun], axes: tuple[Axis, Axis], chosen: int | None, first: int) -> Panel:
    error, cost = axes
    failed = {position for position, run in enumerate(runs) if run.verdict in ("failed", "crashed")}
    placed, best = within(points(runs, error, cost), failed), front_of(runs, error, cost)
    alike: dict[str, list[tuple[float, float]]] = {"empty": [], "cross": [], "full": []}
    for position, point in enumerate(placed):
        if point is not None:
            alike["cross" if position in failed else "full" if position in best else "empty"].append(point)
    shown = {p for p in range(len(runs)) if len(runs) <= _NUMBERED or p in best or p == chosen}
    return Panel(
        points=alike,
        line=sorted({point for position in best if (point := placed[position]) is not None}),
        ring=None if chosen is None else placed[chosen],
        labels=named(placed, shown, first),
        x=cost.label,
        y=error.label,
    )


def within(placed: Sequence[tuple[float, float] | None], failed: Collection[int]) -> list[tuple[float, float] | None]:
    """Points, those of failed runs moved to the edge of what the others span where they lie beyond it: one error of a
    broken file would leave the others a line. Without others, and for what is not finite, as they are and None.
    """
    finite = [point if point and all(map(math.isfinite, point)) else None for point in placed]
    kept = [point for position, point in enumerate(finite) if point and position not in failed]
    if not kept:
        return finite
    low, high = ([pick(side) for side in zip(*kept, strict=True)] for pick in (min, max))
    edges = [
        (a - _EDGE * (b - a or abs(b) or 1), b + _EDGE * (b - a or abs(b) or 1)) for a, b in zip(low, high, strict=True)
    ]

    def moved(point: tuple[float, float]) -> tuple[float, float]:
        x, y = (min(max(value, a), b) for value, (a, b) in zip(point, edges, strict=True))
        return x, y

    return [moved(point) if point and position in failed else point for position, point in enumerate(finite)]


def named(
    placed: Sequence[tuple[float, float] | None], shown: Collection[int], first: int = 0
) -> list[tuple[tuple[float, float], str]]:
    """The numbers of runs, each at its point; runs whose numbers would lie upon each other have them in one place."""
    present = {position: point for position in sorted(shown) if (point := placed[position]) is not None}
    spans = [(max(side) - min(side)) or 1.0 for side in zip(*present.values(), strict=True)]
    groups: list[list[int]] = []
    for position in sorted(present, key=lambda each: present[each]):  # from left to right
        for group in groups:
            (x, y), (left, level) = present[position], present[group[0]]
            width = _CHARACTER * (len(_listed(group)) + 1)
            if (x - left) / spans[0] <= width and abs(y - level) / spans[1] <= _LINE:
                group.append(position)
                break
        else:
            groups.append([position])
    return [(present[group[0]], _listed(sorted(group), first)) for group in groups]


def _listed(positions: Sequence[int], first: int = 0) -> str:
    numbers = [str(first + position + 1) for position in positions[:_TOGETHER]]
    return ", ".join(numbers) + (f" +{len(positions) - _TOGETHER}" if len(positions) > _TOGETHER else "")
