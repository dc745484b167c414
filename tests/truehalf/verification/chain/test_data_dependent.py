"""Numbers of detections that depend on what goes in: matched as detections, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import raises
from truehalf import Precision, compare, convert

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,8,4] b, float[1,8] raw) => (float[1,n,4] boxes, float[1,n] scores, int64[1,n] labels)
<int64[1] zero = {{0}}, int64[1] all = {{8}}, int64 two = {{2}}, int64[8] order = {{0, 1, 2, 3, 4, 5, 6, 7}},
 float gain = {{1.5}}, float[1] limit = {{{limit}}}, float[1] iou = {{0.5}}, int64[3] flat = {{1, 1, 8}}> {{
    s1 = Sigmoid(raw) s = Squeeze(s1, zero) rows = Squeeze(b, zero) far = Mul(rows, gain)
    keep = Greater(s, limit) ones = Cast<to = 7>(keep) count = ReduceSum(ones)
    {select}
    kept = Gather(far, idx) boxes = Unsqueeze(kept, zero) best = Gather(s, idx) scores = Unsqueeze(best, zero)
    odd = Mod(idx, two) labels = Unsqueeze(odd, zero)
}}"""
SELECTED = {
    "NonZero": "found = NonZero(keep) idx = Squeeze(found, zero)",
    "Compress": "idx = Compress<axis = 0>(order, keep)",
    "TopK": "top, idx = TopK(s, count)",
    "Slice": "top, by_score = TopK(s, all) idx = Slice(by_score, zero, count, zero)",
    "NonMaxSuppression": "sc = Reshape(s, flat) sel = NonMaxSuppression(b, sc, all, iou, limit)"
    " idx = Gather<axis = 1>(sel, two)",
}
DECIDES = {"NonMaxSuppression": "NonMaxSuppression -> sel"}
SPEC = {
    "inputs": [{"name": "b", "shape": [1, 8, 4]}, {"name": "raw", "shape": [1, 8]}],
    "outputs": [
        {"name": "boxes", "kind": "boxes", "format": "xyxy", "normalized": False},
        {"name": "scores", "kind": "scores"},
        {"name": "labels", "kind": "labels"},
    ],
}


def model(op: str, limit: float = 0.3) -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT.format(select=SELECTED[op], limit=limit))


def feeds(count: int = 12) -> list[dict[str, np.ndarray]]:
    """Eight boxes apart; of each sample others score above the limit."""
    draw = np.random.default_rng(0)
    corners = np.array([[40 * i, 40 * j, 40 * i + 32, 40 * j + 24] for i in range(4) for j in range(2)], np.float32)
    return [
        {"b": corners[None] + draw.uniform(0, 3, (1, 8, 4)).astype(np.float32), "raw": raw[None]}
        for raw in draw.choice([-3.0, 1.5, 3.0], (count, 8)).astype(np.float32)
        + draw.uniform(0, 0.5, (count, 8)).astype(np.float32)
    ]


def saved(folder: Path, name: str, proto: onnx.ModelProto) -> Path:
    onnx.save(proto, folder / name)
    return folder / name


@pytest.mark.parametrize("op", SELECTED)
def test_they_are_matched_as_detections(op: str, tmp_path: Path) -> None:
    reference, samples = saved(tmp_path, "a.onnx", model(op)), feeds()
    convert(reference, tmp_path / "b.onnx", samples=samples, precision=Precision(placement="eager"))
    report = compare(reference, tmp_path / "b.onnx", samples, spec=SPEC)
    expected = sum(int((1 / (1 + np.exp(-feed["raw"])) > 0.5).sum()) for feed in samples)
    found: Any = report.detections
    assert report.passed and report.evaluation == "emulated-fp16"
    assert found["reference"] == found["matched"] == expected


@pytest.mark.parametrize("op", SELECTED)
def test_a_file_that_finds_fewer_fails_by_its_detections(op: str, tmp_path: Path) -> None:
    paths = saved(tmp_path, "a.onnx", model(op)), saved(tmp_path, "b.onnx", model(op, limit=0.9))
    report = compare(*paths, feeds(), spec=SPEC)
    found: Any = report.detections
    failed = {finding.as_dict().get("gate") for finding in report.findings if finding.state == "failed"}
    assert report.verdict == "failed" and found["missed"] > 0 and "matched_fraction_min" in failed
    assert report.first_bad_node == DECIDES.get(op, "Greater -> keep")


def test_turns_of_a_loop_that_depend_on_what_it_computes(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 16]> g (float[4] x) => (float[4] y, float[t] trace)
    <int64 n = {20}, bool yes = {1}, float shrink = {0.8}, float least = {LEAST}> {
        y, trace = Loop(n, yes, x) <body = b (int64 i, bool go, float[4] a) => (bool on, float[4] next, float s) {
            next = Mul(a, shrink) size = Abs(next) s = ReduceMax<keepdims = 0>(size) on = Greater(s, least)
        }>
    }"""
    made = [onnx.parser.parse_model(text.replace("LEAST", least)) for least in ("0.5", "1.1")]
    draw = np.random.default_rng(5)
    report = compare(*made, [{"x": draw.uniform(2, 6, 4).astype(np.float32)} for _ in range(4)])
    assert report.verdict == "failed" and report.first_bad_node == "Loop -> y"


def test_rows_without_images_are_refused(tmp_path: Path) -> None:
    proto = model("NonZero")
    for node in proto.graph.node:
        node.output[:] = [{"boxes": "a", "kept": "boxes"}.get(name, name) for name in node.output]
        node.input[:] = [{"kept": "boxes"}.get(name, name) for name in node.input]
    del proto.graph.output[0].type.tensor_type.shape.dim[0]
    path = saved(tmp_path, "a.onnx", proto)
    with raises("wrong-shape", "'boxes'", "[N, boxes, 4]"):
        compare(path, path, feeds(), spec=SPEC)


@pytest.mark.parametrize("sides", ["a,b", "4,3", "a,3"])
@pytest.mark.parametrize("lost", ["Slice(t, one, many, zero)", "Slice(t, one, many, one)", "Concat<axis = 0>(t, t)"])
def test_a_candidate_whose_sides_are_not_what_it_states(sides: str, lost: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{sides}] x) => (float[{sides}] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] many = {{99}}, float two = {{2}}> {{
        t = Tanh(x) h = Mul(t, two) y = Exp(h)
    }}"""
    made = [onnx.parser.parse_model(text), onnx.parser.parse_model(text.replace("h = ", f"u = {lost} h = "))]
    made[1].graph.node[-2].input[0] = "u"
    draw = np.random.default_rng(6)
    report = compare(*made, [{"x": draw.normal(size=(4, 3)).astype(np.float32)} for _ in range(3)])
    assert report.verdict == "failed" and report.first_bad_node == "Mul -> h"
