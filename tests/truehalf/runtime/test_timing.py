"""Timings: what is measured, how often, and what nvidia-smi says of the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.truehalf.runtime.test_machine import fake_nvidia_smi
from truehalf.config.engine import LatencyConfig
from truehalf.runtime import timing
from truehalf.runtime.timing import timed


class Clock:
    """A clock on which each run takes the next of some times, in ms."""

    def __init__(self, times: list[float]) -> None:
        self.times, self.now, self.runs = times, 0.0, 0

    def run(self) -> None:
        self.now += self.times[self.runs % len(self.times)] / 1e3
        self.runs += 1


def measured(monkeypatch: pytest.MonkeyPatch, times: list[float], options: LatencyConfig) -> tuple[Any, Clock]:
    clock = Clock(times)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    return timed(clock.run, 4, options), clock


def test_rounds_warm_up_and_time_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    row, clock = measured(monkeypatch, [1.0, 2.0, 3.0, 4.0], LatencyConfig(4, 12, 3))
    assert clock.runs == 3 * (4 + 12)
    assert row["p50_ms"] == pytest.approx(2.5) and row["rounds"] == pytest.approx([2.5] * 3)
    assert row["p95_ms"] == pytest.approx(np.percentile([1, 2, 3, 4] * 9, 95)) and row["p99_ms"] <= 4.001
    assert row["samples"] == 4 and row["throughput_per_s"] == pytest.approx(4 / 2.5e-3) and row["clocks"] is None


def test_the_noise_between_rounds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    row, _ = measured(monkeypatch, [2.0] * 10 + [2.5] * 10, LatencyConfig(0, 10, 2))
    assert row["rounds"] == pytest.approx([2.0, 2.5]) and row["spread"] == pytest.approx(0.25)


CLOCKS = ["sm_mhz", "sm_max_mhz", "memory_mhz", "temperature_c", "power_w", "performance_state"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1980, 2100, 3200, 41, 120.55, P0", [1980.0, 2100.0, 3200.0, 41.0, 120.55, "P0"]),
        ("1980, 2100, 3200, 41, [N/A], P0", [1980.0, 2100.0, 3200.0, 41.0, None, "P0"]),
        ("Unable to determine the device handle", None),
    ],
)
def test_clocks_are_those_of_nvidia_smi(
    answer: str, expected: list[Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, f"echo '{answer}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    row = timed(lambda: None, 1, LatencyConfig(0, 10, 2))
    assert row["clocks"] == (None if expected is None else dict(zip(CLOCKS, expected, strict=True)))
