"""Clocks: what nvidia-smi says, and while what."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from truehalf.runtime import gpu_clocks as gpu_clocks_module
from truehalf.runtime import machine
from truehalf.runtime.gpu_clocks import clocks_during, gpu_clocks


def test_work_goes_on_until_the_answer_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi takes longer than two hundred runs of a quick engine."""
    done, enough = [], threading.Event()

    def answer() -> dict[str, float]:
        assert enough.wait(20), "the work stopped before the answer"
        return {"sm_mhz": 1500.0}

    def work() -> None:
        done.append(1)
        if len(done) == 50:
            enough.set()

    monkeypatch.setattr(gpu_clocks_module, "gpu_clocks", answer)
    assert clocks_during(work) == {"sm_mhz": 1500.0} and len(done) >= 50


def test_what_stops_the_work_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = RuntimeError("out of memory")

    def fails() -> None:
        raise fault

    monkeypatch.setattr(gpu_clocks_module, "gpu_clocks", lambda: None)
    with pytest.raises(RuntimeError) as caught:
        clocks_during(fails)
    assert caught.value is fault


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

    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine.subprocess, "run", run)
    monkeypatch.setattr(gpu_clocks_module, "gpu_uuid", lambda: "GPU-12ab")
    monkeypatch.setitem(sys.modules, "torch", None)  # hosts that serve by ONNX Runtime have none
    clocks = gpu_clocks()
    assert clocks is None if expected is None else clocks is not None and clocks | expected == clocks
    assert commands[0][-1] == "--id=GPU-12ab", "CUDA's first, whatever nvidia-smi's number of it"


def test_there_are_no_clocks_without_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert gpu_clocks() is None

    def failing(*_: Any, **__: Any) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    monkeypatch.setattr(machine.shutil, "which", lambda name: name)
    monkeypatch.setattr(machine.subprocess, "run", failing)
    assert gpu_clocks() is None
