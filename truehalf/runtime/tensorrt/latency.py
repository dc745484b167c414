"""How long an engine takes on the GPU, measured more than once, with the clocks that it was measured at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.runtime.gpu_clocks import clocks_during, gpu_clocks

if TYPE_CHECKING:
    from truehalf.runtime.tensorrt.run import Engine


def measure(
    engine: Engine,
    feeds: Mapping[str, np.ndarray],
    *,
    profile: int = 0,
    samples: int,
    warm_up: int,
    runs: int,
    rounds: int,
) -> dict[str, Any]:
    """Time the engine alone: inputs and outputs stay on the GPU.

    Each round warms up, times every run by CUDA events around it, and then times all runs queued one after the other.

    Args:
        engine: with the plugins and weights that it needs.
        feeds: inputs of one call.
        profile: number of the optimization profile.
        samples: how many samples that call takes, for the throughput.
        warm_up: runs before each round that are not measured.
        runs: measured runs of a round, 1 or more.
        rounds: 1 or more; two or more show the noise between timings of one engine.

    Returns:
        p50_ms, p95_ms, p99_ms of one run over all rounds; rounds: the p50 of each, in ms; spread: (largest - smallest
        p50 of a round) / smallest; samples: in one run; throughput_per_s: samples per second when runs are queued, the
        median round's; clocks: `gpu_clocks` {before: as found, after: with runs queued until nvidia-smi had
        answered}.

    Raises:
        StageError: for feeds that do not fit the engine or the profile, or when TensorRT does not run.
    """
    import torch

    engine.bind(feeds, profile)
    before = gpu_clocks()
    each: list[np.ndarray] = []
    queued: list[float] = []
    for _ in range(rounds):
        for _ in range(warm_up):
            engine.enqueue()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]  # type: ignore[no-untyped-call]
        for start, stop in events:
            start.record(engine.stream)
            engine.enqueue()
            stop.record(engine.stream)
            engine.stream.synchronize()  # one run at a time: latency, not throughput
        each.append(np.array([start.elapsed_time(stop) for start, stop in events]))
        started = time.perf_counter()
        for _ in range(runs):
            engine.enqueue()
        engine.stream.synchronize()
        queued.append(runs * samples / (time.perf_counter() - started))

    def queued_runs() -> None:
        for _ in range(runs):
            engine.enqueue()
        engine.stream.synchronize()

    after = clocks_during(queued_runs)
    p50, p95, p99 = (float(np.percentile(np.concatenate(each), q)) for q in (50, 95, 99))
    medians = [float(np.median(times)) for times in each]
    return {
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "rounds": medians,
        "spread": (max(medians) - min(medians)) / min(medians) if min(medians) else None,
        "samples": samples,
        "throughput_per_s": float(np.median(queued)),
        "clocks": {"before": before, "after": after},
    }
