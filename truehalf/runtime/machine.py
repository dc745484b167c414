"""Capabilities of this machine: its GPU, TensorRT and its plugins, ONNX Runtime and its execution providers."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from truehalf.runtime.cuda_driver import Gpu, described_by, driver, uuid_of


class Machine(TypedDict):
    """The content of reports/probe.json; `probe` says what the keys mean."""

    platform: str
    processor: str | None
    gpus: list[Gpu] | None
    tensorrt: str | None
    tensorrt_rtx: str | None
    plugins: dict[str, str | None]
    plugin_ops: dict[str, list[str]] | None
    onnxruntime: str
    onnxruntime_providers_built: list[str]
    onnxruntime_providers: list[str]


def probe(plugins: Sequence[str] = (), root: Path | None = None, processor: bool = False) -> Machine:
    """What an engine is bound to on this machine, and nothing else: machines of one kind give equal facts.

    platform, operating system and architecture; gpu, the one that is used, the first that CUDA shows (None, or name,
    driver, compute capability and memory); tensorrt, tensorrt_rtx
    (TensorRT for RTX) and onnxruntime, versions or None; plugins, the SHA-256 of each
    file, or None where there is none; plugin_ops, where there are a GPU, TensorRT and plugins that it takes, the
    operators that each has registered, else None; and of ONNX Runtime's execution providers those that it was built
    with and those that load (a session reports them; on a machine without a GPU only the CPU provider is tried).

    Args:
        plugins: files with TensorRT plugins (engine.plugins).
        root: the folder that their names are relative to, by default the current one.
        processor: name the processor, too, which a file that is optimised for it is bound to; else it is None.
    """
    gpus, tensorrt = _gpus(), _tensorrt_version("tensorrt")
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor() if processor else None,
        "gpus": gpus,
        "tensorrt": tensorrt,
        "tensorrt_rtx": _tensorrt_version("tensorrt_rtx"),
        "plugins": {name: _sha256((root or Path.cwd()) / name) for name in plugins},
        "plugin_ops": _plugin_ops(plugins, root or Path.cwd()) if gpus and tensorrt and plugins else None,
        "onnxruntime": _onnxruntime_version(),
        "onnxruntime_providers_built": _providers_built(),
        "onnxruntime_providers": _providers_that_load() if gpus else ["CPUExecutionProvider"],
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
    if not shutil.which("nvidia-smi"):
        return []
    query = "name,driver_version,compute_cap,memory.total"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    return [
        {"name": row[0], "driver": row[1], "compute_capability": row[2], "memory": row[3]}
        for row in rows
        if len(row) == 4
    ]


# --- software ---------------------------------------------------------------------------------------------------------


def _sha256(file: Path) -> str | None:
    from truehalf.runtime.tensorrt.plan_content import sha256

    return sha256(file) if file.is_file() else None


def _plugin_ops(plugins: Sequence[str], root: Path) -> dict[str, list[str]] | None:
    from truehalf.runtime.tensorrt.plugins import registered_ops

    names = registered_ops([root / name for name in plugins])
    return None if names is None else dict(zip(plugins, names, strict=True))


def _tensorrt_version(module: str) -> str | None:
    from truehalf.runtime.tensorrt.versions import tensorrt_version

    return tensorrt_version(module)


def _onnxruntime_version() -> str:
    from truehalf.runtime.ort.session import runtime_version

    return runtime_version()


def _providers_built() -> list[str]:
    from truehalf.runtime.ort.session import built_providers

    return built_providers()


def _providers_that_load() -> list[str]:
    from truehalf.runtime.ort.session import loadable_providers

    return loadable_providers()
