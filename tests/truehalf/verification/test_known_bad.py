"""The verifier against outputs that are known to be good or bad: a detector whose candidate adds what was planted."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.verification.chain.compare import compare
from truehalf.verification.report import Report

SIZE, PICTURES, QUERIES, CLASSES = 128, 3, 8, 4
SPEC = {
    "inputs": [{"name": "images", "shape": ["batch", 3, SIZE, SIZE]}],
    "outputs": [
        {"name": "logits", "kind": "logits", "activation": "sigmoid"},
        {"name": "boxes", "kind": "boxes", "format": "cxcywh", "normalized": True},
    ],
    "class_names": ["ant", "bee", "cat", "dog"],
}
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
detector (float[N,3,128,128] images, float[N,8,4] l, float[N,8,4] b) => (OUTPUTS) {
    logits = Add (l, planted_l)
    boxes = Add (b, planted_b)
}
"""
LOGITS, BOXES = "float[N,8,4] logits", "float[N,8,4] boxes"


def outputs() -> dict[str, np.ndarray]:
    """Two clear detections in each of the first two pictures, the third is empty."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-6, 0.5, (PICTURES, QUERIES, CLASSES)).astype(np.float32)
    boxes = rng.uniform(0.2, 0.8, (PICTURES, QUERIES, 4)).astype(np.float32)
    boxes[..., 2:] = 0.25
    logits[0, 0, 1], logits[0, 1, 2], logits[1, 0, 3], logits[1, 1, 0] = 3, 2, 3, 2
    boxes[:, 0, :2], boxes[:, 1, :2] = 0.25, 0.7
    return {"l": logits, "b": boxes}


def feeds() -> dict[str, np.ndarray]:
    """Pictures that nothing reads, and what the detector is to find."""
    return {"images": np.zeros((PICTURES, 3, SIZE, SIZE), np.float32)} | outputs()


def write(path: Path, text: str = f"{LOGITS}, {BOXES}", **planted: np.ndarray) -> Path:
    model = onnx.parser.parse_model(TEXT.replace("OUTPUTS", text))
    for name, value in outputs().items():
        delta = planted.get(name, np.zeros_like(value)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(delta, f"planted_{name}"))
    onnx.save(model, path)
    return path


def held(folder: Path, reference: dict[str, np.ndarray] | None = None, **planted: np.ndarray) -> Report:
    return held_by(GatesConfig(), folder, reference, **planted)


def held_by(
    limits: GatesConfig, folder: Path, reference: dict[str, np.ndarray] | None = None, **planted: np.ndarray
) -> Report:
    fp32, other = write(folder / "fp32.onnx", **(reference or {})), write(folder / "other.onnx", **planted)
    return compare(fp32, other, feeds(), spec=SPEC, locate=False, options=VerifyConfig(gates=limits))


def nothing(name: str) -> np.ndarray:
    return np.zeros_like(outputs()[name])


def metrics(report: Report) -> dict:
    assert report.detections is not None
    return report.detections


def test_one_flip_among_many_fails_whatever_the_fractions_forgive(tmp_path: Path) -> None:
    forgiving = {name: 0.0 if name.endswith("_min") else 1.0 for name in asdict(GatesConfig())}
    limits = GatesConfig(**forgiving | {"label_flips_max": 0, "nonfinite_max": 0})
    planted = nothing("l")
    planted[1, 0, [0, 3]] = [9, -9]
    report = held_by(limits, tmp_path, l=planted)
    assert report.verdict == "failed" and len(report.reasons) == 1 and "label_flips" in report.reasons[0]


def test_one_nan_where_nothing_is_found_fails(tmp_path: Path) -> None:
    planted = nothing("l")
    planted[2, 5, 1] = np.nan
    report = held(tmp_path, l=planted)
    assert report.verdict == "failed" and metrics(report)["matched_fraction"] == 1.0
    (reason,) = [reason for reason in report.reasons if "nonfinite" in reason]
    expect(reason, None, 1, 0)


def test_nothing_found_in_any_picture_is_not_verified(tmp_path: Path) -> None:
    quiet = {"l": np.full_like(nothing("l"), -12)}
    report = held(tmp_path, quiet, **quiet)
    assert report.verdict == "not verified" and not report.passed
    expect(report.reasons[0], "nothing-compared", "0.5", "highest score")
    assert report.reasons[0] in report.not_verified


def test_random_weights_are_never_passed_and_their_nan_fails(tmp_path: Path) -> None:
    spec, files = SPEC | {"trained": False}, [write(tmp_path / f"{name}.onnx") for name in "ab"]
    report = compare(*files, feeds(), spec=spec, locate=False)
    assert report.verdict == "not verified"
    expect(report.not_verified[0], "weights-random")
    planted = nothing("l")
    planted[0, 0] += 1
    report = compare(files[0], write(tmp_path / "c.onnx", l=planted), feeds(), spec=spec, locate=False)
    assert report.verdict == "not verified"
    expect(report.reasons[-1], "weights-random")
    planted[0, 0, 0] = np.nan
    report = compare(files[0], write(tmp_path / "d.onnx", l=planted), feeds(), spec=spec, locate=False)
    assert report.verdict == "failed"


# --- I/O specs that are wrong -----------------------------------------------------------------------------------------


def test_a_fault_beside_misread_boxes_fails(tmp_path: Path) -> None:
    boxes = SPEC["outputs"][1] | {"format": "xyxy"}  # type: ignore[index]
    planted = nothing("l")
    planted[2, 5, 1] = np.nan
    files = write(tmp_path / "fp32.onnx"), write(tmp_path / "other.onnx", l=planted)
    report = compare(*files, feeds(), spec=SPEC | {"outputs": [SPEC["outputs"][0], boxes]}, locate=False)
    assert report.verdict == "failed" and "nonfinite" in report.reasons[0]


# --- how many detections a model with top-k inside puts out

COUNTED = """
<ir_version: 8, opset_import: ["" : 17]>
top_k (float[N,L] x) => (float[N,COUNT] scores, float[N,COUNT] labels, float[N,COUNT,4] boxes) {
    scores = Slice (x, start, end, axis)
    labels = Floor (scores)
    wide = Unsqueeze (scores, last)
    boxes = Mul (wide, corners)
}
"""
FEED = {"x": np.array([[0.9, 0.8, 0.02], [0.9, 0.85, 0.01]], np.float32)}


def counted(path: Path, shown: str, most: int) -> Path:
    """Puts out what goes in as scores, `most` at most."""
    model = onnx.parser.parse_model(COUNTED.replace("COUNT", shown))
    weights = {"start": np.array([0]), "end": np.array([most]), "axis": np.array([1]), "last": np.array([2])}
    weights["corners"] = np.array([20, 30, 200, 300], np.float32)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("shown", "feeds", "verdict", "code"),
    [
        ("3", [FEED], "failed", "outputs-differ"),
        ("K", [FEED], "not verified", "not-comparable"),
        ("K", [FEED, FEED], "not verified", "not-comparable"),
        ("K", [FEED, {"x": FEED["x"][:, :2]}], "passed", None),  # it varies with what goes in, and the gates judge it
        ("K", [FEED, {"x": FEED["x"][:, :0]}], "passed", None),
    ],
)
def test_a_detection_fewer(tmp_path: Path, shown: str, feeds: list, verdict: str, code: str | None) -> None:
    kinds = [{"name": name, "kind": name} for name in ("scores", "labels")]
    spec = {"outputs": [*kinds, {"name": "boxes", "kind": "boxes", "format": "xyxy", "normalized": False}]}
    files = counted(tmp_path / "fp32.onnx", shown, 3), counted(tmp_path / "fewer.onnx", "K", 2)
    report = compare(*files, feeds, spec=spec, locate=False)
    assert report.verdict == verdict, report.reasons
    for reason in report.reasons:
        expect(reason, code, 3, 2)
    assert compare(files[0], files[0], feeds, spec=spec, locate=False).passed
    fewer = compare(files[0], counted(tmp_path / "one.onnx", "K", 1), feeds, spec=spec, locate=False)
    assert fewer.verdict == "failed", "what is missing was confident"
