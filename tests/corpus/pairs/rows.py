"""Pairs of detectors that put out boxes, scores and labels in one tensor: the changes of
tests/corpus/pairs/detections.py, planted in its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.detections import (
    CLASSES,
    FAILED,
    GOOD,
    PASSED,
    SIZE,
    Scene,
    as_queries,
    as_top_k,
    haunted,
    permuted,
    relabelled,
    rounded,
    scene,
)


def with_top_k(s: Scene) -> np.ndarray:
    """float32 [pictures, rows, 6]."""
    return with_top_k_of(as_top_k(s))


def with_top_k_of(found: Mapping[str, np.ndarray]) -> np.ndarray:
    beside = [found[name][..., None] for name in ("scores", "labels")]
    return np.concatenate([found["boxes"], *beside], axis=2).astype(np.float32)


def of_anchors(s: Scene) -> np.ndarray:
    """float32 [pictures, 4 + classes, rows]."""
    return np.concatenate([s.boxes, as_queries(s, "identity")["logits"]], axis=2).swapaxes(1, 2)


def with_objectness(s: Scene) -> np.ndarray:
    """float32 [pictures, rows, 5 + classes]."""
    scores = as_queries(s, "identity")["logits"]
    objectness = np.sqrt(scores.max(axis=2, keepdims=True))
    return np.concatenate([s.boxes, objectness, scores / objectness], axis=2)


def with_image(s: Scene) -> np.ndarray:
    """float32 [pictures, rows, 7]: the number of the picture, a box, a score and a label."""
    rows = with_top_k(s)
    pictures = np.broadcast_to(np.arange(len(rows), dtype=np.float32)[:, None, None], (*rows.shape[:2], 1))
    return np.concatenate([pictures, rows], axis=2)


FORMS: Mapping[str, tuple[Callable[[Scene], np.ndarray], list[str], int]] = {
    "rows": (with_top_k, ["boxes", "score", "label"], 2),
    "image": (with_image, ["image", "boxes", "score", "label"], 2),
    "anchors": (of_anchors, ["boxes", "scores"], 1),
    "objectness": (with_objectness, ["boxes", "objectness", "scores"], 2),
}


def spec_of(form: str, **more: Any) -> dict[str, Any]:
    columns = {"columns": FORMS[form][1], "axis": FORMS[form][2]}
    output = {"name": "output0", "kind": "rows", "format": "xyxy", "normalized": False} | columns | more
    names = [f"class-{i}" for i in range(CLASSES)]
    return {"inputs": [{"name": "x", "size": [SIZE, SIZE]}], "outputs": [output], "class_names": names}


def pair(name: str, form: str, arrays: list[np.ndarray], expected: str, **more: Any) -> Pair:
    reference, candidate = (replayed({"output0": np.ascontiguousarray(each)}) for each in arrays)
    return Pair(name, reference, candidate, {"x": numbers(len(arrays[0]))}, expected, spec_of(form, **more))


def pairs() -> Iterator[Pair]:
    for form, (put_out, _, axis) in FORMS.items():
        for change in (rounded, permuted, relabelled, haunted) if form == "anchors" else (permuted, relabelled):
            arrays = [put_out(each) for each in (scene(), change(scene(), np.random.default_rng(0)))]
            expected = PASSED if change in GOOD else FAILED
            yield pair(f"{form}-{change.__name__}", form, arrays, expected)
        if form not in ("rows", "anchors"):
            continue
        whole = put_out(scene())
        spoiled = np.moveaxis(whole.copy(), axis, 2)
        spoiled[0, 0, -1] = np.nan
        yield pair(f"{form}-nan", form, [whole, np.moveaxis(spoiled, 2, axis)], FAILED)
        fewer = np.delete(whole, 3, axis=3 - axis)
        yield pair(f"{form}-one-row-fewer", form, [whole, fewer], FAILED)

    yield from beside()
    yield from with_labels_beside()
    yield from counted()
    yield from with_background()


def with_labels_beside() -> Iterator[Pair]:
    """Boxes and a score in one tensor, labels in another."""
    spec = spec_of("rows", name="dets", columns=["boxes", "score"])
    spec["outputs"].append({"name": "labels", "kind": "labels"})
    for change, expected in ((permuted, PASSED), (relabelled, FAILED)):
        found = [as_top_k(each) for each in (scene(), change(scene(), np.random.default_rng(0)))]
        files = [replayed({"dets": with_top_k_of(each)[..., :5], "labels": each["labels"]}) for each in found]
        yield Pair(f"rows-labels-beside-{change.__name__}", *files, {"x": numbers(12)}, expected, spec)


def beside() -> Iterator[Pair]:
    """Coefficients of masks beside each anchor, which no detection shows."""
    rng = np.random.default_rng(5)
    whole, more = of_anchors(scene()), rng.normal(0, 1, (12, 8, 40)).astype(np.float32)
    columns = ["boxes", "scores", "others"]
    for name, other, expected in (("rounded", more.astype(np.float16), PASSED), ("halved", more / 2, FAILED)):
        arrays = [np.concatenate([whole, each.astype(np.float32)], axis=1) for each in (more, other)]
        yield pair(f"anchors-masks-{name}", "anchors", arrays, expected, columns=columns)


def counted() -> Iterator[Pair]:
    """Boxes as yxyx in 0..1, labels that are floats and a count of detections, which rounding may change."""
    spec = spec_of("rows")
    kinds = {"boxes": {"format": "yxyx", "normalized": True}, "scores": {}, "labels": {}, "counts": {}}
    spec["outputs"] = [{"name": f"detection_{kind}", "kind": kind} | layout for kind, layout in kinds.items()]
    for change, expected in ((permuted, PASSED), (relabelled, FAILED)):
        files = []
        for each in (scene(), change(scene(), np.random.default_rng(0))):
            found = as_top_k(each)
            arrays = {
                "detection_boxes": found["boxes"][..., [1, 0, 3, 2]] / np.float32(SIZE),
                "detection_scores": found["scores"],
                "detection_labels": found["labels"].astype(np.float32),
                "detection_counts": (found["scores"] > 0.1).sum(axis=1).astype(np.float32) - len(files),
            }
            files.append(replayed(arrays))
        yield Pair(f"rows-counted-{change.__name__}", *files, {"x": numbers(12)}, expected, spec)


def with_background() -> Iterator[Pair]:
    """Scores of softmax whose first class is no object, as SSD has them."""
    spec = spec_of("rows")
    layouts = {"boxes": {"format": "xyxy", "normalized": True}, "logits": {"activation": "identity"}}
    spec["outputs"] = [{"name": kind, "kind": kind} | layout for kind, layout in layouts.items()]
    spec["outputs"][1]["no_object"] = "first"
    for change, expected in ((rounded, PASSED), (relabelled, FAILED)):
        files = []
        for each in (scene(), change(scene(), np.random.default_rng(0))):
            found = as_queries(each, "identity")
            rest = 1 - found["logits"].sum(axis=2, keepdims=True)
            files.append(replayed(found | {"logits": np.concatenate([rest, found["logits"]], axis=2)}))
        yield Pair(f"background-first-{change.__name__}", *files, {"x": numbers(12)}, expected, spec)
