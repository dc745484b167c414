"""Boxes of a reference, read as an I/O spec declares them: doubted where they are none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.messages import expect
from truehalf.io_spec.boxes import box_format_problem
from truehalf.io_spec.spec import IoSpec

SIDE = 128
RNG = np.random.default_rng(0)
CENTRES = RNG.uniform(0.2, 0.8, (1, 40, 2)).astype(np.float32)
EXTENTS = RNG.uniform(0.05, 0.3, (1, 40, 2)).astype(np.float32)
CXCYWH = np.concatenate([CENTRES, EXTENTS], axis=2)
XYXY = np.concatenate([CENTRES - EXTENTS / 2, CENTRES + EXTENTS / 2], axis=2)
SCORES = np.full((1, 40), 0.9, np.float32)


def doubt(boxes: np.ndarray, box_format: str, normalized: bool, **more: Any) -> str | None:
    outputs = [{"name": name, "kind": name} for name in ("scores", "labels")]
    entry = {"name": "b", "kind": "boxes", "format": box_format, "normalized": normalized}
    inputs = [{"name": "x", "shape": more.get("shape", ["batch", 3, SIDE, SIDE])}]
    values = {"scores": more.get("scores", SCORES), "labels": np.zeros_like(SCORES), "b": boxes}
    spec = IoSpec.from_json({"inputs": inputs, "outputs": [*outputs, entry]})
    found = box_format_problem([(values, more.get("size"))], spec, 0.5)
    return found and found[0]


@pytest.mark.parametrize(
    ("boxes", "layout"),
    [
        (CXCYWH, ("cxcywh", True)),
        (CXCYWH * SIDE, ("cxcywh", False)),
        (XYXY, ("xyxy", True)),
        (XYXY * SIDE, ("xyxy", False)),
        (XYXY * 10 * SIDE, ("xyxy", False)),  # of a larger picture than the model's input
    ],
)
def test_what_is_declared_rightly_is_not_doubted(boxes: np.ndarray, layout: tuple[str, bool]) -> None:
    assert doubt(boxes, *layout) is None


@pytest.mark.parametrize("scale", [1, SIDE])
@pytest.mark.parametrize(("boxes", "declared", "right"), [(CXCYWH, "xyxy", "cxcywh"), (XYXY, "cxcywh", "xyxy")])
def test_another_format(boxes: np.ndarray, declared: str, right: str, scale: int) -> None:
    text, normalized = str(doubt(boxes * scale, declared, scale == 1)), str(scale == 1).lower()
    expect(text, "boxes-misread", "'b'", 40, f"format: {declared}, normalized: {normalized}", f"format: {right}")
    odd = re.search(r"\(no area \d+", text)
    assert (odd is not None) is (declared == "xyxy"), "as cxcywh all boxes have an area, and stick out"
    assert text.count("normalized") == 1, "only the format is another one"


@pytest.mark.parametrize(("boxes", "box_format"), [(CXCYWH, "cxcywh"), (XYXY, "xyxy")])
def test_pixels_against_normalised_boxes(boxes: np.ndarray, box_format: str) -> None:
    text = str(doubt(boxes, box_format, False))
    expect(text, "boxes-misread", "corner 40", f"format: {box_format}, normalized: false", "normalized: true")
    assert text.count("format") == 1, "the format is right"
    text = str(doubt(boxes * SIDE, box_format, True))
    expect(text, "boxes-misread", "outside 40", f"format: {box_format}, normalized: true", "normalized: false")
    assert text.count("format") == 1


def test_both_keys() -> None:
    text = str(doubt(CXCYWH * SIDE, "xyxy", True))
    expect(text, "boxes-misread", "format: xyxy, normalized: true", "format: cxcywh, normalized: false")


def test_boxes_that_no_key_explains() -> None:
    text = str(doubt(np.concatenate([XYXY[..., :2], XYXY[..., :2] - 0.1], axis=2) - 1, "xyxy", True))
    expect(text, "boxes-misread", "'b'", "format: xyxy, normalized: true")
    assert text.count("format:") == text.count("normalized:") == 1, "no other layout is named"


@pytest.mark.parametrize(("odd", "expected"), [(10, False), (11, True)])
def test_a_few_clipped_boxes_are_no_doubt(odd: int, expected: bool) -> None:
    boxes = XYXY.copy()
    boxes[0, :odd, 2] = boxes[0, :odd, 0]
    assert (doubt(boxes, "xyxy", True) is not None) is expected


def test_large_objects_that_reach_the_border_are_no_doubt() -> None:
    boxes = np.array([[[0.5, 0.5, 1.0, 1.0], [0.5, 0.6, 0.98, 0.8], [0.45, 0.5, 0.97, 0.9]]], np.float32)
    for count in (1, 2, 3):
        assert doubt(boxes[:, :count], "cxcywh", True, scores=SCORES[:, :count]) is None


def test_what_scores_little_and_what_has_no_size_is_not_looked_at() -> None:
    assert doubt(CXCYWH, "xyxy", True, scores=SCORES / 2) is None
    assert doubt(XYXY, "xyxy", False, shape=["batch", 3, "h", "w"]) is None
    assert doubt(XYXY, "xyxy", False, shape=["batch", 3, "h", "w"], size=(SIDE, SIDE)) is not None
