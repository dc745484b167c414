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
    as_queries,
    as_top_k,
    pair,
    planted,
    rounded,
    scene,
)

SEEDS = range(1)


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
        "up": [0, -1.5, 0, -1.5],
        "wider": [-1.5, 0, 1.5, 0],
        "one-side": [0, 0, 0, 2],
        "large-ones": 2.5 * large,
        "scaled": 0.01 * middle,
    }.items():
        yield from planted(f"moved-{name}", lambda s, rng, by=by: moved(s, by), FAILED, start)
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        by = rng.uniform(1.2, 2.8) * rng.permutation([1, 0, rng.choice([-1, 1]), 0])
        other = wide(seed)
        yield from planted(f"moved-by-{seed}", lambda s, rng, by=by: rounded(moved(s, by), rng), FAILED, other, seed)
        noise = rng.normal(0, 0.3, other.boxes.shape)  # pixels
        yield from planted(f"moved-at-random-{seed}", lambda s, rng, by=noise: moved(s, by), PASSED, other, seed)
    one = np.where(np.arange(start.scores.size).reshape(*start.scores.shape, 1) == 0, 2.0, 0.0)
    yield from planted("moved-one", lambda s, rng: moved(s, one), PASSED, start)
    small = replace(start, boxes=start.boxes[:1], scores=start.scores[:1], labels=start.labels[:1])
    yield from planted("moved-in-one-picture", lambda s, rng: moved(s, [0.5, 0, 0.5, 0]), PASSED, small)


def formats() -> Iterator[Pair]:
    """Equal files whose boxes the I/O spec declares rightly, or in another format."""
    for seed in SEEDS:
        large, small = wide(seed), scene(seed, pictures=4)
        larger = replace(large, boxes=grown(large, 0.5))
        yield read("larger", larger, "cxcywh", "xyxy", seed, "boxes-unlikely")
        yield read("large", large, "cxcywh", "xyxy", seed, "boxes-misread")
        yield read("small", small, "cxcywh", "xyxy", seed, "boxes-misread")
        yield read("small", small, "xyxy", "cxcywh", seed, "boxes-misread")
        yield read("medium", replace(small, boxes=grown(small, 0.4)), "xywh", "cxcywh", seed, "boxes-misread")
        yield read("small", replace(small, boxes=grown(small, 0.2)), "xywh", "cxcywh", seed, "boxes-unlikely")
        yield read("large", large, "xywh", "cxcywh", seed, "boxes-misread")
        yield read("large-as-small", replace(large, boxes=grown(large, -0.2)), "xywh", "cxcywh", seed, "boxes-misread")
        for least, most, code in ((0.02, 0.06, "no-labels"), (0.05, 0.12, "no-labels"), (0.03, 0.2, "boxes-unlikely")):
            tiny = little(least, most, seed)
            yield read(f"tiny-{most}", tiny, "xywh", "cxcywh", seed, code)
            yield read(f"tiny-{most}", tiny, "cxcywh", "cxcywh", seed)
        few = little(0.02, 0.06, seed, pictures=2)  # whose values do not tell
        yield replace(read("few", few, "xywh", "cxcywh", seed), codes=("no-labels",))
        for kind in ("cxcywh", "xyxy"):
            yield read("large", large, kind, kind, seed)
            yield read("small", small, kind, kind, seed)


def grown(s: Scene, by: float) -> np.ndarray:
    """Boxes that are longer by a share of their sides at both ends, as far as they are in the picture."""
    low, high = s.boxes[..., :2], s.boxes[..., 2:]
    more = by * (high - low)
    return np.concatenate([low - more, high + more], axis=2).clip(0, SIZE)


def read(what: str, s: Scene, kind: str, declared: str, seed: int, code: str = "") -> Pair:
    """Boxes of one format, declared as another one; normalised with odd seeds, where queries are put out."""
    low, high = s.boxes[..., :2], s.boxes[..., 2:]
    first = (low + high) / 2 if kind == "cxcywh" else low
    boxes = np.concatenate([first, high if kind == "xyxy" else high - low], axis=2).astype(np.float32)
    arrays = (as_queries if seed % 2 else as_top_k)(replace(s, boxes=boxes))
    made = pair(f"{what}-{kind}-as-{declared}-{seed}", [arrays, arrays], "not verified" if "mis" in code else PASSED)
    outputs = [each | ({"format": declared} if each["name"] == "boxes" else {}) for each in made.spec["outputs"]]
    return replace(made, spec={**made.spec, "outputs": outputs}, codes=(code,) if code else ())
