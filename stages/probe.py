"""probe: what this machine can run.

An engine is bound to its GPU, driver and TensorRT; so `engine` depends on these facts.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from stages.io import Stage, stage_main


def probe() -> dict[str, Any]:
    """GPU (None, or name, driver, compute capability and memory of each), TensorRT version or None, and the execution
    providers that the installed ONNX Runtime was built with (built with is not loadable: a session tells that).
    """
    return {
        "gpus": _gpus(),
        "tensorrt": _tensorrt_version(),
        "onnxruntime": _onnxruntime_version(),
        "onnxruntime_providers_built": _onnxruntime_providers(),
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


def _tensorrt_version() -> str | None:
    from stages.trt.build import tensorrt_version

    return tensorrt_version()


def _onnxruntime_version() -> str:
    from stages.ort.session import runtime_version

    return runtime_version()


def _onnxruntime_providers() -> list[str]:
    from stages.ort.session import built_providers

    return built_providers()


def run(stage: Stage) -> dict[str, Any]:
    return probe()


def main() -> None:
    stage_main("probe", run, timed=False)  # seconds would change the file each time, and so re-build the engine


if __name__ == "__main__":
    main()
