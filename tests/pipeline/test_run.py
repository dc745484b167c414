"""What a run leaves behind that a wrong configuration ends in `trace`: as little as one that is refused at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml

import pipeline.run
from pipeline.deliver import deliver
from pipeline.run_record import Run
from tests.configurations import composed
from tests.in_process import run_stages
from tests.messages import expect
from truehalf.files import write_text

FILE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3, 128, 128] pixel_data) => (float[n, c] logits, float[n, 3, 128, 128] boxes) {
  p = GlobalAveragePool (pixel_data)
  logits = Flatten (p)
  boxes = Neg (pixel_data)
}"""
MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, images):
        return {"logits": self.conv(images).mean((2, 3)), "boxes": images}

def build(**options):
    return Net(**options)
"""
OF_FILE = ("data=random", "model=onnx", "model.checkpoint=m.onnx")
OF_MODULE = ("data=random", "model=torch", "model.image_size=[32,32]", "model.options.factory=of_run:build")
LOGITS = "name: logits, kind: classes"
CASES: dict[str, tuple[tuple[str, ...], str, list[Any]]] = {
    "output of a file": ((*OF_FILE, "model.outputs=[{name: logit}]"), "wrong-name", ["did you mean logits?"]),
    "input of a file": (
        (*OF_FILE, "model.inputs=[{name: pixel_dat, kind: images}]"),
        *("wrong-name", ["did you mean pixel_data?"]),
    ),
    "size of a file": ((*OF_FILE, "model.image_size=[64,64]"), "in-conflict", ["model.image_size"]),
    "layout of a file": ((*OF_FILE, "model.preprocessing.layout=NHWC"), "in-conflict", ["model.preprocessing.layout"]),
    "dtype of a file": (
        (*OF_FILE, "model.inputs=[{name: pixel_data, kind: images, dtype: uint8}]"),
        *("wrong-dtype", ["uint8"]),
    ),
    "input that varies": ((*OF_MODULE, "trace.dynamic_axes={image: {0: b}}"), "wrong-name", ["did you mean images?"]),
    "axis that varies": ((*OF_MODULE, "trace.dynamic_axes={images: {9: b}}"), "out-of-range", [9]),
    "axis of an output": ((*OF_MODULE, "trace.dynamic_axes={images: {0: b}, logits: {2: b}}"), "out-of-range", [2]),
    "dropped": ((*OF_MODULE, "model.drop_outputs=[boxs]"), "no-match", ["did you mean boxes?"]),
    "taken": ((*OF_MODULE, "model.outputs=[{name: x, take: logit}]"), "wrong-name", ["did you mean logits?"]),
    "rank of a kind": ((*OF_FILE, "model.outputs=[{name: boxes, kind: classes}]"), "wrong-shape", ["'boxes'"]),
    "classes": ((*OF_MODULE, f"model.outputs=[{{{LOGITS}}}]", "model.classes=[a]"), "wrong-class-count", [4, 1]),
    "argument": ((*OF_MODULE, "model.options.kwargs={nope: 3}"), "function-fails", ["'nope'"]),
    "no function": ((*OF_MODULE, "model.options.factory=os:sep"), "function-fails", ["os:sep"]),
    "no module": ((*OF_MODULE, "model.options.factory=os:getcwd"), "wrong-return", ["os:getcwd"]),
    "size of a module": ((*OF_MODULE, "model.image_size=[2,2]"), "module-fails", ["model.image_size"]),
    "layout of a module": ((*OF_MODULE, "model.preprocessing.layout=NHWC"), "module-fails", ["images"]),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace after a run, whose stages are run in this process."""
    onnx.save(onnx.parser.parse_model(FILE), tmp_path / "m.onnx")
    (tmp_path / "of_run.py").write_text(MODULE)
    (tmp_path / "params.yaml").write_text("of: before\n")
    write_text(tmp_path / "reports/report.html", "of the run before")
    final = tmp_path / "artifacts/cast_cleanup/model.onnx"
    final.parent.mkdir(parents=True)
    final.write_bytes(b"of the run before")
    done = {"verify": {"status": "done", "verdict": "passed"}, "engine": {"status": "planned"}}
    deliver(Run(tmp_path, composed(*OF_FILE), done))
    yield tmp_path
    sys.modules.pop("of_run", None)


def ran(place: Path, monkeypatch: pytest.MonkeyPatch, told: tuple[str, ...]) -> tuple[int, list[str]]:
    """The exit code, and what was executed beside the stages."""
    executed: list[str] = []

    def execute(module: list[str], where: Any, quiet: bool = False) -> int:
        if module[:2] != ["dvc", "repro"]:
            executed.append(module[0])
            return 0
        try:
            run_stages(place, *told, stages=("inputs", "trace"))
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    monkeypatch.setattr(pipeline.run, "_execute", execute)
    return pipeline.run.run(place, composed(*told)), executed


@pytest.mark.parametrize("what", CASES)
def test_what_is_wrong_in_the_configuration_is_no_run(
    what: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told, code, facts = CASES[what]
    assert ran(place, monkeypatch, told) == (2, ["dvc"]), "no page, no tracked run; the last good files come back"
    expect(capsys.readouterr().err, code, *facts)
    assert yaml.safe_load((place / "params.yaml").read_text()) == {"of": "before"}
    assert (place / "artifacts/onnx.fp16.onnx").exists() and (place / "reports/report.html").exists()


def test_broken_weights_are_a_run_that_failed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "w.safetensors").write_bytes(b"no weights")
    code, executed = ran(place, monkeypatch, (*OF_MODULE, "model.checkpoint=w.safetensors"))
    assert code == 1 and executed[0] == "pipeline.finish"
