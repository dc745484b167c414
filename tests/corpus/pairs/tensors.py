"""Tensors of which a few large values hide the rest, and outputs that ignore their input; good ones beside bad ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tests.corpus.pairs import Pair, numbers, replayed

IGNORED, ALIKE = "input-ignored", "samples-alike"
FAILED = "failed"
SAMPLES = 6
Array = np.ndarray


def pairs() -> Iterator[Pair]:
    yield from _channels()
    yield from _masks()
    yield from _vectors()
    yield from _massive()
    yield from _good()
    yield from _ignoring()
    yield from _small_references()


def _pair(name: str, r: Array, o: Array, expected: str, *codes: str, **more: Any) -> Pair:
    return _of({"y": r}, {"y": o}, name, expected, *codes, **more)


def _of(r: Mapping[str, Array], o: Mapping[str, Array], name: str, expected: str, *codes: str, **more: Any) -> Pair:
    models = [replayed({key: np.float32(value) for key, value in each.items()}) for each in (r, o)]
    inputs = {"x": numbers(len(next(iter(r.values()))))}
    return Pair(name, *models, **{"inputs": inputs, "expected": expected, "codes": codes} | more)


def _half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _beside(r: Array, large: Array, change: Callable[[Array], Array]) -> Array:
    """FP16's rounding where a value is large, and `change` of all others."""
    return np.where(large, _half(r), change(r))


# --- one large value hides the rest -----------------------------------------------------------------------------------


def _channels() -> Iterator[Pair]:
    """One channel near 500, the others of an ordinary scale, on each axis."""
    for axis, shape in ((1, (SAMPLES, 64, 6, 6)), (3, (SAMPLES, 6, 6, 32))):
        r = _rng(axis).normal(0, 1.2, shape)
        large = np.zeros(shape, bool)
        large[(slice(None),) * axis + (3,)] = True
        r = np.where(large, 500 + 5 * r, r)
        yield _pair(f"axis-{axis}-zeroed", r, _beside(r, large, np.zeros_like), FAILED)
        yield _pair(f"axis-{axis}-rounded", r, _half(r), "passed")
    r, large = _channel_of_each_sample()
    yield _pair("channel-of-each-sample-negated", r, _beside(r, large, np.negative), FAILED)
    yield _pair("channel-of-each-sample-rounded", r, _half(r), "passed")
    one = _rng(4).normal(0, 1, (SAMPLES, 12))
    one[:, 5] = 700 + one[:, 5]
    swapped = one[:, [4, 3, 2, 1, 0, *range(5, one.shape[1])]]
    yield _pair("columns-swapped-beside-a-large-one", one, swapped, FAILED)
    dead = _rng(5).normal(0, 1, (SAMPLES, 12, 5, 5))
    dead[:, 0], dead[:, 1] = 400, 0
    alive = _half(dead)
    alive[:, 1] = _rng(6).normal(0, 1, (SAMPLES, 5, 5))
    yield _pair("channel-of-zeros-comes-alive", dead, alive, FAILED)


def _channel_of_each_sample() -> tuple[Array, Array]:
    r = _rng(4).normal(0, 0.6, (SAMPLES, 16, 5, 5))
    large = np.zeros(r.shape, bool)
    for sample in range(SAMPLES):
        large[sample, (5 * sample) % 16] = True
    return np.where(large, 600 + r, r), large


def _masks() -> Iterator[Pair]:
    r = _rng(7).normal(0, 1, (SAMPLES, 12, 16))
    masked = np.zeros(r.shape, bool)
    for sample in range(SAMPLES):
        masked[sample, 12 - sample :] = True  # the last rows of each sample, as many as it is short of
    masked[0, 11] = True
    r = np.where(masked, -1e9, r)
    yield _pair("rows-masked-others-negated", r, np.where(masked, r, -r), FAILED)
    yield _pair("rows-masked-others-rounded", r, np.where(masked, r, _half(r)), "passed")
    r = _rng(8).normal(0, 3, (SAMPLES, 4, 10, 10))
    causal = np.broadcast_to(np.triu(np.ones((10, 10), bool), 1), r.shape)
    for name, fill in (("infinite", -np.inf), ("finite", -1e4)):
        scores = np.where(causal, fill, r)
        yield _pair(f"causal-{name}-mask-rounded", scores, _half(scores), "passed")
    head = np.where(causal, -1e4, r)
    wrong = _half(head)
    wrong[:, 2] = np.where(causal[:, 2], -1e4, -head[:, 2])
    yield _pair("causal-mask-one-head-negated", head, wrong, FAILED)


def _vectors() -> Iterator[Pair]:
    shape = (SAMPLES, 3, 7)
    r = _rng(9).uniform(0.3, 0.9, shape) * _rng(10).choice([-1, 1], shape)
    large = np.zeros(shape, bool)
    large.reshape(SAMPLES, -1)[np.arange(SAMPLES), _rng(11).permutation(9)[:SAMPLES]] = True
    r = np.where(large, 100 + r, r)
    yield _pair("vector-zeroed", r, _beside(r, large, np.zeros_like), FAILED)
    yield _pair("vector-rounded", r, _half(r), "passed")
    sparse = np.where(
        _rng(12).uniform(0, 1, (SAMPLES, 8, 20, 20)) < 0.02, _rng(13).uniform(1, 3, (SAMPLES, 8, 20, 20)), 0
    )
    sparse[:, 3, 0, 0] = 2000 + 9 * np.arange(SAMPLES)
    emptied = np.where(sparse > 100, sparse, 0)
    yield _pair("sparse-values-gone-beside-a-large-one", sparse, emptied, FAILED)
    yield _pair("sparse-values-rounded", sparse, _half(sparse), "passed")


def _massive() -> Iterator[Pair]:
    """Activations of tokens of which two columns are large, as transformers have them."""
    tokens = _rng(210).normal(0, 1, (4, 30, 48))
    tokens[..., 7] += 900
    tokens[..., 30] -= 500
    others = np.delete(np.arange(48), [7, 30])
    wrong = _half(tokens)
    wrong[..., others] *= 0.85
    yield _pair("massive-activations-others-smaller", tokens, wrong, FAILED)
    yield _pair("massive-activations-rounded", tokens, _half(tokens), "passed")


def _good() -> Iterator[Pair]:
    """What FP16 makes of values of many scales: steps of each value, and errors of what was added up before."""
    rng = _rng(14)
    logits = rng.normal(0, 4, (SAMPLES, 1000))
    noisy = logits + rng.normal(0, 0.008, logits.shape)
    yield _pair("softmax", _softmax(logits), _half(_softmax(noisy)), "passed")
    heat = rng.normal(-7, 1.5, (SAMPLES, 8, 16, 16))
    yield _pair("heatmap", _sigmoid(heat), _half(_sigmoid(heat + rng.normal(0, 0.003, heat.shape))), "passed")
    hot = np.eye(50)[rng.integers(0, 50, SAMPLES)]
    yield _pair("one-hot", hot, hot, "passed")
    sums = rng.normal(-2, 1, (SAMPLES, 32, 8, 8)) * np.exp(rng.normal(0, 1, (32, 1, 1)))
    rounded = sums + rng.normal(0, 1, sums.shape) * 2.0**-11 * np.exp(rng.normal(0, 1, (32, 1, 1)))
    yield _pair("relu-with-channels-next-to-dead", np.maximum(sums, 0), _half(np.maximum(rounded, 0)), "passed")
    heads = np.concatenate([rng.uniform(0, 640, (SAMPLES, 4, 300)), _sigmoid(rng.normal(-6, 2, (SAMPLES, 20, 300)))], 1)
    yield _pair("boxes-and-scores-in-one", heads, _half(heads), "passed")
    lost = heads.copy()
    lost[:, 4:] = 0
    yield _pair("boxes-and-scores-in-one-no-scores", heads, lost, FAILED)
    subnormal = rng.normal(0, 1e-6, (SAMPLES, 40))
    subnormal[:, 0] = 30
    yield _pair("smallest-steps-of-fp16", subnormal, _half(subnormal), "passed")
    kinks = rng.normal(0, 1, (SAMPLES, 16, 10, 10))
    kinks[:, 0] = 300
    moved = _half(kinks)
    moved[2, 5, 3, 3] += 0.7
    yield _pair("a-single-value-at-a-kink", kinks, moved, "passed")


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


# --- outputs that ignore their input ----------------------------------------------------------------------------------


def _ignoring() -> Iterator[Pair]:
    r = 20 + _rng(15).normal(0, 0.03, (SAMPLES, 10))
    still = np.repeat(r[:1], SAMPLES, axis=0)
    yield _pair("ignores-its-input", r, still, "failed", IGNORED)
    yield _pair("both-ignore-their-input", still, still, "not verified", IGNORED)
    yield _pair("the-reference-ignores-its-input", still, still + 0.02 * _rng(16).normal(0, 1, r.shape), "not verified")
    yield _of({"y": r, "z": r}, {"y": _half(r), "z": still}, "one-of-two-ignores-its-input", "failed", IGNORED)
    yield _of({"y": r, "z": still}, {"y": r, "z": still}, "one-of-two-is-constant", "not verified", IGNORED)
    yield _pair("moves-by-less-than-a-step", 2000 + r * 1e-2, np.full_like(r, 2000.2), "not verified", IGNORED)
    yield _pair("moves-by-a-fifth-of-it", r, r[:1] + 0.2 * (r - r[:1]), "failed", IGNORED)
    for name, samples in (("one-sample", numbers(1)), ("samples-alike", np.ones((4, 1), np.float32))):
        yield _pair(name, r, _half(r), "passed", ALIKE, inputs={"x": samples})
    yield _pair("one-sample-wrong", r, 1.2 * r, "failed", inputs={"x": numbers(1)})


# --- references of next to nothing ------------------------------------------------------------------------------------


def _small_references() -> Iterator[Pair]:
    step = 2.0**-24
    r = np.float32(_rng(70).uniform(-10, 10, (SAMPLES, 30)) * step)
    yield _pair("subnormal-one-step-off", r, _half(r) + _rng(71).choice([-1, 1], r.shape) * step, "passed")
    r = np.float32(_rng(72).uniform(-300, 300, (SAMPLES, 30)) * step)
    yield _pair("subnormal-zeroed", r, 0 * r, FAILED)
    zero = np.zeros((SAMPLES, 30))
    yield _pair("zero-beside-one-step", zero, np.full_like(zero, step), "not verified", "nothing-compared")
    yield _pair("zero-beside-a-thousandth", zero, np.full_like(zero, 1e-3), FAILED)
