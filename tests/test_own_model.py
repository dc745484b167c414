"""A user's own module through the whole chain, by each kind of data that is neither pictures nor scenes."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import in_workspace, make_workspace

pytestmark = pytest.mark.slow

CODE = """
import numpy as np
import torch


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
        )

    def forward(self, images):
        return {"scores": self.body(images), "auxiliary": images.mean()}


def build():
    return Classifier()


def picture(purpose, number, seed):
    rng = np.random.default_rng([len(purpose), number, seed])
    return rng.integers(0, 256, (40, 30, 3), np.uint8)
"""
MODEL = (
    *("model=torch", "model.options.factory=mine:build", "model.options.trained=true", "model.image_size=[32,32]"),
    *("model.outputs=[{name: scores, kind: classes}]", "verify=classification"),
    *("data.calibration_samples=3", "data.verification_samples=5"),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_workspace(tmp_path_factory.mktemp("own") / "workspace")
    (folder / "mine.py").write_text(CODE)
    images = np.random.default_rng(0).random((40, 3, 32, 32), np.float32)
    np.savez(folder / "samples.npz", images=images)
    return folder


def pipeline(workspace: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return in_workspace(workspace, "python", "-m", "pipeline", *MODEL, *overrides)


def report(workspace: Path, stage: str) -> dict:
    return json.loads((workspace / "reports" / f"{stage}.json").read_text())


@pytest.mark.parametrize(
    "data",
    [("data=function", "data.function=mine:picture"), ("data=npz", "data.file=samples.npz"), ("data=random",)],
    ids=lambda data: data[0],
)
def test_a_classifier_passes_on(workspace: Path, data: tuple[str, ...]) -> None:
    done = pipeline(workspace, *data)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    verify = report(workspace, "verify")
    assert "torch · fp16</title>" in (workspace / "reports" / "report.html").read_text()
    assert verify["verdict"] == "passed" and verify["top1_agreement"] == 1.0 and verify["samples"] == 5
    assert "100.00 % of the samples have the FP32 best class" in done.stdout
    assert ("WARNING" in done.stdout and "noise" in done.stdout) == (data == ("data=random",)), "noise is called out"
    used = report(workspace, "inputs")
    assert [used[purpose]["samples"] for purpose in ("calibration", "verification")] == [3, 5]


@pytest.mark.parametrize("method", ["half", "autocast"])
def test_the_other_routes_give_a_verified_file(workspace: Path, method: str) -> None:
    done = pipeline(workspace, "data=npz", "data.file=samples.npz", f"precision.method={method}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert report(workspace, "fp16")["method"] == method and report(workspace, "verify")["verdict"] == "passed"
    assert f"fp16 by {method}" in done.stdout


def test_changed_code_of_the_model_runs_again(workspace: Path) -> None:
    (workspace / "mine.py").write_text(CODE.replace("Conv2d(3, 8, 3", "Conv2d(3, 8, 5"))
    done = pipeline(workspace, "data=npz", "data.file=samples.npz")
    assert done.returncode == 0 and "Running stage 'trace'" in done.stdout
