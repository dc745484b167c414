"""Work beside other work: in order, a few at once, and errors where the result is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from truehalf.verification import lanes
from truehalf.verification.lanes import in_lanes, lanes_of, threads_of

WAIT = 20  # seconds, where something would never come


@pytest.mark.parametrize("count", [1, 2])
def test_results_come_in_the_order_of_the_items_and_items_when_they_are_needed(count: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(9):
            taken.append(number)
            yield number

    results = in_lanes(items(), lambda number: number * number, count)
    assert next(results) == 0 and len(taken) <= count + 1, "samples are not read before they can be run"
    assert list(results) == [number * number for number in range(1, 9)] and taken == list(range(9))
    assert list(in_lanes([], abs, count)) == []


def test_two_run_at_once_and_no_more() -> None:
    both, running, most = threading.Barrier(2), [0], [0]

    def work(number: int) -> int:
        running[0] += 1
        most[0] = max(most[0], running[0])
        both.wait(WAIT)  # which one alone would not pass
        running[0] -= 1
        return number

    assert list(in_lanes(range(6), work, 2)) == list(range(6)) and most == [2]


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_comes_where_its_result_would(count: int) -> None:
    results = in_lanes([4, 2, 0, 1], lambda number: 8 // number, count)
    assert [next(results), next(results)] == [2, 4]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize(
    ("processors", "runs", "expected"),
    [(1, 20, (1, 0)), (2, 20, (2, 1)), (16, 20, (2, 8)), (16, 1, (1, 0)), (2, 0, (1, 0))],
)
def test_lanes_share_the_processors(
    processors: int, runs: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_processors", lambda: processors)
    assert (lanes_of(runs), threads_of(lanes_of(runs))) == expected


@pytest.mark.parametrize(
    ("files", "runs", "threads"),
    [
        ({"cpu.max": "max 100000\n"}, 2, 32),
        ({"cpu.max": "200000 100000\n"}, 2, 1),
        ({"cpu.max": "150000 100000\n"}, 2, 1),
        ({"cpu.max": "50000 100000\n"}, 1, 1),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2, 32),
        ({}, 2, 32),
    ],
)
def test_threads_are_those_of_the_containers_quota(
    files: dict[str, str], runs: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 processors, of which a container may have two: 32 threads a run would wait for each other."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(lanes, "_CGROUP", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64), raising=False)
    assert lanes_of(10) == runs and threads_of(runs) == threads
