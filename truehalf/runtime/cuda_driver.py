"""CUDA's first GPU, asked of the driver's library: no CUDA toolkit, torch or nvidia-smi is needed."""

from __future__ import annotations

import ctypes
import os
import re
import uuid
from typing import TypedDict


def gpu_uuid() -> str | None:
    """Of CUDA's first GPU, on which engines are built and timed, as nvidia-smi writes it; None where CUDA shows none.

    CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER say which is the first.
    """
    cuda = driver()
    return uuid_of(cuda) if cuda else None


_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def driver() -> ctypes.CDLL | None:
    """The driver's library; None where there is none, or it fails. Where no GPU is visible, it has none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return None
    return cuda if cuda.cuInit(0) in (0, _NO_DEVICE) else None


def uuid_of(cuda: ctypes.CDLL) -> str | None:
    count, device, raw = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    if not count.value:
        return None
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    # The second version gives the UUID of a MIG slice; drivers before CUDA 11.4 have only the first.
    getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(raw, device)
    return f"GPU-{uuid.UUID(bytes=raw.raw)}"


_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class Gpu(TypedDict):
    name: str
    driver: str
    compute_capability: str
    memory: str


def described_by(cuda: ctypes.CDLL) -> Gpu:
    device, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    major, minor, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    for value, attribute in ((major, _MAJOR), (minor, _MINOR)):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return {
        "name": name.value.decode(errors="replace"),
        "driver": f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
        "compute_capability": f"{major.value}.{minor.value}",
        "memory": f"{size.value >> 20} MiB",
    }


def gpu_name() -> str | None:
    """Name of the first visible GPU, such as "NVIDIA L4", as the driver's library gives it; None without one."""
    cuda = driver()
    return described_by(cuda)["name"] if cuda and uuid_of(cuda) else None


def gpu_key() -> str:
    """`gpu_name` for names of files: "nvidia-l4"."""
    return re.sub(r"[^a-z0-9]+", "-", (gpu_name() or "unknown gpu").lower()).strip("-")
