"""The frontier as an image: one panel for each pair of an error and a cost, of runs that have not failed.

Runs are numbers, as in the table beside. Shape and fill carry the meaning, colour only repeats it: full circle on the
frontier, empty one beaten by another run, a ring around the chosen run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline.compare.compared_runs import ComparedRun
from pipeline.compare.frontier import Axis, front_of, points
from truehalf.report.drawings import Panel, panels

_NUMBERED = 30  # beyond that many runs, only those on the frontier and the chosen one carry their number


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
    best = front_of(runs, error, cost)
    placed = {
        position: point
        for position, point in enumerate(points(runs, error, cost))
        if point and all(map(math.isfinite, point)) and not runs[position].has_failed
    }
    numbers: dict[tuple[float, float], list[str]] = {}  # runs at one point have theirs in one place
    for position, point in placed.items():
        if len(runs) <= _NUMBERED or position in best or position == chosen:
            numbers.setdefault(point, []).append(str(first + position + 1))
    return Panel(
        full=[point for position, point in placed.items() if position in best],
        empty=[point for position, point in placed.items() if position not in best],
        line=sorted({placed[position] for position in best if position in placed}),
        ring=None if chosen is None else placed.get(chosen),
        labels=[(point, ", ".join(each)) for point, each in numbers.items()],
        x=cost.label,
        y=error.label,
    )
