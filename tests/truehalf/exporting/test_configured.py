"""The FP32 file of a configuration: its batches, its other sizes, its classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.configurations import composed
from tests.messages import expect, raises
from tests.truehalf.models.small_modules import sized
from truehalf.exporting.configured import export_configured
from truehalf.exporting.trace import PASSED_ON
from truehalf.models.configuration import validated
from truehalf.runtime.ort import Session


def exported(folder: Path, *overrides: str) -> dict[str, Any]:
    """The report; m.onnx and io_spec.json are in the folder `out`."""
    return export_configured(validated(composed(*overrides)), folder, folder / "out" / "m.onnx").to_json()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "batches"),
    [([], [1, 3]), (["trace.batch=3", "model.options.prepare=examples.digits.detector:overflowing"], [1, 2])],
    ids=["default", "overflow"],
)
def test_the_embedded_detector_with_random_weights(overrides: list[str], batches: list[int], tmp_path: Path) -> None:
    report = exported(tmp_path, "model.checkpoint=null", *overrides)
    assert report["parity"]["batch_sizes"] == batches
    assert report["parity"]["share"] == 1.0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["io_spec.json", "m.onnx"]
    assert json.loads((tmp_path / "out/io_spec.json").read_text())["trained"] is False


MODULE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=8, padding=1)

    def forward(self, images, orig_target_sizes):
        features = self.conv(images).relu()
        scores = features.flatten(2).mean(-1).sigmoid()
        boxes = scores[..., None] * orig_target_sizes[:, None].repeat(1, 1, 2)
        return {"scores": scores, "boxes": boxes, "aux": [scores]}


def build():
    return Net()
"""
INPUTS = "{name: images, kind: images}, {name: orig_target_sizes, kind: picture_size, dtype: int64}"


@pytest.mark.parametrize("vary", [False, True])
def test_a_module_of_two_inputs_at_sizes_that_vary(vary: bool, tmp_path: Path) -> None:
    (tmp_path / "two_inputs_of_mine.py").write_text(MODULE)
    report = exported(
        tmp_path,
        *("model=torch", "data=random", "model.image_size=[64,96]", "model.drop_outputs=[aux]"),
        *("model.options.factory=two_inputs_of_mine:build", "model.options.trained=true", f"model.inputs=[{INPUTS}]"),
        *(["trace.dynamic_axes.images={0: batch, 2: height, 3: width}"] if vary else []),
    )
    parity = report["parity"]
    assert parity["status"] == "verified" and parity["batch_sizes"] == ([1, 2, 3] if vary else [1, 3])
    sizes = [entry["inputs"]["images"] for entry in parity.get("sizes", [])]
    assert sizes == ([[2, 3, 32, 128], [2, 3, 96, 64]] if vary else [])
    spec = json.loads((tmp_path / "out/io_spec.json").read_text())
    sides = ["height", "width"] if vary else [64, 96]
    assert [entry["shape"] for entry in spec["inputs"]] == [["batch", 3, *sides], ["batch", 2]]
    assert [(entry["name"], entry["shape"]) for entry in spec["outputs"]] == [
        ("scores", ["batch", 4]),
        ("boxes", ["batch", 4, 4]),
    ]
    size = np.array([[64, 96]] * 5, np.int64)
    found = Session(tmp_path / "out/m.onnx").run(
        {"images": sized((64, 96), batch=5)[0]["images"], "orig_target_sizes": size}
    )
    assert found["boxes"].shape == (5, 4, 4)


CLASSIFIER = "from torch.nn import *\n\n\ndef build():\n    return Sequential(Flatten(), Linear(3 * 8 * 8, 3))\n"


@pytest.mark.parametrize("source", ["torch", "onnx"])
def test_classes_are_as_many_as_the_model_has(source: str, tmp_path: Path) -> None:
    (tmp_path / "classifier_of_mine.py").write_text(CLASSIFIER)
    module = ("model=torch", "model.options.factory=classifier_of_mine:build", "model.options.trained=true")
    options = [*module, "data=random", "model.image_size=[8,8]", "model.outputs=[{name: y, kind: classes, take: '0'}]"]
    assert exported(tmp_path, *options)["parity"]["share"] == 1.0
    exported(tmp_path, *options, "model.classes=[ant,bee,cat]")
    if source == "onnx":
        (tmp_path / "out/m.onnx").rename(tmp_path / "m.onnx")
        options = ["model=onnx", "model.checkpoint=m.onnx", "data=random", "model.outputs=[{name: y, kind: classes}]"]
        assert exported(tmp_path, *options, "model.classes=[ant,bee,cat]")["exporter"] == PASSED_ON
    with raises("wrong-class-count", "model.classes", 3, "'y'", 2):
        exported(tmp_path, *options, "model.classes=[ant,bee]")


@pytest.mark.parametrize("kind", ["kind: classes", "kind: logits, activation: sigmoid"])
def test_classes_are_counted_in_a_run_where_the_file_does_not_say_how_many(kind: str, tmp_path: Path) -> None:
    """The axis of the classes has a name in the file."""
    per_row = "Flatten (p)" if "classes" in kind else "Reshape (p, s)"
    axes, ends = ("n, c", "") if "classes" in kind else ("n, q, c", ", float[n, 1, 4] b")
    boxes = "" if not ends else "v = Gather <axis = 1> (p, i) b = Reshape (v, u)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3, 8, 8] x) => (float[{axes}] y{ends}) {{
      p = GlobalAveragePool (x) s = Constant <value_ints = [0, 1, 3]> () u = Constant <value_ints = [0, 1, 4]> ()
      i = Constant <value_ints = [0, 0, 0, 0]> ()
      y = {per_row} {boxes} }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    more = ", {name: b, kind: boxes, format: xyxy, normalized: true}" if ends else ""
    options = ["model=onnx", "model.checkpoint=m.onnx", "data=random", f"model.outputs=[{{name: y, {kind}}}{more}]"]
    exported(tmp_path, *options, "model.classes=[ant,bee,cat]")
    for names in ("[ant,bee]", "[ant]", "[a,b,c,d]"):
        with raises("wrong-class-count", "model.classes", 3, "'y'", names.count(",") + 1):
            exported(tmp_path, *options, f"model.classes={names}")


NO_ROWS = """
import torch

class Net(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.fc = how, torch.nn.Linear(3, 5)

    def forward(self, x):
        y = self.fc(x.mean((2, 3)))
        if self.how == "empty":
            return y, y.reshape(-1)[(y.sigmoid() > 2).reshape(-1)]
        if self.how == "empty rows":
            return y, y[y[:, 0] > 1e9]
        if self.how == "found":
            return y, torch.nonzero(y > -1e9)
        if self.how == "one":
            return y, y.mean(0, keepdim=True)

def build(how):
    return Net(how)
"""


@pytest.mark.parametrize("how", ["empty", "empty rows", "found", "one"])
def test_an_output_without_a_row_for_each_sample_ends_it_before_anything_is_traced(how: str, tmp_path: Path) -> None:
    (tmp_path / "no_rows_of_mine.py").write_text(NO_ROWS)
    options = ["model=torch", "model.options.factory=no_rows_of_mine:build", f"model.options.kwargs={{how: {how}}}"]
    with raises("wrong-shape", "'output_1'", "model.drop_outputs"):
        exported(tmp_path, *options, "data=random", "model.image_size=[8,8]")
    assert not (tmp_path / "out").exists()


def test_arrays_cannot_be_resized_so_other_sizes_are_not_verified(tmp_path: Path) -> None:
    (tmp_path / "one_input_of_mine.py").write_text(
        "import torch\n\n\ndef build():\n    return torch.nn.Conv2d(3, 4, 3, stride=8, padding=1)\n"
    )
    np.savez(tmp_path / "samples.npz", images=np.random.default_rng(0).random((32, 3, 64, 64), np.float32))
    parity = exported(
        tmp_path,
        *("model=torch", "data=npz", "data.file=samples.npz", "model.image_size=[64,64]"),
        *("data.calibration_samples=8", "data.verification_samples=8", "model.options.trained=true"),
        *("model.options.factory=one_input_of_mine:build", "trace.dynamic_axes.images={0: batch, 2: height}"),
    )["parity"]
    assert parity["status"] == "not verified" and parity["share"] == 1.0 and "sizes" not in parity
    expect(parity["reason"], None, "data=npz")
