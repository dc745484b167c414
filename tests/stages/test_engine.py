"""The stage engine, in a workspace as verify leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser

from tests import in_process


def stage(root: Path) -> dict[str, Any]:
    in_process.run_stages(root, stages=("engine",))
    return in_process.report(root, "engine")


def test_a_model_that_failed_verify_gets_no_engine(tmp_path: Path) -> None:
    for folder in ("cast_cleanup", "verify"):
        (tmp_path / "artifacts" / folder).mkdir(parents=True)
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] images) => (float[N,3,8,8] y) { y = Relu(images) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "artifacts/cast_cleanup/model.onnx")
    (tmp_path / "artifacts/verify/verdict.json").write_text('{"verdict": "failed"}')
    report = stage(tmp_path)
    assert report["status"] == "refused" and "engine.build_unverified=true" in report["reason"]
    assert [file.name for file in (tmp_path / "artifacts/engine").iterdir()] == ["REFUSED"]
