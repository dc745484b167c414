"""Clocks of the GPU that torch uses: a latency says little without them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

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
    chosen = _chosen()  # torch's current device is that of this thread
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(gpu_clocks, chosen)
        work()
        while not answer.done():
            work()
        return answer.result()


def gpu_clocks(chosen: Sequence[str] | None = None) -> Clocks | None:
    """Clocks (MHz), temperature (degrees Celsius) and power (W) of torch's GPU by nvidia-smi; None without it.

    Args:
        chosen: nvidia-smi's option for the GPU; by default for torch's current one.
    """
    if not shutil.which("nvidia-smi"):  # torch need not be there then
        return None
    options = _chosen() if chosen is None else chosen
    rows = nvidia_smi(_CLOCKS, "--format=csv,noheader,nounits", *options)
    return dict(zip(_CLOCKS.values(), map(_number, rows[0]), strict=True)) if rows else None


def _chosen() -> list[str]:
    """The option that names torch's GPU, which CUDA_VISIBLE_DEVICES may number otherwise than nvidia-smi does."""
    import torch

    if not torch.cuda.is_available():
        return []
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return [f"--id=GPU-{uuid}"] if uuid else []


def _number(cell: str) -> float | str | None:
    try:
        return float(cell)
    except ValueError:
        return None if cell.startswith("[") else cell  # "[N/A]", "[Not Supported]"
