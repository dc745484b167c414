"""Latency of a call on the GPU: percentiles over rounds of runs, the noise between rounds, clocks of the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

from truehalf.runtime.machine import gpu_facts

if TYPE_CHECKING:  # readers of reports need the form alone
    from truehalf.config.engine import LatencyConfig

Clocks = dict[str, float | str | None]
_CLOCKS = {  # as nvidia-smi calls it -> key
    "clocks.current.sm": "sm_mhz",
    "clocks.max.sm": "sm_max_mhz",
    "clocks.current.memory": "memory_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "pstate": "performance_state",
}


class Timing(TypedDict):
    """Latency as engine.json has it.

    Attributes:
        p50_ms, p95_ms, p99_ms: of one run, over all rounds.
        rounds: the p50 of each, in ms.
        spread: (largest - smallest p50 of a round) / smallest.
        samples: in one run.
        throughput_per_s: samples per second, of runs one after the other.
        clocks: of the GPU right after the runs; None without nvidia-smi.
    """

    p50_ms: float
    p95_ms: float
    p99_ms: float
    rounds: list[float]
    spread: float | None
    samples: int
    throughput_per_s: float
    clocks: Clocks | None


def timed(once: Callable[[], object], samples: int, options: LatencyConfig) -> Timing:
    """Time a call.

    Args:
        once: one run; it waits for the device before it returns.
        samples: in one run, for the throughput.
        options: numbers of runs and rounds.
    """
    import numpy as np

    rounds = []
    for _ in range(options.rounds):
        for _ in range(options.warm_up):
            once()
        rounds.append(1e3 * np.array([_seconds(once) for _ in range(options.runs)]))
    p50, p95, p99 = (float(np.percentile(np.concatenate(rounds), q)) for q in (50, 95, 99))
    medians = [float(np.median(times)) for times in rounds]
    return {
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "rounds": medians,
        "spread": (max(medians) - min(medians)) / min(medians) if min(medians) else None,
        "samples": samples,
        "throughput_per_s": float(np.median([1e3 * samples * options.runs / times.sum() for times in rounds])),
        "clocks": _clocks(),
    }


def _clocks() -> Clocks | None:
    """Clocks (MHz), temperature (degrees Celsius) and power (W) by nvidia-smi; None without it."""
    cells = gpu_facts(*_CLOCKS, units=False)
    return None if cells is None else dict(zip(_CLOCKS.values(), map(_number, cells), strict=True))


def _number(cell: str) -> float | str | None:
    try:
        return float(cell)
    except ValueError:
        return None if cell.startswith("[") else cell  # "[N/A]", "[Not Supported]"


def _seconds(once: Callable[[], object]) -> float:
    started = time.perf_counter()
    once()
    return time.perf_counter() - started
