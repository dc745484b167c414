"""Two small models, FP32 and FP16, and what an engine of them is asked for on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.truehalf.conftest import PROFILE

NO_GPU: dict[str, Any] = {
    "gpus": None,
    "tensorrt": None,
    "tensorrt_rtx": None,
    "polygraphy": None,
    "onnxruntime_providers": ["CPUExecutionProvider"],
}
PROFILES = [PROFILE]
FEW = {"warm_up": 1, "runs": 10, "rounds": 2}


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, dtype in (("fp32", "float"), ("fp16", "float16")):
        signature = f"g ({dtype}[N,3,8,8] images) => ({dtype}[N,3,8,8] y)"
        text = f'<ir_version: 8, opset_import: ["" : 17]> {signature} {{ y = Relu(images) }}'
        paths[name] = tmp_path / f"{name}.onnx"
        onnx.save(onnx.parser.parse_model(text), paths[name])
    return paths
