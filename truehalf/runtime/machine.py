"""Facts of this machine (GPU, TensorRT and its plugins, ONNX Runtime and its providers), and turns on its GPU."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from truehalf.files import file_sha256, locked

NO_GPU = "no NVIDIA GPU (nvidia-smi finds none)"  # where one is needed
LOCKS = Path("/tmp")  # TMPDIR differs by job on many clusters


class Gpu(TypedDict):
    name: str
    driver: str
    compute_capability: str
    memory: str


class Machine(TypedDict):
    """Content of artifacts/inputs/machine.json: facts that an engine is bound to; equal machines give equal facts.

    Attributes:
        platform: operating system and architecture.
        gpus: the GPU that CUDA shows first, alone; None without one.
        tensorrt, tensorrt_rtx, polygraphy: versions; None if the package cannot be imported.
        plugins: SHA-256 by file; None if there is none.
        onnxruntime: version.
        onnxruntime_providers: execution providers that load; without a GPU only the CPU provider is tried.
    """

    platform: str
    gpus: list[Gpu] | None
    tensorrt: str | None
    tensorrt_rtx: str | None
    polygraphy: str | None
    plugins: dict[str, str | None]
    onnxruntime: str
    onnxruntime_providers: list[str]


def probe(plugins: Sequence[str] = (), root: Path | None = None) -> Machine:
    """Facts of this machine.

    Args:
        plugins: files with TensorRT plugins (engine.plugins).
        root: the folder that their names are relative to, by default the current one.
    """
    from truehalf.runtime import ort

    facts = gpu_facts("name", "driver_version", "compute_cap", "memory.total")
    gpus: list[Gpu] | None = None
    if facts is not None:
        name, driver, capability, memory = facts
        gpus = [{"name": name, "driver": driver, "compute_capability": capability, "memory": memory}]
    files = {name: (root or Path.cwd()) / name for name in plugins}
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "gpus": gpus,
        "tensorrt": package_version("tensorrt"),
        "tensorrt_rtx": package_version("tensorrt_rtx"),
        "polygraphy": package_version("polygraphy"),
        "plugins": {name: file_sha256(file) if file.is_file() else None for name, file in files.items()},
        "onnxruntime": str(package_version("onnxruntime")),
        "onnxruntime_providers": ort.loadable_providers() if gpus else [ort.CPU],
    }


def package_version(module: str) -> str | None:
    """Version of a module; None if it cannot be imported, as a wheel without its libraries."""
    try:
        return str(importlib.import_module(module).__version__)
    except (ImportError, OSError):
        return None


# --- the GPU ----------------------------------------------------------------------------------------------------------


def gpu_facts(*keys: str, units: bool = True) -> list[str] | None:
    """Query nvidia-smi about the GPU that CUDA shows first; None without one.

    CUDA_VISIBLE_DEVICES chooses it: a number as nvidia-smi counts (CUDA_DEVICE_ORDER=PCI_BUS_ID), or a UUID. A slice of
    a GPU (MIG) has the facts of the first GPU.

    Args:
        keys: of `nvidia-smi --query-gpu`.
        units: whether numbers have their unit.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if first in ("", "-1", "NoDevFiles") or not shutil.which("nvidia-smi"):
        return None
    form = "csv,noheader" + ("" if units else ",nounits")
    chosen = [] if first.startswith("MIG") else [f"--id={first}"]
    command = ["nvidia-smi", f"--query-gpu={','.join(keys)}", f"--format={form}", *chosen]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return None
    cells = [cell.strip() for cell in answer.partition("\n")[0].split(",")]
    return cells if len(cells) == len(keys) else None


def file_key(gpu: str) -> str:
    """Name of a GPU for file names: "nvidia-l4" for "NVIDIA L4"."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


@contextlib.contextmanager
def device_lock() -> Iterator[None]:
    """Hold the GPU of this host; print a line and wait while another process of this user measures there.

    Jobs of a sweep may share a GPU: a latency, or a tactic that TensorRT chooses by timing, would be of both together.
    Containers that do not share /tmp do not see each other: there the launcher has to give each job a separate GPU.
    """
    name = (gpu_facts("uuid") or ["gpu"])[0]
    user = os.getuid() if hasattr(os, "getuid") else 0
    waiting = f"another job measures on {name}; waiting for it to end"
    with locked(LOCKS / f"truehalf-{user}-{name}.lock", waiting):
        yield
