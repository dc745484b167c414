"""Capabilities of this machine: its GPU, TensorRT and its plugins, ONNX Runtime and its execution providers."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypedDict

from truehalf.files import file_sha256
from truehalf.runtime.cuda_driver import Gpu, described_by, driver, uuid_of


class Machine(TypedDict):
    """The content of artifacts/inputs/machine.json; `probe` says what the keys mean."""

    platform: str
    processor: str | None
    gpus: list[Gpu] | None
    tensorrt: str | None
    tensorrt_rtx: str | None
    plugins: dict[str, str | None]
    onnxruntime: str
    onnxruntime_providers_built: list[str]
    onnxruntime_providers: list[str]


def probe(plugins: Sequence[str] = (), root: Path | None = None, processor: bool = False) -> Machine:
    """What an engine is bound to on this machine, and nothing else: machines of one kind give equal facts.

    platform, operating system and architecture; gpu, the one that is used, the first that CUDA shows (None, or name,
    driver, compute capability and memory); tensorrt, tensorrt_rtx
    (TensorRT for RTX) and onnxruntime, versions or None; plugins, the SHA-256 of each
    file, or None where there is none; and of ONNX Runtime's execution providers those that it was built
    with and those that load (a session reports them; on a machine without a GPU only the CPU provider is tried).

    Args:
        plugins: files with TensorRT plugins (engine.plugins).
        root: the folder that their names are relative to, by default the current one.
        processor: name the processor, too, which latency on the CPU provider depends on; else it is None.
    """
    from truehalf.runtime.ort import installed
    from truehalf.runtime.tensorrt import versions

    gpus = _gpus()
    files = {name: (root or Path.cwd()) / name for name in plugins}
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor() if processor else None,
        "gpus": gpus,
        "tensorrt": versions.tensorrt_version("tensorrt"),
        "tensorrt_rtx": versions.tensorrt_version("tensorrt_rtx"),
        "plugins": {name: file_sha256(file) if file.is_file() else None for name, file in files.items()},
        "onnxruntime": installed.runtime_version(),
        "onnxruntime_providers_built": installed.built_providers(),
        "onnxruntime_providers": installed.loadable_providers() if gpus else ["CPUExecutionProvider"],
    }


# Of /proc/cpuinfo: what kernels and layouts are chosen by.
_INSTRUCTIONS = {
    *("avx", "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_tile", "f16c", "fma"),
    *("asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2"),
}


def _processor() -> str:
    """Its name and its vector instructions; a virtual machine's processor may have the same name with others."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = facts.get("model name") or facts.get("CPU part") or "unknown"
    instructions = _INSTRUCTIONS.intersection((facts.get("flags") or facts.get("Features") or "").split())
    return " ".join([name, *sorted(instructions)])


# --- the GPU ----------------------------------------------------------------------------------------------------------


def _gpus() -> list[Gpu] | None:
    """The GPU that is used, as a list: the first that CUDA shows. How many stand beside it binds no engine. Where the
    driver's library cannot be asked, by nvidia-smi; only nvidia-smi gives the version of the driver.
    """
    cuda, rows = driver(), _gpus_of_nvidia_smi()
    if cuda is None:
        return rows[:1] or None
    if uuid_of(cuda) is None:
        return None
    found = described_by(cuda)
    return [found if not rows else {**found, "driver": rows[0]["driver"]}]


def _gpus_of_nvidia_smi() -> list[Gpu]:
    rows = nvidia_smi(("name", "driver_version", "compute_cap", "memory.total"), "--format=csv,noheader")
    return [{"name": row[0], "driver": row[1], "compute_capability": row[2], "memory": row[3]} for row in rows]


def nvidia_smi(keys: Collection[str], *options: str) -> list[list[str]]:
    """What nvidia-smi says of these keys, a row for each GPU; nothing where it is not there, or fails."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(keys)}", *options]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return []
    rows = ([cell.strip() for cell in line.split(",")] for line in answer.splitlines())
    return [row for row in rows if len(row) == len(keys)]
