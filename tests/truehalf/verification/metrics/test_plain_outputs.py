"""Class logits and plain tensors: measured alone, and as the outputs of a chain."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.messages import expect
from tests.truehalf.verification.small_detector import OPTIONS, worst
from truehalf.data.samples import Sample
from truehalf.io_spec.outputs import plain_outputs
from truehalf.io_spec.spec import InputSpec, IoSpec, OutputSpec
from truehalf.verification.chain import chain
from truehalf.verification.chain.reference import Reference, freeze
from truehalf.verification.judging.judge import same_outputs
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.plain_outputs import errors_by_sample
from truehalf.verification.runs import Run

CLASSES = IoSpec(outputs=(OutputSpec("y", "classes"),))
TENSORS = IoSpec(outputs=(OutputSpec("y"), OutputSpec("z")))
DETECTOR = IoSpec(outputs=(OutputSpec("l", "logits"), OutputSpec("b", "boxes"), OutputSpec("masks")))
WEIGHTS = np.array([[4, -1, 0], [0, 5, -2], [-3, 1, 4]], np.float32)
SPEC = replace(CLASSES, inputs=(InputSpec("images", shape=("batch", 3, 8, 8)),), class_names=("ant", "bee", "cat"))
FILE = """
<ir_version: 10, opset_import: ["" : 17]>
classifier (float[batch,3,8,8] images) => (float[batch,3] y) {
    means = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    half_means = Cast <to = 10> (means)
    [project] scores = MatMul (half_means, weights)
    [amplify] up = Mul (scores, gain)
    [reduce] down = Mul (up, back)
    y = Cast <to = 1> (down)
}
"""


class Classifier(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor]:
        return (images.mean((2, 3)) @ torch.from_numpy(WEIGHTS),)


def write(path: Path, weights: np.ndarray = WEIGHTS, gain: float = 1.0, dtype: type = np.float16) -> Path:
    text = FILE if dtype is np.float16 else FILE.replace("to = 10", "to = 1")
    model = onnx.parser.parse_model(text)
    constants = {"weights": weights, "gain": np.array(gain), "back": np.array(1 / gain)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value.astype(dtype), name) for name, value in constants.items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def samples(count: int = 8) -> list[Sample]:
    """Each channel is the brightest of every third picture."""
    images = np.random.default_rng(0).uniform(0, 0.5, (count, 3, 8, 8)).astype(np.float32)
    for number, image in enumerate(images):
        image[number % 3] += 0.5
    return [Sample(f"made/{number}", {"images": image}, None, None) for number, image in enumerate(images)]


def verified(folder: Path, final: Path, spec: IoSpec = SPEC, options: Any = OPTIONS) -> dict[str, Any]:
    fp32 = write(folder / "fp32" / "model.onnx", dtype=np.float32)
    white = [Sample("adversarial/white", {"images": np.ones((3, 8, 8), np.float32)}, None, None)]
    adversarial: Reference = freeze(Classifier(), white, spec, 1)
    files = {"trace": fp32, "slim": fp32, "fp16": final, "cast_cleanup": final}
    reference = freeze(Classifier(), samples(), spec, 5)
    made = chain.Making(adversarial=adversarial, batch_sizes=(1, 4))
    return chain.verify(reference, files, folder / "out", options, made).to_json()


def run_of(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> Run:
    count = len(next(iter(before.values()), ()))
    return Run([str(i) for i in range(count)], count, before, after)


# --- measured alone ---------------------------------------------------------------------------------------------------


def test_what_a_detector_puts_out_beside_detections_is_plain() -> None:
    assert plain_outputs(DETECTOR) == ["masks"]
    assert plain_outputs(TENSORS) == ["y", "z"] and plain_outputs(CLASSES) == ["y"]


def test_errors_are_shares_of_the_outputs_scale() -> None:
    before = {"y": np.array([[8.0, -10.0], [1.0, 2.0]]), "z": np.array([[0.0], [0.0]])}
    after = {"y": np.array([[8.0, -10.0], [1.5, 2.0]]), "z": np.array([[0.0], [0.0]])}
    seen = Measured([run_of(before, after)], TENSORS, OPTIONS)
    assert seen.largest_rms == pytest.approx(0.5 / 13) and seen.classification is None
    assert errors_by_sample([run_of(before, after)], ["y", "z"]).tolist() == [0.0, pytest.approx(0.5 / 13 * 2**0.5)]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_infinitely_far(value: float) -> None:
    before = {"y": np.ones((2, 3)), "z": np.ones((2, 1))}
    after = {"y": np.where(np.eye(2, 3) == 1, value, 1.0), "z": np.ones((2, 1))}
    assert Measured([run_of(before, after)], TENSORS, OPTIONS).largest_rms == np.inf
    assert same_outputs(Measured([run_of(before, after)], TENSORS, OPTIONS))["state"] == "failed"


def test_an_output_of_zeros_must_stay_zero() -> None:
    zeros = {"y": np.zeros((1, 2)), "z": np.zeros((1, 2))}
    assert Measured([run_of(zeros, zeros)], TENSORS, OPTIONS).largest_rms == 0
    assert Measured([run_of(zeros, zeros | {"z": np.full((1, 2), 1e-6)})], TENSORS, OPTIONS).largest_rms == np.inf


def test_a_model_of_detections_alone_has_no_error_of_tensors() -> None:
    spec = replace(DETECTOR, outputs=DETECTOR.outputs[:2])
    seen = Measured([run_of({}, {})], spec, OPTIONS)
    assert (seen.largest_rms, seen.classification) == (None, None)


# --- a chain ----------------------------------------------------------------------------------------------------------


def test_a_good_classifier_passes_and_has_the_gates_of_one(tmp_path: Path) -> None:
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx"))
    assert (report["verdict"], report["evaluation"]) == ("passed", "emulated-fp16"), report["reasons"]
    assert report["top1_agreement"] == 1.0 and report["label_flips"] == 0 and 0 < report["tensor_rms"] < 0.002
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert [each["gate"] for each in verdict["findings"] if "gate" in each] == [
        "label_flips_max",
        "tensor_rms_max",
        "nonfinite_max",
    ]
    states = {check["check"]: check["state"] for check in report["checks"]}
    assert states == {
        **dict.fromkeys(("file", "classes", "tensors", "nonfinite", "batch", "adversarial", "reaction"), "verified"),
        "accumulation": "not verified",
    }
    assert not any("detections" in item or "precision" in item for item in report["not_verified"])
    stages = [stage for stage in report["stages"].values() if "evaluation" in stage]
    assert [stage["top1_agreement"] for stage in stages] == [1.0] * 4


def test_another_best_class_fails_and_names_the_sample(tmp_path: Path) -> None:
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", weights=WEIGHTS[:, [1, 0, 2]]))
    assert report["verdict"] == "failed" and report["label_flips"] == 6
    expect(worst(tmp_path, "label_flips_max")[0]["error"], None, "ant", "bee")


def test_overflow_fails_and_names_the_node(tmp_path: Path) -> None:
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", gain=2.0**15))
    assert report["verdict"] == "failed" and report["inf"] + report["nan"] > 0
    assert report["place"]["suspects"][0]["node"] == "amplify"


def test_a_tensor_beyond_the_gate_fails(tmp_path: Path) -> None:
    spec = replace(SPEC, outputs=(OutputSpec("y"),))
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", weights=WEIGHTS * 1.02), spec)
    assert report["verdict"] == "failed" and report["tensor_rms"] == pytest.approx(0.02, rel=0.05)
    assert report["top1_agreement"] is None and report["label_flips"] is None


def test_classes_of_random_weights_are_not_verified_and_their_tensors_are(tmp_path: Path) -> None:
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx"), replace(SPEC, trained=False))
    assert report["verdict"] == "not verified"
    states = {check["check"]: check["state"] for check in report["checks"]}
    assert (states["classes"], states["tensors"]) == ("not verified", "verified")


def test_a_required_check_that_the_model_has_nothing_for_fails(tmp_path: Path) -> None:
    options = replace(OPTIONS, require=["average_precision"])
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx"), SPEC, options)
    assert report["verdict"] == "failed"
    expect(report["reasons"][0], None, "verify.require", "average_precision")
    assert "average_precision" not in {check["check"] for check in report["checks"]}
