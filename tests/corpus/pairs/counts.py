"""Whole numbers: labels as floats, which the largest of them hides, and counts of the detections of each image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.detections import FAILED, PASSED, as_top_k, scene, spec_of

SAMPLES, LABELS, LIMIT = 8, 1000, 0.25


# What is left of values beside a threshold; x is rounded to float16, and what is made of it.
_LEFT: Mapping[str, str] = {
    "places": "m = Greater(s, t) z = NonZero(m)",
    "compressed": "m = Greater(s, t) n = Reshape(m, flat) f = Reshape(s, flat) g = Compress<axis = 0>(f, n) "
    "z = Cast<to = 1>(g)",
}


def pairs() -> Iterator[Pair]:
    yield from labels()
    yield from counts()
    yield from left()


def left() -> Iterator[Pair]:
    for seed, (name, text) in enumerate(_LEFT.items()):
        x = np.random.default_rng(20 + seed).uniform(0.3, 0.8, (4, 3000)).astype(np.float32)
        for what, other, expected in (("near-ties", text, PASSED), ("of-more", text.replace("s, t)", "s, u)"), FAILED)):
            both = (_left(text, half=False), _left(other, half=True))
            yield Pair(f"left-{name}-{what}", *both, {"x": x}, expected, codes=("near-ties",) * (expected == PASSED))


def _left(text: str, half: bool) -> onnx.ModelProto:
    """x, and what decides, in FP16 or not."""
    to, kind = 10 if half else 1, "float" if "Cast" in text else "int64"
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, M] x) => ({kind}[A, B] z)
        <float half = {{0.7}}, float more = {{0.72}}, float whole = {{1}}, int64[1] flat = {{-1}}> {{
        h = Cast<to = {to}>(x) t = Cast<to = {to}>(half) u = Cast<to = {to}>(more) one = Cast<to = {to}>(whole)
        r = Mul(h, h) s = Sqrt(r) {text} }}""")


def labels() -> Iterator[Pair]:
    rng = np.random.default_rng(5)
    whole = rng.integers(0, LABELS, (SAMPLES, 17, 3)).astype(np.float32)
    whole.flat[0] = LABELS - 1
    yield _values("labels-next", whole, np.maximum(whole - 1, 0), FAILED)
    other = whole.copy()
    other.flat[rng.integers(whole.size)] += 1
    yield _values("labels-one-other", whole, other, FAILED)
    rows = np.concatenate([rng.uniform(0, 640, (SAMPLES, 300, 5)), rng.integers(0, 80, (SAMPLES, 300, 1))], axis=2)
    start = rows.astype(np.float32)
    rounded = start.astype(np.float16).astype(np.float32)
    yield _values("labels-in-a-column", start, rounded, PASSED)
    yield _values("labels-in-a-column-next", start, rounded + np.float32([0, 0, 0, 0, 0, 1]), FAILED)
    large = rng.integers(0, 60000, (SAMPLES, 40)).astype(np.float32)
    yield _values("whole-numbers-rounded", large, large.astype(np.float16).astype(np.float32), PASSED)


def _values(name: str, reference: np.ndarray, candidate: np.ndarray, expected: str) -> Pair:
    models = (replayed({"y": values}) for values in (reference, candidate.astype(np.float32)))
    return Pair(name, *models, {"x": numbers(SAMPLES)}, expected)


def counts() -> Iterator[Pair]:
    start = scene()
    cut = np.where(start.scores < LIMIT, np.float32(0), start.scores)
    more = cut.copy()
    more[0, np.count_nonzero(cut[0])] = LIMIT + 1e-4  # and the candidate's is below, which the model leaves out
    before, after = (as_top_k(replace(start, scores=scores)) for scores in (more, cut))
    both = [_counted(each) for each in (before, after)]
    yield _detector("count-limit-inside", both[0], both[1], PASSED)
    yield _detector("count-wrong", both[0], both[1] | {"num": both[1]["num"] - 1}, FAILED)
    fewer = as_top_k(replace(start, scores=np.where(start.scores < 0.9, np.float32(0), start.scores)))
    yield _detector("count-of-what-was-lost", *(_counted(each) for each in (before, fewer)), FAILED)


def _counted(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(outputs) | {"num": np.count_nonzero(outputs["scores"] > 0, axis=1)}


def _detector(name: str, reference: dict[str, np.ndarray], candidate: dict[str, np.ndarray], expected: str) -> Pair:
    spec = spec_of({key: values for key, values in reference.items() if key != "num"})
    spec["outputs"].append({"name": "num"})
    models = (replayed(outputs) for outputs in (reference, candidate))
    return Pair(name, *models, {"x": numbers(len(reference["num"]))}, expected, spec)
