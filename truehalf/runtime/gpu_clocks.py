"""Clocks of CUDA's first GPU, on which engines are timed: a latency says little without them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from truehalf.runtime.cuda_driver import gpu_uuid
from truehalf.runtime.machine import nvidia_smi

Clocks = dict[str, float | str | None]
_CLOCKS = {  # what nvidia-smi calls it -> key
    "clocks.current.sm": "sm_mhz",
    "clocks.max.sm": "sm_max_mhz",
    "clocks.current.memory": "memory_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "pstate": "performance_state",
}


def clocks_during(work: Callable[[], object]) -> Clocks | None:
    """As `gpu_clocks`, with work done again and again until nvidia-smi has answered: an idle GPU lowers its clocks.

    Args:
        work: waits for the GPU before it returns.
    """
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(gpu_clocks)
        work()
        while not answer.done():
            work()
        return answer.result()


def gpu_clocks() -> Clocks | None:
    """Clocks (MHz), temperature (degrees Celsius) and power (W) by nvidia-smi; None without it."""
    uuid = gpu_uuid()  # CUDA_VISIBLE_DEVICES may number GPUs otherwise than nvidia-smi does
    rows = nvidia_smi(_CLOCKS, "--format=csv,noheader,nounits", *([f"--id={uuid}"] if uuid else []))
    return dict(zip(_CLOCKS.values(), map(_number, rows[0]), strict=True)) if rows else None


def _number(cell: str) -> float | str | None:
    try:
        return float(cell)
    except ValueError:
        return None if cell.startswith("[") else cell  # "[N/A]", "[Not Supported]"
