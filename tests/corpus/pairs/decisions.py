"""Decisions inside a model (the largest of several, a side of a threshold), which rounding turns among values that are
nearly equal; and wrong files whose error a near tie must not excuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.corpus.pairs import Pair, numbers, replayed

SAMPLES = 8
NEAR, CLEAR = 1e-3, 0.02  # margins, of what the values spread over
FAILED, PASSED = "failed", "passed"
TIES = ("near-ties",)
Array = np.ndarray
BOTH = ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ()))
CLASSIFIER = {"outputs": [{"name": "logits", "kind": "classes"}]}
# Shape of the values `y`, without samples; their axis of choice; and nodes that make `z`.
_LARGEST: Mapping[str, tuple[tuple[int, ...], int, str]] = {
    "argmax": ((5, 6, 7), 1, "z = ArgMax<axis = 1, keepdims = 0>(y)"),
    "argmin": ((7, 10), 1, "n = Neg(y) z = ArgMin<axis = 1>(n)"),
    "argmax-of-softmax": ((5, 6, 7), 1, "p = Softmax<axis = 1>(y) z = ArgMax<axis = 1, keepdims = 0>(p)"),
    "place-in-a-row": (
        (1, 1, 20),
        3,
        "f = Flatten<axis = 1>(y) i = ArgMax<axis = 1>(f) c = Mod(i, five) z = Cast<to = 1>(c)",
    ),
    "top-k": ((20,), 1, "v, z = TopK<axis = 1>(y, three)"),
    "hardmax": ((5, 9), 2, "z = Hardmax(y)"),
    "mask-of-the-largest": ((6, 4, 5), 1, "t = ReduceMax<axes = [1]>(y) z = Equal(t, y)"),
    "one-hot": ((12,), 1, "i = ArgMax<axis = 1, keepdims = 0>(y) z = OneHot(i, twelve, pair)"),
}
# Thresholds of a step, and nodes that make `z` of `y`.
_STEPS: Mapping[str, tuple[Array, str]] = {
    "greater": (np.float32([0.5]), "z = Greater(y, half)"),
    "where": (np.float32([0.5]), "m = GreaterOrEqual(y, half) z = Where(m, y, minus)"),
    "sigmoid": (np.float32([0]), "p = Sigmoid(y) z = Greater(p, half)"),
    "sign": (np.float32([0]), "s = Sign(y) z = Mul(s, wide)"),
    "round": (np.arange(-2.5, 3), "z = Round(y)"),
    "floor": (np.arange(-2.0, 3), "z = Floor(y)"),
    "to-integers": (np.float32([-2, -1, 1, 2]), "z = Cast<to = 7>(y)"),
    "quantized": (
        np.float32([-0.75, 0.25, 0.75]),
        "q = QuantizeLinear(y, half, point) z = DequantizeLinear(q, half, point)",
    ),
}
# Another rule: nodes of the reference, what is replaced in them, and by what.
_WRONG: Mapping[str, tuple[str, str, str]] = {
    "floor-for-round": ("z = Round(y)", "Round", "Floor"),
    "less-for-greater": ("m = Greater(y, half) z = Where(m, y, minus)", "Greater", "Less"),
    "softmax-of-another-axis": (
        "s = Softmax<axis = 2>(y) z = ArgMax<axis = 2>(s)",
        "Softmax<axis = 2>",
        "Softmax<axis = 1>",
    ),
    "another-threshold": ("m = Greater(y, half) z = Where(m, wide, minus)", "half", "more"),
    "another-divisor": ("z = Mod<fmod = 1>(y, half)", "y, half", "y, more"),
    "fewer-are-chosen": (
        "v, i = TopK<axis = 2>(y, three) t = Gather(table, i) z = ReduceSum(t, second)",
        "three",
        "two_",
    ),
}
_AMONG_EQUALS: Mapping[str, tuple[str, str, str]] = {
    "last-for-first": ("z = ArgMax<axis = 2>(y)", "axis = 2", "axis = 2, select_last_index = 1"),
    "or-equal": ("m = Greater(y, zero) z = Where(m, y, minus)", "Greater", "GreaterOrEqual"),
}
_OF_NOISE = {
    "greater": "t = ReduceMean<axes = [2]>(y) z = Greater(y, t)",
    "argmax": "z = ArgMax<axis = 2>(y)",
}


def pairs() -> Iterator[Pair]:
    for seed, (name, (shape, axis, text)) in enumerate(_LARGEST.items()):
        for margin, what, expected, codes in BOTH:
            yield _pair(f"{name}-{what}", tied((SAMPLES, *shape), axis, margin, 200 + seed), text, expected, codes)
    for seed, (name, (thresholds, text)) in enumerate(_STEPS.items()):
        for margin, what, expected, codes in BOTH:
            yield _pair(
                f"{name}-{what}", beside(thresholds, (SAMPLES, 5, 7), margin, 230 + seed), text, expected, codes
            )
    for margin, what, expected, codes in BOTH:  # merged with an Identity, under its name
        both = beside(np.float32([-1.5, 0.5, 1.5]), (SAMPLES, 6, 8), margin, 420)
        text = "h = Round(y) i = Identity(h) z = Mul(i, wide)"
        yield _pair(f"renamed-{what}", both, text, expected, codes, "i = Round(y) z = Mul(i, wide)")
    rng = np.random.default_rng(280)
    y, whole = np.float32(rng.uniform(-3, 3, (SAMPLES, 6, 8))), np.float32(rng.integers(0, 3, (SAMPLES, 6, 8)))
    for table, values in ((_WRONG, y), (_AMONG_EQUALS, whole)):
        for name, (text, old, new) in table.items():
            yield _pair(name, (values, values), text, FAILED, (), text.replace(old, new, 1))
    crowded = np.float32(50 + 0.01 * rng.normal(size=y.shape))  # float16 knows a tenth of these numbers
    for name, text in _OF_NOISE.items():
        yield _pair(f"{name}-of-noise", (crowded, np.float32(np.float16(crowded))), text, FAILED, ())
    near = tied((SAMPLES, 12), 1, NEAR, 290)
    spoilt = near[1].copy()
    spoilt[3] = -spoilt[3]
    yield _pair("one-sample-wrong-among-ties", (near[0], spoilt), "z = Hardmax<axis = 1>(y)", FAILED, ())
    yield from _computed()
    yield from _pooled()
    yield from _classes()
    yield from _softmax_detectors()


def tied(shape: tuple[int, ...], axis: int, margin: float, seed: int, offset: float = 0.0) -> tuple[Array, Array]:
    """Logits whose best two along `axis` are `margin` of the spread apart at every third place; the same with the two
    in each other's place.
    """
    rng = np.random.default_rng(seed)
    logits = np.moveaxis(rng.uniform(-8, 8, shape), axis, -1)
    order = np.argsort(-logits, axis=-1)
    first, second = order[..., :1], order[..., 1:2]
    spread = float((logits.max(-1) - logits.min(-1)).max())
    best = np.take_along_axis(logits, first, -1)
    places = np.arange(best.size).reshape(best.shape) % 3 == 0
    runner_up = np.where(places, best - margin * spread, np.take_along_axis(logits, second, -1))
    np.put_along_axis(logits, second, runner_up, -1)
    other = logits.copy()
    np.put_along_axis(other, first, np.where(places, runner_up, best), -1)
    np.put_along_axis(other, second, np.where(places, best, runner_up), -1)
    both = (np.float32(np.moveaxis(each + offset, -1, axis)) for each in (logits, other))
    return next(both), next(both)


def beside(thresholds: Array, shape: tuple[int, ...], margin: float, seed: int) -> tuple[Array, Array]:
    """Values in -3 to 3, at a third of the places `margin` of that beside a threshold; the same on its other side."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3, 3, shape)
    apart = np.abs(values[..., None] - thresholds).min(-1) < 0.1
    values = np.where(apart, values + 0.2, values)
    near = np.arange(values.size).reshape(shape) % 3 == 0
    threshold = rng.choice(thresholds, shape)
    by = margin * 6 / 2 * rng.uniform(0.7, 0.9, shape) * rng.choice([-1, 1], shape)
    both = (np.where(near, threshold + sign * by, values).astype(np.float32) for sign in (1, -1))
    return next(both), next(both)


def _pair(
    name: str, both: tuple[Array, Array], text: str, expected: str, codes: tuple[str, ...], other: str | None = None
) -> Pair:
    models = [deciding(both[0], text), deciding(both[1], text if other is None else other)]
    return Pair(f"decision-{name}", *models, {"x": numbers(len(both[0]))}, expected, codes=codes)


def deciding(values: Array, text: str, outputs: tuple[str, ...] = ("z",)) -> onnx.ModelProto:
    """A model of values `y` with the nodes of a text."""
    model = replayed({"y": values})
    nodes = onnx.parser.parse_graph(f"g (float[N] y) => (float[N] z) {{ {text} }}").node
    model.graph.node.extend(nodes)
    floats: dict[str, Any] = {"table": np.random.default_rng(199).normal(0, 1, (12, 3)), "half": 0.5, "more": 0.52}
    floats |= {"zero": 0.0, "minus": -100.0, "wide": 9.0, "pair": [0, 1]}
    whole = {"twelve": [12], "three": [3], "two_": [2], "second": [2], "last": [-1], "five": 5}
    arrays = {name: np.asarray(value, np.float32) for name, value in floats.items()}
    arrays |= {name: np.array(value, np.int64) for name, value in whole.items()} | {"point": np.int8(0)}
    used = {name for node in nodes for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(arrays[name]), name) for name in arrays if name in used
    )
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    return onnx.shape_inference.infer_shapes(onnx.shape_inference.infer_shapes(model))


def _computed() -> Iterator[Pair]:
    """Decisions on what a file computes in FP16, at many places: rounding turns some."""
    from truehalf.config.verification import Evaluation, VerifyConfig

    pessimistic = {"options": VerifyConfig(evaluation=Evaluation.emulated_fp16_pessimistic)}
    texts = {
        "greater": ("z = Greater(f, q)", "bool", {}),
        "top-k": ("v, i = TopK<axis = 2>(f, k) l = Slice(v, b, e, b) z = GreaterOrEqual(f, l)", "bool", {}),
        "pessimistic": ("m = Greater(f, q) z = Where(m, f, nine)", "float", pessimistic),
    }
    for seed, (name, (text, made, options)) in enumerate(texts.items()):
        rng = np.random.default_rng(260 + seed)
        x, weights = np.float32(rng.normal(0, 1, (4, 4000, 32))), rng.normal(0, 1, (32, 12))
        models = []
        for kind, dtype, to in (("float", np.float32, 1), ("float16", np.float16, 10)):
            model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
                g (float[N, P, 32] x) => ({made}[N, P, 12] z) <{kind}[1] w = {{0}}, float q = {{0.7}},
                float nine = {{9}}, int64[1] k = {{3}}, int64[1] b = {{2}}, int64[1] e = {{3}}>
                {{ h = Cast<to = {to}>(x) y = MatMul(h, w) f = Cast<to = 1>(y) {text} }}""")
            model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights.astype(dtype), "w"))
            models.append(model)
        yield Pair(f"decision-computed-{name}", *models, {"x": x}, PASSED, options=options)


def _pooled() -> Iterator[Pair]:
    """Where the largest of each window is."""
    text = "v, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y) c = Cast<to = 1>(i) z = Mod<fmod = 1>(c, wide)"
    for margin, what, expected, codes in BOTH:
        both = tied((SAMPLES, 3, 4, 5, 4), 4, margin, 250)
        yield _pair(f"places-{what}", (_windows(both[0]), _windows(both[1])), text, expected, codes)


def _windows(values: Array) -> Array:
    """[N, C, h, w, 4] as [N, C, 2 h, 2 w]."""
    samples, channels, height, width, _ = values.shape
    apart = values.reshape(samples, channels, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return np.ascontiguousarray(apart.reshape(samples, channels, 2 * height, 2 * width))


def _classes() -> Iterator[Pair]:
    """Best classes of a classifier: a wide tolerance of the logits leaves them to judge."""
    from truehalf.config.verification import GatesConfig, VerifyConfig

    options = {"options": VerifyConfig(gates=GatesConfig(tensor_rms_max=0.2))}
    for seed, (name, classes, offset) in enumerate((("few", 3, 0.0), ("offset", 12, -40.0))):
        for margin, what, expected, codes in BOTH:
            both = tied((SAMPLES, classes), 1, margin, seed, offset)
            yield _of_classes(f"{name}-{what}", both, expected, codes, options)
    mask = np.full((SAMPLES, 1), -1e4, np.float32)  # a class that is ruled out is no part of the others' spread
    for margin, what, expected, codes in BOTH:
        both = tied((SAMPLES, 15), 1, margin, 90)
        masked = (np.concatenate([mask, both[0]], 1), np.concatenate([mask, both[1]], 1))
        yield _of_classes(f"masked-{what}", masked, expected, codes, options)


def _of_classes(name: str, both: tuple[Array, Array], expected: str, codes: tuple[str, ...], options: Any) -> Pair:
    models = [replayed({"logits": np.ascontiguousarray(each)}) for each in both]
    return Pair(f"classes-{name}", *models, {"x": numbers(SAMPLES)}, expected, CLASSIFIER, options=options, codes=codes)


def _softmax_detectors() -> Iterator[Pair]:
    """Queries of which the best class leads by a margin of the spread, at a third of them."""
    logits = {"name": "logits", "kind": "logits", "activation": "softmax", "no_object": True}
    boxes = {"name": "boxes", "kind": "boxes", "format": "xyxy", "normalized": False}
    spec = {"inputs": [{"name": "x", "shape": ["N", 1]}], "outputs": [logits, boxes]}
    for what, margin, expected, codes in (("near-ties", NEAR, PASSED, TIES), ("clear", 0.08, FAILED, ())):
        models = _queries(margin)
        yield Pair(f"softmax-no-object-{what}", *models, {"x": numbers(SAMPLES)}, expected, spec, codes=codes)


def _queries(margin: float) -> list[onnx.ModelProto]:
    rng = np.random.default_rng(60)
    logits = rng.uniform(-12, -8, (SAMPLES, 10, 5))
    best = rng.integers(0, 4, (SAMPLES, 10, 1))
    second = (best + 1) % 4
    tie = np.arange(10)[None, :, None] % 3 == 0
    runner_up = np.where(tie, 6.0 - margin * 18, -9.0)
    other = logits.copy()
    for array, first, next_best in (
        (logits, best, second),
        (other, np.where(tie, second, best), np.where(tie, best, second)),
    ):
        np.put_along_axis(array, first, 6.0, -1)
        np.put_along_axis(array, next_best, runner_up, -1)
    corner = rng.uniform(0, 400, (SAMPLES, 10, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(40, 200, corner.shape)], -1)
    return [replayed({"logits": np.float32(each), "boxes": np.float32(boxes)}) for each in (logits, other)]
