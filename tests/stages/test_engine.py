"""Without a GPU the engine stage writes a complete plan and says that nothing was built."""

import hashlib
from pathlib import Path

import onnx
import onnx.parser
import pytest

from stages.engine import build_engine, check_precision
from stages.io import StageError
from stages.probe import probe

NO_GPU = {"gpus": None, "tensorrt": None}
PROFILES = [{"images": {"min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}}]


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, dtype in (("fp32", "float"), ("fp16", "float16")):
        signature = f"g ({dtype}[N,3,8,8] images) => ({dtype}[N,3,8,8] y)"
        text = f'<ir_version: 8, opset_import: ["" : 17]> {signature} {{ y = Relu(images) }}'
        paths[name] = tmp_path / f"{name}.onnx"
        onnx.save(onnx.parser.parse_model(text), paths[name])
    return paths


def test_the_plan_is_complete(models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    report = build_engine(
        models["fp16"], out, profiles=PROFILES, memory_pools_gb={"workspace": 2}, declared="fp16", probe=NO_GPU
    )
    assert report["status"] == "planned"
    assert "no NVIDIA GPU" in report["reason"] and "TensorRT" in report["reason"]
    command = report["plan"]["trtexec"]
    for part in (
        "--minShapes=images:1x3x8x8",
        "--optShapes=images:2x3x8x8",
        "--maxShapes=images:4x3x8x8",
        "--memPoolSize=workspace:2048M",
        "--noTF32",
    ):
        assert part in command
    assert f"--onnx={models['fp16']}" in command and f"--saveEngine={out}/model.engine" in command
    assert report["plan"]["onnx_sha256"] == hashlib.sha256(models["fp16"].read_bytes()).hexdigest()
    assert "--fp16" not in command, "precision is in the graph; TensorRT 11 has no such flag"
    assert sorted(path.name for path in out.iterdir()) == ["README.txt", "build_engine.py", "plan.json"]


@pytest.mark.parametrize(("declared", "holds"), [("fp16", "fp32"), ("fp32", "fp16")])
def test_a_file_that_contradicts_the_declared_precision_is_refused(
    models: dict[str, Path], declared: str, holds: str
) -> None:
    with pytest.raises(StageError, match=f"precision={declared} is declared"):
        check_precision(models[holds], declared)
    check_precision(models[holds], holds)


@pytest.mark.gpu
def test_an_fp16_file_becomes_an_engine_of_half_layers(models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    machine = probe()
    report = build_engine(models["fp16"], out, profiles=PROFILES, declared="fp16", probe=machine)
    assert report["status"] == "built", report
    assert report["half_layers"] > 0 and (out / "model.engine").stat().st_size > 0
    assert {one["dtype"] for one in report["io"]} == {"HALF"}
