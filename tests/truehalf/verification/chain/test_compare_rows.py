"""Detections in one tensor, compared: objects that are lost among many anchors, specs that do not fit, and names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.corpus.pairs import numbers, replayed, unbatched
from tests.corpus.pairs.detections import CLASSES, SIZE, Scene, scene
from tests.corpus.pairs.rows import of_anchors, spec_of, with_top_k
from tests.messages import expect, raises
from truehalf.codes import codes_in
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.verification.chain.compare import compare
from truehalf.verification.report import Report

PICTURES = 4
SPEC = spec_of("anchors")


def written(path: Path, rows: np.ndarray, spec: Any = None) -> Path:
    model = replayed({"output0": np.ascontiguousarray(rows)})
    if spec is not None:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        model.metadata_props.add(key=SPEC_KEY, value=text)
    onnx.save(model, path)
    return path


def compared(folder: Path, reference: np.ndarray, candidate: np.ndarray, **more: Any) -> Report:
    files = written(folder / "fp32.onnx", reference), written(folder / "other.onnx", candidate)
    return compare(*files, {"x": numbers(len(reference))}, locate=False, **{"spec": SPEC} | more)


def crowd(objects: int, anchors: int, single: int = 0) -> Scene:
    """Objects that several anchors find, all alike, and some that one finds; all score enough."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(np.sqrt(objects + single)))
    grid = np.stack(np.meshgrid(range(side), range(side)), axis=2).reshape(-1, 2)[: objects + single]
    low = (grid * (SIZE - 20) / side).astype(np.float32)
    boxes = np.concatenate([low, low + np.float32(0.8 * SIZE / side)], axis=1)
    every = np.concatenate([np.repeat(np.arange(objects), anchors), objects + np.arange(single)])
    scores = rng.uniform(0.55, 0.95, (PICTURES, len(every))).astype(np.float32)
    labels = np.tile(every % (CLASSES - 1), (PICTURES, 1))
    boxes = boxes[every] + rng.uniform(-0.4, 0.4, (PICTURES, len(every), 4)).astype(np.float32)
    order = np.argsort(-scores, axis=1)
    taken = [np.take_along_axis(each, order, axis=1) for each in (scores, labels)]
    return Scene(*taken, np.take_along_axis(boxes, order[..., None], axis=1))


def test_detections_are_counted_as_objects(tmp_path: Path) -> None:
    """Two objects of a hundred, found by an anchor each, are little of a thousand anchors."""
    start = crowd(98, 10, single=2)
    found = compared(tmp_path, of_anchors(start), of_anchors(start))
    assert found.passed and found.detections is not None and found.detections["reference"] == 100 * PICTURES
    counts = np.apply_along_axis(lambda labels: np.bincount(labels)[labels], 1, start.labels)
    low, high = start.boxes[..., :2], start.boxes[..., 2:]
    alike = (np.abs(low[:, :, None] - low[:, None]).max(axis=3) < 5) & (
        np.abs(high[:, :, None] - high[:, None]).max(axis=3) < 5
    )
    alone = alike.sum(axis=2) == 1
    assert alone.sum() == 2 * PICTURES and counts.min() > 1
    lost = compared(
        tmp_path, of_anchors(start), of_anchors(replace(start, scores=np.where(alone, 0.002, start.scores)))
    )
    assert lost.verdict == "failed" and lost.detections is not None and lost.detections["missed"] == 2 * PICTURES


def test_all_that_score_enough_are_compared(tmp_path: Path) -> None:
    start = crowd(160, 10)
    best = np.arange(start.scores.shape[1]) < 1250
    other = replace(start, scores=np.where(best, start.scores, start.scores * np.float32(0.3)))
    report = compared(tmp_path, of_anchors(start), of_anchors(other))
    assert report.verdict == "failed"


@pytest.mark.parametrize(
    "changed",
    [{"axis": 2}, {"columns": ["boxes", "objectness", "scores"]}, {"format": "cxcywh"}],
)
def test_columns_that_contradict_the_references_fail(changed: dict[str, Any], tmp_path: Path) -> None:
    rows, theirs = of_anchors(scene()), spec_of("anchors", **changed)
    files = [written(tmp_path / f"{i}.onnx", rows, spec) for i, spec in enumerate((SPEC, theirs))]
    report = compare(*files, {"x": numbers(len(rows))}, locate=False)
    assert report.verdict == "failed"
    expect(report.reasons[0], "metadata-differ", "'output0'", next(iter(changed)))


def test_metadata_that_cannot_be_read_are_a_note(tmp_path: Path) -> None:
    rows = of_anchors(scene())
    files = [written(tmp_path / f"{i}.onnx", rows, spec) for i, spec in enumerate((None, "{nope"))]
    report = compare(*files, {"x": numbers(len(rows))}, locate=False, spec=SPEC)
    assert report.passed and "metadata-differ" in codes_in("\n".join(report.not_verified))


@pytest.mark.parametrize(
    ("rows", "spec", "code", "facts"),
    [
        (of_anchors(scene()), spec_of("rows"), "wrong-shape", ["'output0'", 6, 40]),
        (of_anchors(scene()), spec_of("anchors", axis=2), "wrong-spec", ["'output0'", "'scores'"]),
        (of_anchors(scene())[:, :, 0], SPEC, "wrong-shape", ["'output0'", 10]),
    ],
)
def test_columns_that_do_not_fit_the_file_are_refused(
    rows: np.ndarray, spec: dict[str, Any], code: str, facts: list[object], tmp_path: Path
) -> None:
    with raises(code, *facts):
        compared(tmp_path, rows, rows, spec=spec)


def test_labels_of_the_reference_are_whole_numbers(tmp_path: Path) -> None:
    rows = with_top_k(scene())
    rows[..., 5] += 0.25
    with raises("wrong-spec", "'output0', column 'label'", rows[..., 5].size):
        compared(tmp_path, rows, rows, spec=spec_of("rows"))


def test_an_image_may_hold_any_number_of_detections(tmp_path: Path) -> None:
    onnx.save(unbatched.yolov7(crowd(60, 10)), tmp_path / "model.onnx")
    files = [tmp_path / "model.onnx"] * 2
    report = compare(*files, {"x": numbers(2)}, spec=unbatched.spec("yolov7"))
    assert report.passed and report.detections is not None and report.detections["reference"] == 2 * 600


def test_a_file_of_several_images_is_not_of_one(tmp_path: Path) -> None:
    model = unbatched.yolov7(scene())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "model.onnx")
    with raises("in-conflict", str(tmp_path / "model.onnx"), 2):
        compare(*[tmp_path / "model.onnx"] * 2, {"x": numbers(2)}, spec=unbatched.spec("yolov7"))


def test_a_candidate_without_the_output_is_refused_by_its_name(tmp_path: Path) -> None:
    rows = of_anchors(scene())
    onnx.save(replayed({"other": rows}), tmp_path / "other.onnx")
    with raises("wrong-name", "'output0'"):
        compare(written(tmp_path / "fp32.onnx", rows), tmp_path / "other.onnx", {"x": numbers(12)}, spec=SPEC)
