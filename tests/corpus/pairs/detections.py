"""Pairs of detectors: what rounding, ties and another order of queries do to detections, and what they do not.

Each change is made to a scene (scores, labels and boxes of every picture) and planted in both kinds of detectors: one
that puts out queries, and one with top-k inside. Limits of the gates: conf/verify/detection.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.corpus.pairs import Pair, numbers, replayed

PICTURES, CONFIDENT, MIDDLE, ROWS, CLASSES, SIZE = 12, 5, 9, 40, 6, 640
GHOSTS = 15
USED = CLASSES - 1  # of the classes; nothing is of the last one
FAILED, PASSED = "failed", "passed"


@dataclass(frozen=True)
class Scene:
    """scores float32 [pictures, rows], best first; labels int64 [pictures, rows]; boxes float32 [pictures, rows, 4],
    xyxy in pixels.
    """

    scores: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray


Change = Callable[[Scene, np.random.Generator], Scene]


def scene(seed: int = 0, pictures: int = PICTURES) -> Scene:
    """In each picture confident detections, some between 0.12 and 0.48, and a tail."""
    rng = np.random.default_rng(seed)
    parts = ((CONFIDENT, 0.55, 0.97), (MIDDLE, 0.12, 0.48), (ROWS - CONFIDENT - MIDDLE, 0.002, 0.09))
    scores = np.concatenate([rng.uniform(low, high, (pictures, count)) for count, low, high in parts], axis=1)
    centre, extent = rng.uniform(100, 540, (pictures, ROWS, 2)), rng.uniform(60, 190, (pictures, ROWS, 2))
    boxes = np.concatenate([centre - extent / 2, centre + extent / 2], axis=2).astype(np.float32)
    labels = rng.integers(0, USED, (pictures, ROWS))
    return Scene(-np.sort(-scores, axis=1).astype(np.float32), labels, boxes)


# --- good: as good as the reference ---------------------------------------------------------------------------------


def rounded(s: Scene, rng: np.random.Generator) -> Scene:
    """To FP16, boxes and scores."""
    return Scene(
        s.scores.astype(np.float16).astype(np.float32), s.labels, s.boxes.astype(np.float16).astype(np.float32)
    )


def noisy(s: Scene, rng: np.random.Generator) -> Scene:
    """As the embedded detectors' FP16 files were measured: p50 0.0004, p99 0.0125, at most 0.047 of scores."""
    spread = np.abs(rng.standard_t(1.6, s.scores.shape)).clip(max=90) * 5e-4
    scores = s.scores + spread * rng.choice([-1, 1], s.scores.shape) * np.minimum(1, s.scores * 4)
    boxes = s.boxes + rng.normal(0, 3e-4 * SIZE, s.boxes.shape)
    return Scene(scores.clip(0, 1).astype(np.float32), s.labels, boxes.astype(np.float32))


def permuted(s: Scene, rng: np.random.Generator) -> Scene:
    order = rng.permuted(np.tile(np.arange(ROWS), (len(s.scores), 1)), axis=1)
    return Scene(*(np.take_along_axis(a, order, axis=1) for a in (s.scores, s.labels)), _rows(s.boxes, order))


def other_last_places(s: Scene, rng: np.random.Generator) -> Scene:
    """Rounding keeps other queries in the last place."""
    labels, boxes = s.labels.copy(), s.boxes.copy()
    labels[:, -1], boxes[:, -1] = (labels[:, -1] + 1) % USED, boxes[:, -1] + 90
    return replace(s, labels=labels, boxes=boxes)


def across_the_threshold(s: Scene, rng: np.random.Generator) -> Scene:
    """Scores at the threshold, jittered."""
    return replace(
        s, scores=(s.scores + rng.uniform(-5e-3, 5e-3, s.scores.shape) * (s.scores > 0.4)).astype(np.float32)
    )


# --- bad ------------------------------------------------------------------------------------------------------------


def lowered(s: Scene, rng: np.random.Generator) -> Scene:
    """All confident scores to 0.51."""
    return replace(s, scores=np.where(s.scores >= 0.5, np.float32(0.51), s.scores))


def capped(s: Scene, rng: np.random.Generator) -> Scene:
    return replace(s, scores=np.minimum(s.scores, np.float32(0.73)))


def sharpened(s: Scene, rng: np.random.Generator) -> Scene:
    """Nearer to 1 above the threshold; all remain in order."""
    return replace(s, scores=np.where(s.scores >= 0.5, np.float32(1) - (1 - s.scores) / 4, s.scores))


def exchanged(s: Scene, rng: np.random.Generator) -> Scene:
    """The confident scores in reverse: the same curve of scores, of other detections."""
    scores = s.scores.copy()
    scores[:, :CONFIDENT] = scores[:, :CONFIDENT][:, ::-1]
    return replace(s, scores=scores)


def emptied(s: Scene, rng: np.random.Generator) -> Scene:
    """What scores 0.2 to 0.5 is gone."""
    return replace(s, scores=np.where((s.scores >= 0.2) & (s.scores < 0.5), np.float32(0.003), s.scores))


def without_tail(s: Scene, rng: np.random.Generator) -> Scene:
    """What scores less than 0.15 is gone."""
    return replace(s, scores=np.where(s.scores < 0.15, np.float32(0), s.scores))


def haunted(s: Scene, rng: np.random.Generator) -> Scene:
    """Ghosts at 0.49 in place of the tail."""
    scores, boxes = s.scores.copy(), s.boxes.copy()
    scores[:, -GHOSTS:] = 0.49
    boxes[:, -GHOSTS:] = boxes[:, -GHOSTS:] * np.float32(0.3) + np.float32(30)
    return replace(s, scores=scores, boxes=boxes)


def haunted_by_another_class(s: Scene, rng: np.random.Generator) -> Scene:
    """... of a class that the reference never finds, of which average precision says nothing."""
    labels = s.labels.copy()
    labels[:, -GHOSTS:] = USED
    return replace(haunted(s, rng), labels=labels)


def relabelled(s: Scene, rng: np.random.Generator) -> Scene:
    """Classes of low scores."""
    return replace(s, labels=np.where((s.scores < 0.5) & (s.scores > 0.1), (s.labels + 1) % USED, s.labels))


def moved_low(s: Scene, rng: np.random.Generator) -> Scene:
    """Boxes of low scores, by a tenth of the picture."""
    return replace(s, boxes=s.boxes + np.float32(SIZE / 10) * ((s.scores < 0.5) & (s.scores > 0.1))[..., None])


def moved_little(s: Scene, rng: np.random.Generator) -> Scene:
    """Boxes, by 5 of 640 pixels and wider by them: the wide ones still overlap by more than 0.9."""
    wide = s.boxes.copy()
    wide[..., :2], wide[..., 2:] = wide[..., :2] / 2, wide[..., 2:] / 2 + 320
    return replace(s, boxes=wide + np.float32(5))


def swapped(s: Scene, rng: np.random.Generator) -> Scene:
    """Two classes."""
    return replace(s, labels=np.where(s.labels == 0, 1, np.where(s.labels == 1, 0, s.labels)))


# --- the two kinds of detectors ---------------------------------------------------------------------------------------


def as_queries(s: Scene, activation: str = "sigmoid") -> dict[str, np.ndarray]:
    scores = np.full((*s.scores.shape, CLASSES), 5e-4)
    np.put_along_axis(scores, s.labels[..., None], s.scores.clip(1e-4, 1 - 1e-4)[..., None], axis=2)
    values = scores if activation == "identity" else np.log(scores / (1 - scores))
    if activation == "softmax":
        rest = np.log(1 - scores.sum(axis=2, keepdims=True).clip(max=1 - 1e-4))
        values = np.concatenate([np.log(scores), rest], axis=2)
    return {"logits": values.astype(np.float32), "boxes": s.boxes / np.float32(SIZE)}


def as_top_k(s: Scene) -> dict[str, np.ndarray]:
    best = np.argsort(-s.scores, axis=1, kind="stable")
    return {
        "scores": np.take_along_axis(s.scores, best, axis=1),
        "labels": np.take_along_axis(s.labels, best, axis=1),
        "boxes": _rows(s.boxes, best),
    }


def spec_of(outputs: Mapping[str, np.ndarray], activation: str = "sigmoid") -> dict[str, Any]:
    boxes = {"format": "xyxy", "normalized": "logits" in outputs}
    logits = {"activation": activation, "no_object": activation == "softmax"}
    keys: dict[str, Any] = {"boxes": boxes, "logits": logits}
    listed = [{"name": name, "kind": name} | keys.get(name, {}) for name in outputs]
    return {"inputs": [{"name": "x", "size": [SIZE, SIZE]}], "outputs": listed}


def pair(
    name: str, arrays: list[dict[str, np.ndarray]], expected: str, activation: str = "sigmoid", **more: Any
) -> Pair:
    """A pair that puts out the two sets of arrays."""
    reference, candidate = (replayed(each) for each in arrays)
    samples = numbers(len(arrays[0]["boxes"]))
    return Pair(name, reference, candidate, {"x": samples}, expected, spec_of(arrays[0], activation), **more)


def _rows(boxes: np.ndarray, order: np.ndarray) -> np.ndarray:
    return np.take_along_axis(boxes, order[..., None], axis=1)


GOOD: tuple[Change, ...] = (rounded, noisy, permuted, other_last_places)
BAD: tuple[Change, ...] = (
    *(
        lowered,
        capped,
        sharpened,
        exchanged,
        emptied,
        without_tail,
        haunted,
        haunted_by_another_class,
    ),
    *(relabelled, moved_low, swapped),
)
_OF_PLACES = (
    exchanged,
    without_tail,
    swapped,
    haunted_by_another_class,
)  # what top-k inside the model does with them


def planted(name: str, change: Change, expected: str, start: Scene, seed: int = 0) -> Iterator[Pair]:
    """The change in both kinds of detectors, or a fault that both show alike in the one with queries."""
    other = change(start, np.random.default_rng(seed))
    kinds = {"queries": as_queries, "top-k": as_top_k}
    if expected == FAILED and change not in _OF_PLACES:
        del kinds["top-k"]
    for kind, put_out in kinds.items():
        yield pair(f"{kind}-{name}", [put_out(start), put_out(other)], expected)


def pairs() -> Iterator[Pair]:
    for change in (*GOOD, *BAD):
        name = change.__name__.replace("_", "-")
        yield from planted(name, change, PASSED if change in GOOD else FAILED, scene())
    yield from good_ones()
    yield from last_places()
    yield from other_activations()
    yield from other_values()
    yield from other_counts()


def good_ones() -> Iterator[Pair]:
    start, rng = scene(), np.random.default_rng(1)
    near = np.where(start.scores > 0.4, rng.uniform(0.498, 0.502, start.scores.shape), start.scores)
    yield from planted("jitter", across_the_threshold, PASSED, replace(start, scores=near.astype(np.float32)))
    tied = np.where(start.scores >= 0.5, 0.9, np.where(start.scores > 0.1, 0.3, 0.02)).astype(np.float32)
    yield from planted("ties", permuted, PASSED, replace(start, scores=tied))
    cut = np.where(start.scores < 0.25, np.float32(0), start.scores)
    lost = cut.copy()
    cut[0, np.count_nonzero(cut[0])] = 0.2501  # and the candidate's is 0.2499, which the model leaves out
    arrays = [as_top_k(replace(start, scores=scores)) for scores in (cut, lost)]
    yield pair("top-k-limit-inside", arrays, PASSED)


def last_places() -> Iterator[Pair]:
    """The last places of top-k inside the model, which rounding gives to others that score the same; and empty ones."""
    start, rng = scene(), np.random.default_rng(3)
    others = [rng.permutation(start.labels.ravel()).reshape(start.labels.shape), start.boxes[::-1] * np.float32(0.9)]
    for name, last, expected in (
        ("tied", 0.002, PASSED),
        ("empty", 0.0, PASSED),
        ("far-apart", None, PASSED),
    ):
        tail = start.scores < 0.1
        level = start.scores if last is None else np.where(tail, np.float32(last), start.scores)
        noise = rng.uniform(-2e-3, 2e-3, level.shape) * tail * (level > 0)
        scores = (level * (1 + noise)).astype(np.float32)
        whole = replace(start, scores=level)
        other = Scene(
            scores, np.where(tail, others[0], start.labels), np.where(tail[..., None], others[1], start.boxes)
        )
        yield pair(f"top-k-last-places-{name}", [as_top_k(whole), as_top_k(other)], expected)
    confident = replace(start, scores=np.maximum(start.scores, np.float32(0.9)))
    wrong = replace(confident, labels=np.where(start.scores < 0.1, others[0], start.labels))
    yield pair("top-k-all-confident-labels-wrong", [as_top_k(each) for each in (confident, wrong)], FAILED)


def other_activations() -> Iterator[Pair]:
    start, rng = scene(), np.random.default_rng(2)
    changes: tuple[tuple[Change, str], ...] = ((rounded, PASSED), (capped, FAILED))
    for activation in ("softmax", "identity"):
        for change, expected in changes:
            arrays = [as_queries(each, activation) for each in (start, change(start, rng))]
            yield pair(f"{activation}-{change.__name__}", arrays, expected, activation)


def other_values() -> Iterator[Pair]:
    """Logits of two confident queries a picture, where no class comes near a score that counts."""
    arrays = [as_queries(scene()) for _ in range(2)]
    arrays[1]["logits"][:, :2, USED] += 3
    yield pair("queries-values-beside", arrays, PASSED)


def other_counts() -> Iterator[Pair]:
    whole = as_top_k(scene())
    for name, count in (("fewer", 12),):
        yield pair(f"top-k-{name}", [whole, {key: value[:, :count] for key, value in whole.items()}], FAILED)
    yield pair("top-k-more", [{key: value[:, :-1] for key, value in whole.items()}, whole], FAILED)
    wide = moved_little(scene(), np.random.default_rng(0))
    before = as_top_k(replace(wide, boxes=wide.boxes - np.float32(5)))
    yield pair("top-k-moved-little", [before, as_top_k(wide)], FAILED)
    floats = {key: value.astype(np.float32) for key, value in whole.items()}
    yield pair("top-k-labels-of-floats", [floats, floats], PASSED)
