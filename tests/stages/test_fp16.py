"""The stage fp16: pins of the configuration reach the conversion, and fp32 passes the file on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.in_process import report, run_stages
from tests.messages import expect
from tests.small_models import FLOAT16, TEXT, measured, node_types, saved
from truehalf.files import read_json, write_json


def converted(folder: Path, *overrides: str) -> dict[str, Any]:
    (folder / "artifacts/slim").mkdir(parents=True)
    pictures = TEXT.replace('float["n", 2]', 'float["n", 3, "h", "w"]')  # the rank that engine.profiles state
    saved(folder, pictures).rename(folder / "artifacts/slim/model.onnx")
    write_json(folder / "artifacts/calibrate/ranges.json", measured(a=1.0, b=600.0, logits=1.0))
    write_json(
        folder / "artifacts/trace/io_spec.json",
        {"inputs": [{"name": "images", "shape": ["n", 3, "h", "w"], "traced": [2, 3, 8, 8]}]},
    )
    run_stages(folder, *overrides, stages=("fp16",))
    return report(folder, "fp16")


def test_the_stage_converts_with_pins(tmp_path: Path) -> None:
    pins = ("precision.op_block_list=[MatMul]", "precision.op_include_list=[Relu,Softmax]")
    found = converted(tmp_path, *pins)
    assert (found["stage"], found["status"]) == ("fp16", "done")
    assert found["verdicts"] == {"op_block_list": 1, "op_include_list": 2}
    decisions = read_json(tmp_path / "artifacts/fp16/decisions.json")
    assert [row["precision"] for row in decisions] == ["fp32", "fp16", "fp16"]
    assert node_types(tmp_path / "artifacts/fp16/model.onnx")["/head/Softmax"] == FLOAT16


def test_the_stage_passes_fp32_on(tmp_path: Path) -> None:
    found = converted(tmp_path, "precision=fp32")
    assert found["status"] == "skipped"
    expect(found["reason"], None, "precision=fp32")
    source, copy = tmp_path / "artifacts/slim/model.onnx", tmp_path / "artifacts/fp16/model.onnx"
    assert copy.read_bytes() == source.read_bytes()
    assert read_json(tmp_path / "artifacts/fp16/decisions.json") == []
