"""Configurations that are proposed for a file and for a module, as Hydra composes them and the pipeline runs them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from PIL import Image

from tests.conftest import in_workspace, make_workspace
from tests.in_process import report
from tests.messages import expect
from truehalf.api import export
from truehalf.codes import codes_in

DETECTOR = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.cls, self.box = torch.nn.Conv2d(3, 8, 8, 8), torch.nn.Linear(8, 6), torch.nn.Linear(8, 4)
    def forward(self, x):
        features = self.conv(x).relu().flatten(2).transpose(1, 2)
        return {"pred_logits": self.cls(features), "pred_boxes": self.box(features).sigmoid()}
def build():
    torch.manual_seed(0)
    return Net()
"""
OUTPUTS = [
    {"name": "pred_logits", "kind": "logits", "activation": "sigmoid"},
    {"name": "pred_boxes", "kind": "boxes", "format": "cxcywh", "normalized": True},
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With a module of a user's own, and images."""
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "detector.py").write_text(DETECTOR)
    (workspace / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).save(workspace / "pictures" / f"{i}.png")
    return workspace


def proposed(workspace: Path, *arguments: str) -> dict[str, Any]:
    """The choice that init writes."""
    done = in_workspace(workspace, "python", "-m", "pipeline.init", *arguments, "--samples", "pictures")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load((workspace / "conf/model/mine.yaml").read_text())
    return found


def stripped_file(workspace: Path) -> Path:
    """The module as ONNX without an I/O spec, as another tool exports it."""
    sys.path.insert(0, str(workspace))
    try:
        path = workspace / "theirs.onnx"
        export("detector:build", path, samples=[{"images": np.zeros((1, 3, 64, 96), np.float32)}])
    finally:
        sys.path.remove(str(workspace))
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)
    return path


def test_a_module_and_a_file_are_proposed_alike(workspace: Path) -> None:
    of_module = proposed(workspace, "detector:build", "--size", "64x96")
    assert of_module["options"] == {"factory": "detector:build"} and of_module["image_size"] == [64, 96]
    of_file = proposed(workspace, str(stripped_file(workspace)), "--force")
    assert of_file["checkpoint"] == "theirs.onnx"
    for found in (of_module, of_file):
        assert found["outputs"] == OUTPUTS and [each["kind"] for each in found["inputs"]] == ["images"]
        assert found["preprocessing"] == {"range": [0, 1], "layout": "NCHW"}


BESIDE = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        means = x.mean((2, 3))
        bright = x.flatten()[x.flatten() > 0.5]
        return {"logits": means + means[means[:, 0] > 2].sum(), "bright": bright, "version": "1.0"}
net = Net()
"""


def test_what_is_left_out_and_what_no_sample_shows_is_said(workspace: Path) -> None:
    (workspace / "beside.py").write_text(BESIDE)
    done = in_workspace(
        workspace, *["python", "-m", "pipeline.init", "beside:net", "--samples", "pictures", "--size", "8x8"]
    )
    for text in (done.stdout, (workspace / "conf/model/mine.yaml").read_text()):
        expect(text, "nothing-compared", "version (str)")
        assert "wrong-shape" in codes_in(text) and "NonZero" in text and "'bright'" in text, (
            "as many rows as values of a sample"
        )


def test_images_of_bytes_with_channels_last_are_proposed(workspace: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (uint8[N, 8, 8, 3] x) => (float[N, 3] y)
        { f = Cast<to = 1>(x) y = ReduceMean<axes = [1, 2], keepdims = 0>(f) }"""
    onnx.save(onnx.parser.parse_model(text), workspace / "bytes.onnx")
    found = proposed(workspace, "bytes.onnx")
    assert found["preprocessing"] == {"range": [0, 255], "layout": "NHWC"}
    assert found["inputs"] == [{"name": "x", "kind": "images", "dtype": "uint8"}]


def test_a_detector_that_asks_for_the_size_of_its_images_is_proposed(workspace: Path) -> None:
    """As RT-DETR and D-FINE are exported; whichever input comes first."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (int64[N, 2] sizes, float[N, 3, 8, 8] x) => (float[N, 3] y)
        { f = ReduceMean<axes = [2, 3], keepdims = 0>(x) s = Cast<to = 1>(sizes) o = ReduceMean<axes = [1]>(s)
          y = Mul(f, o) }"""
    onnx.save(onnx.parser.parse_model(text), workspace / "sized.onnx")
    found = proposed(workspace, "sized.onnx")
    assert found["preprocessing"] == {"range": [0, 1], "layout": "NCHW"}
    assert found["inputs"] == [
        {"name": "sizes", "kind": "picture_size", "dtype": "int64"},
        {"name": "x", "kind": "images"},
    ]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [("arrays", ["data=npz", "data.file=arrays"]), ("my pictures/0.png", ["data.folder=my pictures"])],
)
def test_the_command_that_is_named_takes_the_samples(workspace: Path, samples: str, expected: list[str]) -> None:
    (workspace / "arrays").mkdir()
    (workspace / "pictures").rename(workspace / "my pictures")
    np.savez(workspace / "arrays/0.npz", x=np.random.default_rng(0).random((3, 3, 8, 8), np.float32))
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 3, 8, 8] x) => (float[N, 3] y)
        { y = ReduceMean<axes = [2, 3], keepdims = 0>(x) }"""
    onnx.save(onnx.parser.parse_model(text), workspace / "theirs.onnx")
    done = in_workspace(workspace, "python", "-m", "pipeline.init", "theirs.onnx", "--samples", samples)
    commands = [line for line in done.stdout.splitlines() if line.startswith("  python -m pipeline")]
    command = shlex.split(commands[0])
    assert command == ["python", "-m", "pipeline", "model=mine", *expected]
    assert shlex.join(command) in (workspace / "conf/model/mine.yaml").read_text()
    labelled = [command for command in commands if "data=coco" in command]
    assert bool(labelled) is (samples != "arrays"), "images may have labels"


@pytest.mark.slow
def test_the_pipeline_runs_what_is_proposed(workspace: Path) -> None:
    proposed(workspace, "detector:build", "--size", "64x96")
    done = in_workspace(workspace, *["python", "-m", "pipeline", "model=mine", "data.folder=pictures", "verify=smoke"])
    assert done.returncode == 0, done.stderr
    assert report(workspace, "trace")["parity"]["status"] == "verified"
    assert report(workspace, "verify")["verdict"] == "not verified", "the weights are random"


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (("detector:build",), "file-missing", ["pictures"]),
        (("detector:missing", "--size", "64x96"), "function-fails", ["missing"]),
        (("missing.onnx",), "file-missing", ["missing.onnx"]),
        (("detector:build", "--size", "64"), "bad-syntax", ["64"]),
        (("detector:build", "--size", "64x96", "--name", "a/b"), "wrong-name", ["a/b"]),
        (("detector:build", "--size", "64x96", "--name", "onnx"), "would-overwrite", ["onnx.yaml", "--force"]),
        (("detector:build", "--size", "64x96", "--samples", "nowhere"), "file-missing", ["nowhere"]),
    ],
)
def test_what_is_wrong_is_one_sentence_and_writes_nothing(
    workspace: Path, arguments: tuple[str, ...], code: str, facts: list[object]
) -> None:
    before = sorted(path.name for path in (workspace / "conf/model").iterdir())
    given = [*arguments] if "--samples" in arguments else [*arguments, "--samples", "pictures"]
    done = in_workspace(workspace, "python", "-m", "pipeline.init", *given)
    assert done.returncode == 2
    expect(done.stderr, code, *facts)
    assert sorted(path.name for path in (workspace / "conf/model").iterdir()) == before
