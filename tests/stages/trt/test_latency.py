"""Timings: what is measured, how often, and what is made of it."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.trt import latency
from stages.trt.latency import gpu_clocks, measure

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
    monkeypatch.setattr(latency.time, "perf_counter", lambda: float(next(ticks)))
    return engine


def test_every_run_is_timed_by_events_around_it(engine: FakeEngine) -> None:
    feeds = {"images": np.zeros((4, 3, 8, 8))}
    report = measure(engine, feeds, profile=1, warm_up=4, runs=8, rounds=3)  # type: ignore[arg-type]
    assert engine.bound == [1]
    assert report["p50_ms"] == 2.5 and report["rounds"] == [2.5, 2.5, 2.5] and report["spread"] == 0
    assert report["p95_ms"] == np.percentile([1, 2, 3, 4] * 6, 95) and report["p99_ms"] <= 4
    assert report["samples"] == 4 and report["throughput_per_s"] == 8 * 4 / 1.0
    assert report["clocks"] == {"before": {"sm_mhz": 1500.0}, "after": {"sm_mhz": 1500.0}}
    each = ["event", "run", "event", "wait"]
    one_round = ["run"] * 4 + each * 8 + ["run"] * 8 + ["wait"]
    assert engine.log == ["clocks"] + one_round * 3 + ["run"] * 8 + ["clocks", "wait"]


def test_the_noise_between_rounds_is_told(engine: FakeEngine) -> None:
    engine.times = [2.0] * 8 + [2.5] * 4 + [0.0] * 4
    report = measure(engine, {"x": np.zeros(())}, warm_up=0, runs=4, rounds=2)  # type: ignore[arg-type]
    assert report["rounds"] == [2.0, 2.5] and report["spread"] == 0.25 and report["samples"] == 1


ANSWER = "1980, 2100, 3200, 41, 120.55, P0\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            ANSWER,
            {
                "sm_mhz": 1980.0,
                "sm_max_mhz": 2100.0,
                "memory_mhz": 3200.0,
                "temperature_c": 41.0,
                "power_w": 120.55,
                "performance_state": "P0",
            },
        ),
        ("1980, 2100, 3200, 41, [N/A], P0\n", {"power_w": None}),
        ("", None),
        ("Unable to determine the device handle\n", None),
    ],
)
def test_clocks_are_what_nvidia_smi_says(
    monkeypatch: pytest.MonkeyPatch, answer: str, expected: dict[str, Any] | None
) -> None:
    commands = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(latency.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(latency.subprocess, "run", run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12ab"))
    clocks = gpu_clocks()
    assert clocks is None if expected is None else clocks is not None and clocks | expected == clocks
    assert commands[0][-1] == "--id=GPU-12ab", "torch's GPU, whatever its number"


def test_there_are_no_clocks_without_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency.shutil, "which", lambda name: None)
    assert gpu_clocks() is None

    def failing(*_: Any, **__: Any) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    monkeypatch.setattr(latency.shutil, "which", lambda name: name)
    monkeypatch.setattr(latency.subprocess, "run", failing)
    assert gpu_clocks() is None
