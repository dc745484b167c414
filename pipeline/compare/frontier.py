"""The frontier of runs: those that no other run beats in both an error and a cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.compare.compared_runs import ComparedRun

Numbers = Mapping[str, float]
_LATENCY = re.compile(r"engine/p50_ms/\S*opt")


@dataclass(frozen=True)
class Axis:
    """Something that is better when it is smaller.

    Attributes:
        key: on the command line and in tables.
        label: with its unit.
        of: the value of a run, None where it has none.
    """

    key: str
    label: str
    of: Callable[[Numbers], float | None]


def _metric(name: str) -> Callable[[Numbers], float | None]:
    return lambda numbers: numbers.get(name)


def _lacking(name: str) -> Callable[[Numbers], float | None]:
    """What a share lacks of the whole, in percent."""
    return lambda numbers: None if name not in numbers else 100 * (1 - numbers[name])


def _latency(numbers: Numbers) -> float | None:
    """At `opt` of the first profile."""
    return next((numbers[name] for name in sorted(numbers) if _LATENCY.fullmatch(name)), None)


ERRORS = (
    Axis("ap_drop", "AP50-95 lost", _metric("accuracy/ap50_95_drop")),
    Axis("box_error", "box error p99, px", _metric("accuracy/box_error_px_p99")),
    Axis("score_error", "score error p99", _metric("accuracy/score_error_p99")),
    Axis("class_error", "another class, % of samples", _lacking("accuracy/top1_agreement")),
    Axis("tensor_error", "largest error of a tensor, relative", _metric("accuracy/tensor_error")),
)
COSTS = (
    Axis("latency", "latency p50, ms", _latency),
    Axis("fp32_share", "arithmetic in FP32, %", _lacking("fp16/arithmetic_fp16_fraction")),
    Axis("cast_mb", "bytes cast, MB", _metric("fp16/cast_mb/placed")),
    Axis("size_mb", "file, MB", _metric("size_mb/cast_cleanup")),
)


def measured(axes: Sequence[Axis], runs: Sequence[ComparedRun]) -> list[Axis]:
    """Axes on which at least one run has a value."""
    return [axis for axis in axes if any(axis.of(run.numbers) is not None for run in runs)]


def front(points: Sequence[tuple[float, float] | None]) -> list[int]:
    """Positions of the points that no other beats: none is at most as large in both and smaller in one.

    Equal points are all on it. O(n log n).
    """
    found: list[int] = []
    last = (float("-inf"), float("inf"))  # on it, the first values rise, and the second fall
    for point, position in sorted((point, position) for position, point in enumerate(points) if point is not None):
        if point[1] < last[1]:
            last = point
        if point == last:
            found.append(position)
    return sorted(found)


def points(runs: Sequence[ComparedRun], error: Axis, cost: Axis) -> list[tuple[float, float] | None]:
    """(cost, error) of each run; None where it lacks one."""
    values = [(cost.of(run.numbers), error.of(run.numbers)) for run in runs]
    return [None if x is None or y is None else (x, y) for x, y in values]


def front_of(runs: Sequence[ComparedRun], error: Axis, cost: Axis) -> list[int]:
    """Positions of the runs on the frontier; one that failed or crashed is on none."""
    placed = zip(points(runs, error, cost), runs, strict=True)
    return front([None if run.has_failed else point for point, run in placed])


def chosen(runs: Sequence[ComparedRun]) -> int | None:
    """The position of the cheapest run inside its gates; None where no run passed.

    Cheapest: least latency where every such run has one; else the least share of arithmetic in FP32, then the fewest
    bytes cast, then the smallest file.
    """
    passed = [position for position, run in enumerate(runs) if run.verdict == "passed"]
    if not passed:
        return None
    latencies = {position: _latency(runs[position].numbers) for position in passed}
    timed = {position: value for position, value in latencies.items() if value is not None}
    if len(timed) == len(passed):
        return min(passed, key=lambda position: timed[position])

    def cost(position: int) -> list[float]:
        values = [axis.of(runs[position].numbers) for axis in COSTS[1:]]
        return [float("inf") if value is None else round(value, 6) for value in values]

    return min(passed, key=cost)
