"""Pairs of detectors whose boxes are moved by pixels that overlaps do not show, or read as another format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.corpus.pairs import Pair
from tests.corpus.pairs.detections import (
    FAILED,
    PASSED,
    SIZE,
    Scene,
    as_top_k,
    pair,
    planted,
    scene,
)


def wide(seed: int = 0) -> Scene:
    """Large objects, boxes of 0.5 to 0.9 of the picture."""
    start, rng = scene(seed, pictures=4), np.random.default_rng(seed)
    extent = rng.uniform(0.5, 0.9, (*start.scores.shape, 2))
    low = rng.uniform(0, 1, extent.shape) * (1 - extent)
    return replace(start, boxes=(np.concatenate([low, low + extent], axis=2) * SIZE).astype(np.float32))


def little(least: float, most: float, seed: int = 0, pictures: int = 40) -> Scene:
    """Small objects everywhere, those at an edge cut off there, and boxes that are a little off."""
    start, rng = scene(seed, pictures=pictures), np.random.default_rng(seed)
    shape = (*start.scores.shape, 2)
    extent, centre = rng.uniform(least, most, shape), rng.uniform(0, 1, shape)
    ends = [(centre + way * extent / 2).clip(0, 1) + 0.02 * extent * rng.normal(0, 1, shape) for way in (-1, 1)]
    return replace(start, boxes=(np.concatenate(ends, axis=2) * SIZE).astype(np.float32))


def moved(s: Scene, by: Any) -> Scene:
    return replace(s, boxes=(s.boxes + by).astype(np.float32))


def pairs() -> Iterator[Pair]:
    yield from shifts()
    yield from formats()


def shifts() -> Iterator[Pair]:
    start = wide()
    longest = (start.boxes[..., 2:] - start.boxes[..., :2]).max(axis=2)
    large = (longest > np.quantile(longest, 0.7))[..., None]
    middle = (start.boxes.reshape(-1, 4) - SIZE / 2).reshape(start.boxes.shape)
    for name, by in {
        "right": [2, 0, 2, 0],
        "large-ones": 2.5 * large,
        "scaled": 0.01 * middle,
    }.items():
        yield from planted(f"moved-{name}", lambda s, rng, by=by: moved(s, by), FAILED, start)
    noise = np.random.default_rng(0).normal(0, 0.3, start.boxes.shape)  # pixels
    yield from planted("moved-at-random", lambda s, rng: moved(s, noise), PASSED, start)
    one = np.where(np.arange(start.scores.size).reshape(*start.scores.shape, 1) == 0, 2.0, 0.0)
    yield from planted("moved-one", lambda s, rng: moved(s, one), PASSED, start)


def formats() -> Iterator[Pair]:
    """Equal files whose boxes the I/O spec declares rightly, or in another format."""
    large, small = wide(), scene(pictures=4)
    larger = replace(large, boxes=grown(large, 0.5))
    yield read("larger", larger, "cxcywh", "xyxy", "no-labels")
    yield read("large", large, "cxcywh", "xyxy", "boxes-misread")
    yield read("small", small, "xyxy", "cxcywh", "boxes-misread")
    yield read("medium", replace(small, boxes=grown(small, 0.4)), "xywh", "cxcywh", "boxes-misread")
    yield read("small", replace(small, boxes=grown(small, 0.2)), "xywh", "cxcywh", "no-labels")
    tiny = little(0.02, 0.06)
    yield read("tiny", tiny, "xywh", "cxcywh", "no-labels")
    yield read("tiny", tiny, "cxcywh", "cxcywh")
    few = little(0.02, 0.06, pictures=2)  # whose values do not tell
    yield replace(read("few", few, "xywh", "cxcywh"), codes=("no-labels",))
    yield read("large", large, "cxcywh", "cxcywh")
    yield read("small", small, "xyxy", "xyxy")


def grown(s: Scene, by: float) -> np.ndarray:
    """Boxes that are longer by a share of their sides at both ends, as far as they are in the picture."""
    low, high = s.boxes[..., :2], s.boxes[..., 2:]
    more = by * (high - low)
    return np.concatenate([low - more, high + more], axis=2).clip(0, SIZE)


def read(what: str, s: Scene, kind: str, declared: str, code: str = "") -> Pair:
    """Boxes of one format, declared as another one."""
    low, high = s.boxes[..., :2], s.boxes[..., 2:]
    first = (low + high) / 2 if kind == "cxcywh" else low
    boxes = np.concatenate([first, high if kind == "xyxy" else high - low], axis=2).astype(np.float32)
    arrays = as_top_k(replace(s, boxes=boxes))
    made = pair(f"{what}-{kind}-as-{declared}", [arrays, arrays], "not verified" if "mis" in code else PASSED)
    outputs = [each | ({"format": declared} if each["name"] == "boxes" else {}) for each in made.spec["outputs"]]
    return replace(made, spec={**made.spec, "outputs": outputs}, codes=(code,) if code else ())
