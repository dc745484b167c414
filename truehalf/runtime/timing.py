"""Latency of a call on a device: percentiles over rounds of runs, and the noise between rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from truehalf.runtime.gpu_clocks import Clocks

if TYPE_CHECKING:  # whoever reads a report needs the form alone
    import numpy as np


class BeforeAndAfter(TypedDict):
    """Clocks as they were found, and with runs going on; None where nvidia-smi does not tell."""

    before: Clocks | None
    after: Clocks | None


class Timing(TypedDict):
    """Latency as engine.json has it.

    p50_ms, p95_ms, p99_ms: of one run, over all rounds. rounds: the p50 of each, in ms. spread: (largest - smallest p50
    of a round) / smallest. samples: in one run. throughput_per_s: samples per second. clocks: of a GPU, else None.
    """

    p50_ms: float
    p95_ms: float
    p99_ms: float
    rounds: list[float]
    spread: float | None
    samples: int
    throughput_per_s: float
    clocks: BeforeAndAfter | None


def timing(rounds: Sequence[np.ndarray], samples: int, per_s: Sequence[float], clocks: BeforeAndAfter | None) -> Timing:
    """Summary of measured runs.

    Args:
        rounds: ms of each run, by round.
        samples: in one run.
        per_s: samples per second, by round; the median counts.
    """
    import numpy as np

    p50, p95, p99 = (float(np.percentile(np.concatenate(rounds), q)) for q in (50, 95, 99))
    medians = [float(np.median(times)) for times in rounds]
    return {
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "rounds": medians,
        "spread": (max(medians) - min(medians)) / min(medians) if min(medians) else None,
        "samples": samples,
        "throughput_per_s": float(np.median(per_s)),
        "clocks": clocks,
    }
