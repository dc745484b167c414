"""Boxes that a NonMaxSuppression or a TopK inside keeps: in another order, or others, where rounding decides; and wrong
ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.decisions import CLEAR, FAILED, NEAR, PASSED, TIES
from tests.corpus.pairs.detections import CONFIDENT, scene, spec_of

SAMPLES, CLASSES, BOXES = 6, 3, 40
Array = np.ndarray
_KEPT = "s = NonMaxSuppression(b, y, room, half, level)"
_AT = "i = Slice(s, two, three, one) n = Slice(s, zero, one, one) at = Concat<axis = 1>(n, i) "
_TEXTS = {
    "put-out": f"{_KEPT} z = Identity(s)",
    "scores": f"{_KEPT} z = GatherND(y, s)",
    "boxes": f"{_KEPT} {_AT} z = GatherND(b, at)",
}
_WRONG = {
    "nothing-suppressed": ("room, half, level", "room, whole, level"),
    "all-suppressed": ("room, half, level", "room, none, level"),
    "of-other-boxes": ("(b, y", "(c, y"),
    "last-left-out": ("s = NonMaxSuppression", "s0 = NonMaxSuppression"),
    "twice": ("s = NonMaxSuppression", "s0 = NonMaxSuppression"),
}
_AFTER = {
    "last-left-out": " s = Slice(s0, zero, last)",
    "twice": " s = Concat<axis = 0>(s0, s0)",
}


def pairs() -> Iterator[Pair]:
    yield from last_of_top_k()
    for seed, (name, text) in enumerate(_TEXTS.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            scores, boxes = _scene(seed)
            moved = scores + margin * 0.4 * np.random.default_rng(seed).choice([-1, 1], scores.shape)
            told = () if name == "scores" else codes  # those of near ties are equal
            yield _pair(f"{name}-{what}", (scores, moved), boxes, (text, text), expected, told)
    for seed, name in enumerate(("put-out",)):  # another number of boxes
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            scores, boxes = _scene(20 + seed)
            scores[0, 0, :2], scores[1, 1, 3] = 0.3 + margin / 3, 0.3 - margin / 3
            boxes[0, :2] += np.float64([[900], [1800]])  # alone
            boxes[1, 3] += 900
            moved = scores.copy()
            moved[0, 0, :2] -= margin
            yield _pair(f"{name}-fewer-{what}", (scores, moved), boxes, (_TEXTS[name], _TEXTS[name]), expected, codes)
    scores, boxes = _scene(8)  # beyond the margin, and within the tensor rule
    noise = scores + 0.008 * np.random.default_rng(8).choice([-1, 1], scores.shape)
    yield _pair("noise", (scores, noise), boxes, (_TEXTS["boxes"], _TEXTS["boxes"]), FAILED, ())
    scores, boxes = _scene(9)
    text = _TEXTS["scores"]
    for name, (old, new) in _WRONG.items():
        other = text.replace(old, new).replace("level)", f"level){_AFTER.get(name, '')}")
        yield _pair(name, (scores, scores), boxes, (text, other), FAILED, ())


def last_of_top_k() -> Iterator[Pair]:
    """One detection of 120 is another, of nearly the same score: of all gates average precision alone sees it."""
    text = "scores, i = TopK<axis = 1>(y, kept) labels = GatherElements<axis = 1>(l, i) u = Unsqueeze(i, two)"
    text += " e = Expand(u, four) boxes = GatherElements<axis = 1>(b, e)"
    for seed, (margin, what, expected, codes) in enumerate(
        ((NEAR, "near-tie", PASSED, TIES), (CLEAR, "clear", FAILED, ()))
    ):
        start = scene(seed, pictures=24)
        models = []
        for way in (1, -1):
            scores = start.scores.copy()
            scores[0, CONFIDENT - 1 : CONFIDENT + 1] = 0.525 + np.float32([0.4, -0.4]) * margin * way
            model = replayed({"y": scores, "b": start.boxes, "l": start.labels})
            model.graph.node.extend(onnx.parser.parse_graph(f"g (float[N] y) => (float[N] z) {{ {text} }}").node)
            whole = {"kept": [CONFIDENT], "two": [2], "four": [1, 1, 4]}
            model.graph.initializer.extend(
                numpy_helper.from_array(np.array(each), name) for name, each in whole.items()
            )
            del model.graph.output[:]
            model.graph.output.extend(
                helper.make_empty_tensor_value_info(name) for name in ("scores", "labels", "boxes")
            )
            models.append(onnx.shape_inference.infer_shapes(model))
        spec = spec_of(dict.fromkeys(("scores", "labels", "boxes"), scores))
        yield Pair(f"selection-last-of-top-k-{what}-{seed}", *models, {"x": numbers(24)}, expected, spec, codes=codes)


def _scene(seed: int) -> tuple[Array, Array]:
    """Scores, one in five near the next, and boxes around a few places."""
    rng = np.random.default_rng(300 + seed)
    scores = rng.uniform(0, 1, (SAMPLES, CLASSES, BOXES))
    scores[..., 1::5] = scores[..., ::5] + rng.uniform(-1, 1, scores[..., ::5].shape) * 5e-4
    centre = rng.uniform(100, 500, (SAMPLES, 8, 2))[:, np.arange(BOXES) % 8] + rng.normal(0, 12, (SAMPLES, BOXES, 2))
    side = rng.uniform(60, 90, (SAMPLES, BOXES, 2))
    return scores, np.concatenate([centre - side / 2, centre + side / 2], axis=2)


def _pair(
    name: str, scores: tuple[Array, Array], boxes: Array, texts: tuple[str, str], expected: str, codes: tuple[str, ...]
) -> Pair:
    models = [_model(each, boxes, text) for each, text in zip(scores, texts, strict=True)]
    return Pair(f"selection-{name}", *models, {"x": numbers(SAMPLES)}, expected, codes=codes)


def _model(scores: Array, boxes: Array, text: str) -> onnx.ModelProto:
    low, high = boxes[..., :2], boxes[..., 2:]
    centred = np.concatenate([(low + high) / 2, high - low], axis=2)
    model = replayed({"y": np.float32(scores), "b": np.float32(boxes), "c": np.float32(centred)})
    model.graph.node.extend(onnx.parser.parse_graph(f"g (float[N] y) => (float[N] z) {{ {text} }}").node)
    whole = {"room": 20, "zero": [0], "one": [1], "two": [2], "three": [3], "last": [-1]}
    arrays = {name: np.array(value, np.int64) for name, value in whole.items()}
    arrays |= {name: np.float32([each]) for name, each in (("half", 0.5), ("whole", 1), ("none", 0), ("level", 0.3))}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    return onnx.shape_inference.infer_shapes(onnx.shape_inference.infer_shapes(model))
