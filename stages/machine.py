"""What this machine can run: its GPUs, TensorRT and its plugins, ONNX Runtime and its execution providers."""

from __future__ import annotations

import ctypes
import os
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
    """By nvidia-smi, or, where there is none (Jetson, slim containers) or it fails, by the driver's library."""
    return _gpus_of_nvidia_smi() or _gpus_of_driver()


_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def _gpus_of_driver() -> list[dict[str, str]] | None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return None
    count, version = ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuDriverGetVersion(ctypes.byref(version)):
        return None
    driver = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return [_gpu_of_driver(cuda, number) | {"driver": driver} for number in range(count.value)] or None


def _gpu_of_driver(cuda: ctypes.CDLL, number: int) -> dict[str, str]:
    device, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    for value, attribute in ((major, _MAJOR), (minor, _MINOR)):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return {
        "name": name.value.decode(errors="replace"),
        "compute_capability": f"{major.value}.{minor.value}",
        "memory": f"{size.value >> 20} MiB",
    }


def _gpus_of_nvidia_smi() -> list[dict[str, str]] | None:
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
