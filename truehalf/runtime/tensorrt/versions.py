"""Versions of TensorRT, the keys of a plan, and what the machine has."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

PLAN_FORMAT = 1


class Version(NamedTuple):
    """What one major version of TensorRT wants otherwise than another."""

    network_flags: tuple[str, ...]  # members of NetworkDefinitionCreationFlag that make a network strongly typed
    trtexec: tuple[str, ...]  # the same for trtexec
    inspector_dtype: tuple[str, ...]  # keys of the engine inspector's JSON that hold a tensor's type, best first


VERSIONS: dict[int, Version] = {
    10: Version(("STRONGLY_TYPED",), ("--stronglyTyped",), ("Format/Datatype", "Format/DataType")),
    11: Version((), (), ("DataType", "Datatype", "Format", "Format/DataType", "Format/Datatype")),
}
BUILDER_FLAGS = {  # option of a plan -> member of BuilderFlag
    "tf32": "TF32",
    "editable_timing_cache": "EDITABLE_TIMING_CACHE",
    "version_compatible": "VERSION_COMPATIBLE",
    "refit": "REFIT",
    "strip_weights": "STRIP_PLAN",
}
PLAN_KEYS: dict[str, type] = {  # what a build reads of a plan
    **{"onnx": str, "onnx_data": list, "onnx_sha256": str, "engine": str, "declared": str, "graph": dict},
    **{"builder": dict, "profiles": list, "plugins": list},
}
BUILDER_OPTIONS = (
    *("memory_pools_gb", "builder_optimization_level", "max_aux_streams", "tiling_optimization_level", "tf32"),
    *("timing_cache", "editable_timing_cache", "version_compatible", "hardware_compatibility", "refit"),
    *("strip_weights", "profiling_verbosity"),
)


class BuildError(Exception):
    """No engine that can be used: the text is complete, and its first line ends with the code.

    Attributes:
        code: of the project's truehalf.codes, which this file does not need.
        faults: the parser's errors: {node, op_type, message, code}.
        facts: where a file was written all the same, what is known of it, in the shape of `build`'s; else None.
    """

    def __init__(
        self,
        code: str,
        message: str,
        faults: Iterable[Mapping[str, Any]] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        first, newline, rest = message.partition("\n")
        self._message = f"{first} [{code}]{newline}{rest}"
        self.faults = [dict(fault) for fault in faults]
        self.facts = None if facts is None else dict(facts)

    def __str__(self) -> str:
        return self._message


def tensorrt_version() -> str | None:
    """Version of the tensorrt module, or None when it cannot be imported here."""
    try:
        import tensorrt as trt
    except (ImportError, OSError):
        return None
    return str(trt.__version__)


def unavailable_reason(probe: Mapping[str, Any]) -> str | None:
    """Why no engine can be built on the machine that `probe` describes, or None when one can."""
    missing = []
    if not probe["gpus"]:
        missing.append("no NVIDIA GPU (neither nvidia-smi nor the driver finds one)")
    if not probe["tensorrt"]:
        missing.append("TensorRT cannot be imported (pip install 'truehalf[tensorrt]' from NVIDIA's channel)")
    return " and ".join(missing) or None


def version_of(version: str) -> Version:
    """The row of VERSIONS for a version such as "11.4.0.106".

    Raises:
        BuildError: for another major version.
    """
    major = int(version.split(".")[0])
    if major not in VERSIONS:
        known = " and ".join(f"{one}.x" for one in VERSIONS)
        raise BuildError("package-missing", f"TensorRT {version}: expected {known}; install one of these")
    return VERSIONS[major]


def gpu_name() -> str | None:
    """Name of the first visible GPU, such as "NVIDIA L4", as the driver's library gives it; None without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDeviceGetName(name, len(name), device),
    ):
        if status:
            return None
    return name.value.decode(errors="replace")


def gpu_key() -> str:
    """`gpu_name` for names of files: "nvidia-l4"."""
    return re.sub(r"[^a-z0-9]+", "-", (gpu_name() or "unknown gpu").lower()).strip("-")
