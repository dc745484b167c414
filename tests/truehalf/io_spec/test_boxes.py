"""Boxes of a reference, read as an I/O spec declares them: doubted where they are none."""

from __future__ import annotations

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
    return box_format_problem([(values, more.get("size"))], spec, 0.5)


def test_boxes_of_a_larger_picture_than_the_input_are_not_doubted() -> None:
    assert doubt(XYXY * 10 * SIDE, "xyxy", False) is None


BY_LAYOUT = {
    ("cxcywh", True): CXCYWH,
    ("cxcywh", False): CXCYWH * SIDE,
    ("xyxy", True): XYXY,
    ("xyxy", False): XYXY * SIDE,
}


@pytest.mark.parametrize("declared", BY_LAYOUT)
@pytest.mark.parametrize("right", BY_LAYOUT)
def test_the_layout_that_fits_is_named(right: tuple[str, bool], declared: tuple[str, bool]) -> None:
    text = doubt(BY_LAYOUT[right], *declared)
    if right == declared:
        assert text is None
        return
    named = [
        f"format: {box_format}, normalized: {str(is_shares).lower()}" for box_format, is_shares in (declared, right)
    ]
    expect(str(text), "boxes-misread", "'b'", 40, *named)


def test_boxes_that_no_key_explains() -> None:
    text = str(doubt(np.concatenate([XYXY[..., :2], XYXY[..., :2] - 0.1], axis=2) - 1, "xyxy", True))
    expect(text, "boxes-misread", "'b'", "format: xyxy, normalized: true")
    assert text.count("format:") == 1, "no other layout is named"


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
