"""Timings: what is measured, how often, and what is made of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from truehalf.config.engine import LatencyConfig
from truehalf.runtime.tensorrt import latency
from truehalf.runtime.tensorrt.latency import measure

torch = pytest.importorskip("torch")


class FakeEngine:
    """Counts; its stream is a clock on which each run takes the next of some times."""

    def __init__(self, times: list[float]) -> None:
        self.times, self.now, self.runs, self.bound = times, 0.0, 0, []
        self.log: list[str] = []
        self.stream = SimpleNamespace(synchronize=lambda: self.log.append("wait"))

    def bind(self, feeds: Any, profile: int) -> None:
        self.bound.append(profile)

    def enqueue(self) -> None:
        self.now += self.times[self.runs % len(self.times)]
        self.runs += 1
        self.log.append("run")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine([1.0, 2.0, 3.0, 4.0])

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: Any) -> None:
            assert stream is engine.stream
            engine.log.append("event")
            self.at = engine.now

        def elapsed_time(self, other: Event) -> float:
            return other.at - self.at

    ticks = iter(range(1000))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(latency, "gpu_clocks", lambda: engine.log.append("clocks") or {"sm_mhz": 1500.0})

    def during(work: Any) -> dict[str, float]:
        work()
        engine.log.append("clocks")
        return {"sm_mhz": 1400.0}

    monkeypatch.setattr(latency, "clocks_during", during)
    monkeypatch.setattr(latency.time, "perf_counter", lambda: float(next(ticks)))
    return engine


def test_every_run_is_timed_by_events_around_it(engine: FakeEngine) -> None:
    feeds = {"sizes": np.zeros(2, np.int64), "images": np.zeros((4, 3, 8, 8))}
    report = measure(engine, feeds, profile=1, samples=4, options=LatencyConfig(4, 8, 3))  # type: ignore[arg-type]
    assert engine.bound == [1]
    assert report["p50_ms"] == 2.5 and report["rounds"] == [2.5, 2.5, 2.5] and report["spread"] == 0
    assert report["p95_ms"] == np.percentile([1, 2, 3, 4] * 6, 95) and report["p99_ms"] <= 4
    assert report["samples"] == 4 and report["throughput_per_s"] == 8 * 4 / 1.0
    assert report["clocks"] == {"before": {"sm_mhz": 1500.0}, "after": {"sm_mhz": 1400.0}}
    each = ["event", "run", "event", "wait"]
    one_round = ["run"] * 4 + each * 8 + ["run"] * 8 + ["wait"]
    assert engine.log == ["clocks"] + one_round * 3 + ["run"] * 8 + ["wait", "clocks"]


def test_the_noise_between_rounds_is_told(engine: FakeEngine) -> None:
    engine.times = [2.0] * 8 + [2.5] * 4 + [0.0] * 4
    report = measure(engine, {"x": np.zeros(())}, samples=1, options=LatencyConfig(0, 4, 2))  # type: ignore[arg-type]
    assert report["rounds"] == [2.0, 2.5] and report["spread"] == 0.25 and report["samples"] == 1
