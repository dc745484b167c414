"""What this machine can run: its GPUs, TensorRT and its plugins, ONNX Runtime and its execution providers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.cuda_driver import described_by, driver, uuid_of


def probe(plugins: Sequence[str] = (), root: Path | None = None) -> dict[str, Any]:
    """What this machine can run: gpus (None, or name, driver, compute capability and memory of CUDA's first GPU: on it
    engines are built, and nothing depends on others); tensorrt and onnxruntime, versions or None; plugins, the SHA-256
    of each file, or None where there is none; plugin_ops, where there are a GPU, TensorRT and plugins that it takes,
    the operators that each has registered, else None; and of ONNX Runtime's execution providers those that it was built
    with and those that load (of them a session tells; on a machine without a GPU the CPU provider alone is asked).

    Args:
        plugins: files with TensorRT plugins (engine.plugins).
        root: the folder that their names are relative to, by default the current one.
    """
    gpus, tensorrt = _gpus(), _tensorrt_version()
    return {
        "gpus": gpus,
        "tensorrt": tensorrt,
        "plugins": {name: _sha256((root or Path.cwd()) / name) for name in plugins},
        "plugin_ops": _plugin_ops(plugins, root or Path.cwd()) if gpus and tensorrt and plugins else None,
        "onnxruntime": _onnxruntime_version(),
        "onnxruntime_providers_built": _providers_built(),
        "onnxruntime_providers": _providers_that_load() if gpus else ["CPUExecutionProvider"],
    }


def _gpus() -> list[dict[str, str]] | None:
    """CUDA's first, as nvidia-smi describes it or, where there is none (Jetson, slim containers) or it does not know it
    (a MIG slice), as the driver's library does. Without that library, all of nvidia-smi's.
    """
    cuda, described = driver(), _gpus_of_nvidia_smi()
    if cuda is None:
        return list(described.values()) or None
    first = uuid_of(cuda)
    return [described.get(first) or described_by(cuda)] if first else None


def _gpus_of_nvidia_smi() -> dict[str, dict[str, str]]:
    """By UUID; nothing where it is not there, or fails."""
    if not shutil.which("nvidia-smi"):
        return {}
    query = "uuid,name,driver_version,compute_cap,memory.total"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return {}
    keys = ("name", "driver", "compute_capability", "memory")
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    return {row[0]: dict(zip(keys, row[1:], strict=True)) for row in rows if len(row) == 1 + len(keys)}


def _sha256(file: Path) -> str | None:
    from stages.trt.build import sha256

    return sha256(file) if file.is_file() else None


def _plugin_ops(plugins: Sequence[str], root: Path) -> dict[str, list[str]] | None:
    from stages.trt.build import registered_ops

    names = registered_ops([root / name for name in plugins])
    return None if names is None else dict(zip(plugins, names, strict=True))


def _tensorrt_version() -> str | None:
    from stages.trt.build import tensorrt_version

    return tensorrt_version()


def _onnxruntime_version() -> str:
    from stages.ort.session import runtime_version

    return runtime_version()


def _providers_built() -> list[str]:
    from stages.ort.session import built_providers

    return built_providers()


def _providers_that_load() -> list[str]:
    from stages.ort.session import loadable_providers

    return loadable_providers()
