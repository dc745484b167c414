"""Latency of an engine on the GPU, measured more than once, with the clocks that it was measured at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.engine import LatencyConfig
from truehalf.runtime.gpu_clocks import clocks_during, gpu_clocks
from truehalf.runtime.timing import Timing, timing

if TYPE_CHECKING:
    from truehalf.runtime.tensorrt.run import Engine


def measure(
    engine: Engine, feeds: Mapping[str, np.ndarray], *, profile: int = 0, samples: int, options: LatencyConfig
) -> Timing:
    """Time only the engine: inputs and outputs stay on the GPU.

    Each round warms up, times every run by CUDA events around it, and then times all runs queued one after the other.

    Args:
        engine: with the plugins and weights that it needs.
        feeds: inputs of one call.
        profile: number of the optimization profile.
        samples: how many samples that call takes, for the throughput.
        options: numbers of runs and rounds.

    Returns:
        latency of one run; the throughput is that of queued runs, the second clocks are those with runs queued until
        nvidia-smi had answered.

    Raises:
        StageError: for feeds that do not fit the engine or the profile, or when TensorRT does not run.
    """
    import torch

    engine.bind(feeds, profile)
    before = gpu_clocks()
    each: list[np.ndarray] = []
    queued: list[float] = []
    runs = options.runs

    def queued_runs() -> None:
        for _ in range(runs):
            engine.enqueue()
        engine.stream.synchronize()

    for _ in range(options.rounds):
        for _ in range(options.warm_up):
            engine.enqueue()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]  # type: ignore[no-untyped-call]
        for start, stop in events:
            start.record(engine.stream)
            engine.enqueue()
            stop.record(engine.stream)
            engine.stream.synchronize()  # one run at a time: latency, not throughput
        each.append(np.array([start.elapsed_time(stop) for start, stop in events]))
        started = time.perf_counter()
        queued_runs()
        queued.append(runs * samples / (time.perf_counter() - started))

    after = clocks_during(queued_runs)
    return timing(each, samples, queued, {"before": before, "after": after})
