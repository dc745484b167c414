"""The frontier as an image: one panel for each pair of an error and a cost.

Runs are numbers, as in the table beside. Shape and fill carry the meaning, colour only repeats it: full circle on the
frontier, empty one beaten by another run, a cross outside its gates, a ring around the chosen run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pipeline.compare.compared_runs import ComparedRun
from pipeline.compare.frontier import Axis, front_of, points
from truehalf.report.drawings import Panel, panels

_NUMBERED = 30  # beyond that many runs, only those on the frontier and the chosen one carry their number
_TOGETHER = 3  # numbers at one point; of further ones, how many there are
_CHARACTER, _LINE = 0.035, 0.06  # of an annotation, as shares of what a panel spans


def drawn(runs: Sequence[ComparedRun], errors: Sequence[Axis], costs: Sequence[Axis], chosen: int | None) -> str:
    """SVG; equal runs give equal text."""
    rows = [[_panel(runs, error, cost, chosen) for cost in costs] for error in errors]
    return panels(rows)


def _panel(runs: Sequence[ComparedRun], error: Axis, cost: Axis, chosen: int | None) -> Panel:
    placed, best = points(runs, error, cost), front_of(runs, error, cost)
    alike: dict[str, list[tuple[float, float]]] = {"empty": [], "cross": [], "full": []}
    for position, point in enumerate(placed):
        if point is not None:
            failed = runs[position].verdict in ("failed", "crashed")
            alike["cross" if failed else "full" if position in best else "empty"].append(point)
    shown = {p for p in range(len(runs)) if len(runs) <= _NUMBERED or p in best or p == chosen}
    return Panel(
        points=alike,
        line=sorted({point for position in best if (point := placed[position]) is not None}),
        ring=None if chosen is None else placed[chosen],
        labels=named(placed, shown),
        x=cost.label,
        y=error.label,
    )


def named(
    placed: Sequence[tuple[float, float] | None], shown: Collection[int]
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
    return [(present[group[0]], _listed(sorted(group))) for group in groups]


def _listed(positions: Sequence[int]) -> str:
    numbers = [str(position + 1) for position in positions[:_TOGETHER]]
    return ", ".join(numbers) + (f" +{len(positions) - _TOGETHER}" if len(positions) > _TOGETHER else "")
