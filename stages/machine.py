"""What this machine can run: its GPUs, TensorRT and its plugins, ONNX Runtime and its execution providers."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def probe(plugins: Sequence[str] = (), root: Path | None = None) -> dict[str, Any]:
    """What this machine can run: gpus (None, or name, driver, compute capability and memory of each); tensorrt and
    onnxruntime, versions or None; plugins, the SHA-256 of each file, or None where there is none; plugin_ops, where
    there are a GPU, TensorRT and plugins that it takes, the operators that each has registered, else None; and of ONNX
    Runtime's execution providers those that it was built with and those that load (of them a session tells; on a
    machine without a GPU the CPU provider alone is asked).

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
    if not shutil.which("nvidia-smi"):
        return None
    query = "name,driver_version,compute_cap,memory.total"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return None
    keys = ("name", "driver", "compute_capability", "memory")
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    return [dict(zip(keys, row, strict=True)) for row in rows if len(row) == len(keys)] or None


def _sha256(file: Path) -> str | None:
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


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
