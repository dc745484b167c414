"""The frontier as an image: one panel for each pair of an error and a cost.

Runs are numbers, as in the table beside. Shape and fill carry the meaning, colour only repeats it: full circle on the
frontier, empty one beaten by another run, a cross outside its gates, a ring around the chosen run.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import Any

from pipeline.compare.compared_runs import ComparedRun
from pipeline.compare.frontier import Axis, front_of, points

INK = "#767676"  # a page that embeds the image replaces it by its own text colour
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"
_NUMBERED = 30  # beyond that many runs, only those on the frontier and the chosen one carry their number
_TOGETHER = 3  # numbers at one point; of further ones, how many there are
_CHARACTER, _LINE = 0.035, 0.06  # of an annotation, as shares of what a panel spans
_SETTINGS: Any = {
    **{"svg.fonttype": "none", "svg.hashsalt": "truehalf", "font.family": "sans-serif", "font.size": 9},
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


def drawn(runs: Sequence[ComparedRun], errors: Sequence[Axis], costs: Sequence[Axis], chosen: int | None) -> str:
    """SVG, without a display; equal runs give equal text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(3.3 * len(costs) + 0.6, 2.9 * len(errors) + 0.3), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(len(errors), len(costs), squeeze=False)
        for row, error in enumerate(errors):
            for column, cost in enumerate(costs):
                axes = panels[row][column]
                _panel(axes, runs, error, cost, chosen)
                axes.set_xlabel(cost.label if row == len(errors) - 1 else "")
                axes.set_ylabel(error.label if column == 0 else "")
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


_LOOKS: dict[str, dict[str, Any]] = {
    "beaten": {"marker": "o", "edgecolors": GREY, "facecolors": "none"},
    "failed": {"marker": "x", "color": ORANGE},
    "on the front": {"marker": "o", "edgecolors": BLUE, "facecolors": BLUE},
}


def _look(run: ComparedRun, on_front: bool) -> str:
    if run.verdict in ("failed", "crashed"):
        return "failed"
    return "on the front" if on_front else "beaten"


def _panel(axes: Any, runs: Sequence[ComparedRun], error: Axis, cost: Axis, chosen: int | None) -> None:
    placed, best = points(runs, error, cost), front_of(runs, error, cost)
    line = sorted({point for position in best if (point := placed[position]) is not None})
    axes.step([x for x, _ in line], [y for _, y in line], where="post", color=BLUE, linewidth=1.2, zorder=1)
    present = [(position, point) for position, point in enumerate(placed) if point is not None]
    for name, look in _LOOKS.items():  # one call for all alike: a call for each point takes most of the time
        alike = [point for position, point in present if _look(runs[position], position in best) == name]
        if alike:
            axes.scatter(*zip(*alike, strict=True), s=26, zorder=3, **look)
    for position, point in present:
        if position == chosen:
            axes.scatter(*point, s=130, marker="o", facecolors="none", edgecolors=INK, linewidths=1.6, zorder=4)
    shown = {p for p in range(len(runs)) if len(runs) <= _NUMBERED or p in best or p == chosen}
    left, right = (side([point[0] for _, point in present], default=0.0) for side in (min, max))
    for point, there in named(placed, shown):
        to_the_left = point[0] > left + 0.75 * (right - left) > left
        place = {"xytext": (-6, 5), "ha": "right"} if to_the_left else {"xytext": (5, 4)}
        text = axes.annotate(there, point, textcoords="offset points", fontsize=8, **place)
        text.set_in_layout(False)  # else a long one takes the room of the panels
    axes.margins(0.12)
    axes.grid(True, color=GREY, alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


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
