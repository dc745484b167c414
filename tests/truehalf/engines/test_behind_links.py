"""Engines of models that are reached through links, with files of external data."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import FEW, NO_GPU
from tests.truehalf.linked_models import LAYOUTS, linked
from truehalf.engines import ort_deploy
from truehalf.engines.build import execute_plan
from truehalf.runtime.ort.session import Session
from truehalf.runtime.tensorrt.versions import RTX

X = {"x": np.ones((1, 4), np.float32)}
Y = [[24, 28, 32, 36]]  # sums of the columns of what linked models hold
ON_CPU: dict[str, Any] = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW}


def built(model: Path, out: Path, **options: Any) -> Any:
    return build_engine(model, out, declared="fp32", profiles=[], **({"probe": NO_GPU} | options))


@pytest.mark.parametrize("external_from_mb", [1000, 0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_optimised_file_holds_the_data(
    layout: str, external_from_mb: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_deploy, "_EXTERNAL_FROM_MB", external_from_mb)
    report = built(linked(tmp_path, layout), tmp_path / "out", **ON_CPU)
    assert report["status"] == "built", report["reasons"]
    shutil.rmtree(tmp_path / "there")
    assert Session(tmp_path / "out/model.optimized.onnx").run(X)["y"].tolist() == Y


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_compiled_one_holds_them(layout: str, tmp_path: Path) -> None:
    pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")
    probe = NO_GPU | {RTX: "1.7"}
    assert built(linked(tmp_path, layout), tmp_path / "out", backend=RTX, probe=probe)["status"] == "compiled"


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_plan_names_files_that_can_be_put_into_one_folder(layout: str, beside: bool, tmp_path: Path) -> None:
    path, out = linked(tmp_path, layout), tmp_path / "out"
    plan = built(path, out, **ON_CPU)["plan"]
    (out / "model.optimized.onnx").unlink()
    if beside:
        folder = Path(plan["onnx"]).parent
        for name in (Path(plan["onnx"]).name, *plan["onnx_data"]):
            shutil.copyfile(folder / name, out / name)
        for place in ("here", "there"):
            shutil.rmtree(tmp_path / place)
    with contextlib.chdir(tmp_path):
        report = execute_plan(out / "plan.json")
    assert report["status"] == "built" and plan["onnx_data"] == ["model.onnx_data"]
