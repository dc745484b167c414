"""Trained detectors: the FP16 file passes, and faults that leave all detections as they were do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from examples.digits.detector import DECODERS
from tests.corpus.pairs import numbers, replayed
from tests.corpus.pairs.detections import as_queries, as_top_k, scene, spec_of
from tests.embedded import embedded, scenes
from tests.measuring.converted import to_fp16
from tests.messages import expect
from tests.tiers import first_of
from truehalf.verification.chain.compare import compare

BOXES = {"name": "boxes", "kind": "boxes", "format": "cxcywh", "normalized": True}
LOGITS = {"name": "logits", "kind": "logits", "activation": "sigmoid"}
BESIDE = {"score_error_p99", "rank_error_p99", "low_self_ap50_95_drop"}
PROJECTION = "decoder/layers.0/self_attn/o_proj/MatMul"


def with_larger_weights(source: Path, path: Path) -> str:
    """The weights of one projection times 1.5; the node's name."""
    model = onnx.load(source)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    (node,) = (node for node in model.graph.node if node.name.endswith(PROJECTION))
    (name,) = (name for name in node.input if name in weights)
    values = onnx.numpy_helper.to_array(weights[name])
    weights[name].CopyFrom(onnx.numpy_helper.from_array(values * values.dtype.type(1.5), name))
    onnx.save(model, path)
    return str(node.name)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", first_of(DECODERS))
@pytest.mark.filterwarnings("ignore")
def test_a_trained_detector(decoder: str, tmp_path: Path) -> None:
    choice = f"decoder={decoder}"
    source, inputs = embedded(tmp_path / "fp32.onnx", choice), scenes(4, choice)
    to_fp16(source, tmp_path / "fp16.onnx")
    shape = ["batch", *inputs["images"].shape[1:]]
    spec: dict[str, Any] = {"inputs": [{"name": "images", "shape": shape}], "outputs": [LOGITS, BOXES]}
    good = compare(source, tmp_path / "fp16.onnx", inputs, spec=spec)
    assert good.passed and good.first_bad_node is None

    wrong = with_larger_weights(tmp_path / "fp16.onnx", tmp_path / "wrong.onnx")
    report = compare(source, tmp_path / "wrong.onnx", inputs, spec=spec)
    assert report.detections is not None and report.detections["missed"] == report.detections["extra"] == 0
    assert report.verdict == "failed" and report.first_bad_node == wrong
    failed = {each.facts.get("measures") for each in report.findings if each.state == "failed"}
    assert failed <= BESIDE and len(report.reasons) == len(failed), "scores alone say it"

    for layout, instead in (({"format": "xyxy"}, "format: cxcywh"), ({"normalized": False}, "normalized: true")):
        misread = compare(source, tmp_path / "fp16.onnx", inputs, spec=spec | {"outputs": [LOGITS, BOXES | layout]})
        assert misread.verdict == "not verified" and misread.first_bad_node is None
        expect(misread.reasons[0], "boxes-misread", "'boxes'", instead)


@pytest.mark.parametrize(
    ("make", "name", "change"),
    [
        (as_queries, "logits", lambda value: value[:, :-1]),
        (as_queries, "boxes", lambda value: value[..., :3]),
        (as_queries, "boxes", lambda value: value[..., None]),
        (as_top_k, "boxes", lambda value: value[:, :30]),
        (as_top_k, "scores", lambda value: value[..., None]),
        (as_top_k, "labels", lambda value: value[:, 0]),
    ],
)
def test_outputs_of_a_candidate_that_make_up_no_detections_fail(
    make: Any, name: str, change: Any, tmp_path: Path
) -> None:
    expected = make(scene())
    paths = [tmp_path / "fp32.onnx", tmp_path / "other.onnx"]
    for path, outputs in zip(paths, (expected, expected | {name: change(expected[name])}), strict=True):
        model = replayed(outputs)
        for value in model.graph.output:  # a rank that is stated is refused
            value.type.tensor_type.ClearField("shape")
        onnx.save(model, path)
    report = compare(*paths, {"x": numbers(12)}, spec=spec_of(expected))
    assert report.verdict == "failed" and report.outputs[name].passed is False
    expect(report.reasons[0], "wrong-shape", f"'{name}'", list(expected[name].shape))


@pytest.mark.parametrize("rows", [1, 24])
def test_a_candidate_with_other_images_fails(rows: int, tmp_path: Path) -> None:
    expected = as_top_k(scene())
    onnx.save(replayed(expected), tmp_path / "fp32.onnx")
    model = replayed({name: np.concatenate([value, value]) for name, value in expected.items()})
    (cast,) = (node for node in model.graph.node if node.op_type == "Cast")
    weights = {"zero": [0], "kept": [rows]}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(v), n) for n, v in weights.items())
    others = [("Concat", ["x", "x"], ["both"], {"axis": 0}), ("Slice", ["both", "zero", "kept"], ["cut"], {})]
    for place, (op, inputs, outputs, attributes) in enumerate(others):
        model.graph.node.insert(place, onnx.helper.make_node(op, inputs, outputs, **attributes))
    cast.input[0] = "cut"
    onnx.save(model, tmp_path / "other.onnx")
    report = compare(tmp_path / "fp32.onnx", tmp_path / "other.onnx", {"x": numbers(12)}, spec=spec_of(expected))
    assert report.verdict == "failed"
    expect(report.reasons[0], "wrong-shape", [12, 40], [rows, 40])


def test_boxes_that_random_weights_choose_are_no_failure(tmp_path: Path) -> None:
    """Beside logits that react, boxes that stand still may be those of other queries; the chain says the same."""
    expected = as_queries(scene())
    still = expected | {"boxes": np.repeat(expected["boxes"][:1], 12, axis=0)}
    for name, outputs in (("fp32", expected), ("other", still)):
        onnx.save(replayed(outputs), tmp_path / f"{name}.onnx")
    paths, spec = (tmp_path / "fp32.onnx", tmp_path / "other.onnx"), spec_of(expected)
    report = compare(*paths, {"x": numbers(12)}, spec=spec | {"trained": False}, locate=False)
    assert report.verdict == "not verified"
    (reaction,) = [each for each in report.findings if each.check == "reaction"]
    expect(reaction.reason, "input-ignored", "'boxes'")
    assert compare(*paths, {"x": numbers(12)}, spec=spec, locate=False).verdict == "failed", "trained weights"
