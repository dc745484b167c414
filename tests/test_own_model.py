"""A user's own module through the stages, by each kind of data that is neither pictures nor scenes."""

import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.run_record import Run
from tests.conftest import in_workspace, make_workspace
from tests.in_process import report, run_stages
from tests.messages import expect
from tests.tiers import first_of

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
    *("model=torch", "model.options.factory=own_model:build", "model.options.trained=true"),
    *("model.image_size=[32,32]", "model.outputs=[{name: scores, kind: classes}]", "verify=classification"),
    *("data.calibration_samples=3", "data.verification_samples=5"),
)
FUNCTION = ("data=function", "data.function=own_model:picture")
NPZ = ("data=npz", "data.file=samples.npz")
RANDOM = ("data=random",)


def with_own_model(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "own_model.py").write_text(CODE)
    images = np.random.default_rng(0).random((40, 3, 32, 32), np.float32)
    np.savez(folder / "samples.npz", images=images)
    return folder


@pytest.mark.parametrize("data", first_of([FUNCTION, NPZ, RANDOM]), ids=lambda data: data[0])
def test_a_classifier_passes_on(tmp_path: Path, data: tuple[str, ...]) -> None:
    run_stages(with_own_model(tmp_path), *MODEL, *data)
    verify = report(tmp_path, "verify")
    assert verify["verdict"] == "passed" and verify["top1_agreement"] == 1.0 and verify["samples"] == 5
    assert bool(report(tmp_path, "calibrate").get("warnings", [])) == (data == RANDOM), "noise is called out"
    used = report(tmp_path, "inputs")
    assert [used[purpose]["samples"] for purpose in ("calibration", "verification")] == [3, 5]


@pytest.mark.parametrize("method", ["half", "autocast"])
def test_the_other_routes_give_a_verified_file(tmp_path: Path, method: str) -> None:
    run_stages(with_own_model(tmp_path), *MODEL, *NPZ, f"precision.method={method}")
    assert report(tmp_path, "fp16")["method"] == method and report(tmp_path, "verify")["verdict"] == "passed"


def branching(folder: Path, name: str, condition: str) -> tuple[str, ...]:
    """The classifier in a module of its own, with an `if` on its input in forward; what chooses it."""
    code = CODE.replace(
        "        return {", f"        if {condition}:\n            images = images * 2\n        return {{"
    )
    (with_own_model(folder) / f"{name}.py").write_text(code)
    return (*MODEL, *NPZ, f"model.options.factory={name}:build")


def test_an_if_that_was_traced_away_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        run_stages(tmp_path, *branching(tmp_path, "window", "0.1 < images.mean() < 0.3"), stages=("inputs", "trace"))
    assert ended.value.code == 1
    expect(report(tmp_path, "error")["message"], "outputs-differ", "images", "window.py:15")


def test_an_if_that_no_input_exercises_leaves_the_run_not_verified(tmp_path: Path) -> None:
    run_stages(tmp_path, *branching(tmp_path, "narrow", "0.123 < images.mean() < 0.12301"))
    verify = report(tmp_path, "verify")
    assert verify["verdict"] == "not verified" and verify["status"] == "done"
    (reason,) = verify["reasons"]
    expect(reason, "trace-open", "narrow.py:15")
    reports = {"trace": report(tmp_path, "trace"), "verify": verify}
    run = Run(tmp_path, {"verify": {"require": ["trace"]}}, reports)
    assert any("narrow.py:15" in said for said in run.not_verified)
    (unmet_one,) = run.unmet
    expect(unmet_one, "trace-open", "verify.require")


@pytest.mark.slow
def test_the_chain_tells_of_it_and_runs_again_when_its_code_changes(tmp_path: Path) -> None:
    workspace = with_own_model(make_workspace(tmp_path / "workspace"))
    command = ("python", "-m", "pipeline", "--verbose", *MODEL, *RANDOM, "precision.method=half")
    done = in_workspace(workspace, *command)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "torch · fp16 by half</title>" in (workspace / "reports" / "report.html").read_text()
    assert re.search(r"^passed\b.* torch · fp16\b.*\bhalf\b", done.stdout, re.MULTILINE)
    warnings = report(workspace, "calibrate")["warnings"]
    assert warnings and all(warning in " ".join(done.stdout.split()) for warning in warnings)

    (workspace / "own_model.py").write_text(CODE.replace("Conv2d(3, 8, 3", "Conv2d(3, 8, 5"))
    done = in_workspace(workspace, *command)
    assert done.returncode == 0 and "Running stage 'trace'" in done.stdout


DETECTOR = """
import torch


class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 5, 4, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 9, 3, 2, 1)
        )
        with torch.no_grad():
            self.body[2].weight *= 40

    def forward(self, images):
        found = self.body(images).flatten(2).transpose(1, 2)
        scores, index = found[..., :5].sigmoid().flatten(1).topk(10)
        boxes = found[..., 5:].sigmoid().gather(1, (index // 5).unsqueeze(-1).expand(-1, -1, 4))
        low, extent = boxes[..., :2] * 24, boxes[..., 2:] * 6 + 6
        return scores, index % 5, torch.cat([low, low + extent], -1)


def build():
    return Detector().eval()
"""


def test_a_detector_with_top_k_inside_passes_on(tmp_path: Path) -> None:
    (with_own_model(tmp_path) / "own_detector.py").write_text(DETECTOR)
    kinds = "{name: scores, kind: scores}, {name: labels, kind: labels}"
    boxes = "{name: boxes, kind: boxes, format: xyxy, normalized: false}"
    model = ("model=torch", "model.options.factory=own_detector:build", "model.options.trained=true")
    more = ("model.image_size=[32,32]", "data.calibration_samples=3", "data.verification_samples=5")
    run_stages(tmp_path, *model, f"model.outputs=[{kinds}, {boxes}]", *more, *FUNCTION)
    verify = report(tmp_path, "verify")
    checks = {check["check"]: check["state"] for check in verify["checks"]}
    assert verify["verdict"] == "passed" and verify["reference"] > 0
    assert checks["average_precision"] == "not verified", "there are no labels"
    assert checks["detections"] == checks["batch"] == "verified" and verify["matched"] == verify["reference"]
