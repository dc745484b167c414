"""Decisions other than indices: Hardmax, masks of the largest, and steps, which rounding decides; beside wrong files
whose error a decision would hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.ties import CLEAR, FAILED, NEAR, PASSED, SAMPLES, TIES, tied

Array = np.ndarray
# Shape of the values `y`, without samples; their axis of choice; and nodes that make `z`.
_LARGEST: Mapping[str, tuple[tuple[int, ...], int, str]] = {
    "hardmax": ((12,), 1, "z = Hardmax<axis = 1>(y)"),
    "hardmax-of-rows": ((5, 9), 2, "z = Hardmax(y)"),
    "hardmax-of-channels": ((6, 4, 5), 1, "z = Hardmax<axis = 1>(y)"),
    "hardmax-on": ((12,), 1, "h = Hardmax<axis = 1>(y) z = MatMul(h, table)"),
    "hardmax-of-softmax": ((6,), 1, "s = Softmax<axis = 1>(y) h = Hardmax<axis = 1>(s) z = MatMul(h, table6)"),
    "largest": ((12,), 1, "t = ReduceMax<axes = [1]>(y) z = Equal(y, t)"),
    "largest-of-channels": ((6, 4, 5), 1, "t = ReduceMax<axes = [1]>(y) z = Equal(t, y)"),
    "largest-to-float": ((5, 9), 2, "t = ReduceMax<axes = [2]>(y) m = Equal(y, t) z = Cast<to = 1>(m)"),
    "largest-on": ((12,), 1, "t = ReduceMax<axes = [1]>(y) m = Equal(y, t) h = Cast<to = 1>(m) z = MatMul(h, table)"),
    "least": ((12,), 1, "n = Neg(y) t = ReduceMin<axes = [1]>(n) z = Equal(n, t)"),
    "not-below-largest": ((12,), 1, "t = ReduceMax<axes = [1]>(y) z = GreaterOrEqual(y, t)"),
    "below-largest": ((12,), 1, "t = ReduceMax<axes = [1]>(y) m = Less(y, t) z = Where(m, zero, y)"),
    "one-hot": ((12,), 1, "i = ArgMax<axis = 1, keepdims = 0>(y) z = OneHot(i, twelve, pair)"),
}
# Thresholds `t` of a step, how high it is, and nodes that make `z` of `y`.
_STEPS: Mapping[str, tuple[Array, str]] = {
    "greater": (np.float32([0.5]), "z = Greater(y, half)"),
    "less-of-a-constant": (np.float32([0.5]), "z = Less(half, y)"),
    "greater-to-float": (np.float32([0.5]), "m = GreaterOrEqual(y, half) z = Cast<to = 1>(m)"),
    "where": (np.float32([0.5]), "m = Greater(y, half) z = Where(m, y, minus)"),
    "not": (np.float32([0.5]), "m = LessOrEqual(y, half) n = Not(m) z = Where(n, y, minus)"),
    "gated": (np.float32([0.5]), "m = Greater(y, half) f = Cast<to = 1>(m) h = Mul(f, wide) z = Tanh(h)"),
    "between-two": (np.float32([0.5]), "r = Mul(y, two) s = Add(y, half) z = Greater(r, s)"),
    "relu": (np.float32([0]), "r = Relu(y) z = Greater(r, zero)"),
    "sign-of-a-relu": (np.float32([0]), "r = Relu(y) s = Sign(r) z = Mul(s, wide)"),
    "relu-is-nothing": (np.float32([0]), "r = Relu(y) m = Equal(r, zero) z = Where(m, wide, minus)"),
    "sigmoid": (np.float32([0]), "p = Sigmoid(y) z = Greater(p, half)"),
    "steep-sigmoid": (np.float32([0]), "s = Mul(y, wide) p = Sigmoid(s) m = Less(half, p) z = Where(m, wide, minus)"),
    "round-of-a-sigmoid": (np.float32([0]), "s = Mul(y, wide) p = Sigmoid(s) z = Round(p)"),
    "sign": (np.float32([0]), "z = Sign(y)"),
    "sign-on": (np.float32([0]), "s = Sign(y) z = Mul(s, wide)"),
    "round": (np.arange(-2.5, 3), "z = Round(y)"),
    "round-on": (np.arange(-2.5, 3), "r = Round(y) s = Mul(r, two) z = Sin(s)"),
    "floor": (np.arange(-2.0, 3), "z = Floor(y)"),
    "ceil": (np.arange(-2.0, 3), "c = Ceil(y) z = Mul(c, wide)"),
    "to-integers": (np.float32([-2, -1, 1, 2]), "z = Cast<to = 7>(y)"),
    "to-rows": (np.float32([1, 2]), "a = Abs(y) i = Cast<to = 7>(a) z = Gather(table, i)"),
}


def pairs() -> Iterator[Pair]:
    for seed, (name, (shape, axis, text)) in enumerate(_LARGEST.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = tied((SAMPLES, *shape), axis, margin, 200 + seed)
            yield _pair(f"{name}-{what}", both, text, expected, codes)
    for seed, (name, (thresholds, text)) in enumerate(_STEPS.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = beside(thresholds, (SAMPLES, 5, 7), margin, 230 + seed)
            yield _pair(f"{name}-{what}", both, text, expected, codes)
    for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
        text = "i = ArgMax<axis = 1, keepdims = 0>(y) z = Gather(table, i)"
        models = [deciding(each, text, ("i", "z")) for each in tied((SAMPLES, 12), 1, margin, 249)]
        yield Pair(f"decision-put-out-and-carried-on-{what}", *models, {"x": numbers(SAMPLES)}, expected, codes=codes)
    for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
        models = [
            deciding(each, _STEPS["to-rows"][1]) for each in beside(np.float32([1, 2]), (SAMPLES, 5, 7), margin, 5)
        ]
        for model in models:
            del model.graph.value_info[:]  # a file need not state types
        yield Pair(f"decision-untyped-{what}", *models, {"x": numbers(SAMPLES)}, expected, codes=codes)
    for number, (by, expected, codes) in enumerate(((2e-4, PASSED, TIES), (CLEAR, FAILED, ()))):  # a single value
        text = "s = ReduceMax<keepdims = 0>(y) m = Greater(s, half) n = Mul(y, wide) z = Where(m, y, n)"
        values = np.float32(np.random.default_rng(6).uniform(-3, 0, (SAMPLES, 5)))
        both = [np.where(np.arange(5) == 2, np.float32(0.5 + way * by), values) for way in (1, -1)]
        yield _pair(f"of-one-value-{number}", both, text, expected, codes)
    yield from _detectors()
    yield from _pooled()
    yield from _generated()
    yield from _wrong()


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


def _pair(name: str, both: tuple[Array, Array] | list[Array], text: str, expected: str, codes: tuple[str, ...]) -> Pair:
    models = [deciding(each, text) for each in both]
    return Pair(f"decision-{name}", *models, {"x": numbers(len(both[0]))}, expected, codes=codes)


def deciding(
    values: Array, text: str, outputs: tuple[str, ...] = ("z",), more: Mapping[str, Array] | None = None
) -> onnx.ModelProto:
    """A model of values `y` with the nodes of a text, which may read `more`."""
    rng = np.random.default_rng(199)
    model = replayed({"y": values})
    nodes = onnx.parser.parse_graph(f"g (float[N] y) => (float[N] z) {{ {text} }}").node
    model.graph.node.extend(nodes)
    constants = {
        "table": rng.normal(0, 1, (12, 3)),
        "table6": rng.normal(0, 1, (6, 3)),
        "half": 0.5,
        "two": 2.0,
        "little": np.exp(-2),
    }
    constants |= {"zero": 0.0, "one": 1.0, "minus": -100.0, "wide": 9.0, "pair": [0, 1], "size": 240.0}
    used = {name for node in nodes for name in node.input}
    arrays = {name: np.asarray(value, np.float32) for name, value in constants.items()} | {"twelve": np.array([12])}
    arrays |= more or {}
    model.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in arrays if name in used)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    inferred = onnx.shape_inference.infer_shapes(model)
    return onnx.shape_inference.infer_shapes(inferred)


_BEST = "p = Sigmoid(y) s = ReduceMax<axes = [2], keepdims = 0>(p) "
_TAKEN = "u = Unsqueeze(i, last) e = Expand(u, sides) boxes = GatherElements<axis = 1>(b, e)"
# Logits `y` [N, 10, 5] and boxes `b`, and nodes that make scores, labels and boxes.
_DETECTORS: Mapping[str, str] = {
    "labels": f"{_BEST} labels = ArgMax<axis = 2, keepdims = 0>(p) scores = Identity(s) boxes = Identity(b)",
    "labels-of-the-best": f"{_BEST} l = ArgMax<axis = 2, keepdims = 0>(p) scores, i = TopK<axis = 1>(s, eight) "
    f"labels = GatherElements<axis = 1>(l, i) {_TAKEN}",
    "marked-labels": f"{_BEST} h = Hardmax<axis = 2>(y) w = Mul(h, classes) q = ReduceSum<keepdims = 0>(w, last) "
    f"scores, i = TopK<axis = 1>(s, eight) l = GatherElements<axis = 1>(q, i) labels = Cast<to = 7>(l) {_TAKEN}",
    "best-of-all": "p = Sigmoid(y) f = Flatten<axis = 1>(p) scores, j = TopK<axis = 1>(f, eight) labels = Mod(j, five) "
    f"i = Div(j, five) {_TAKEN}",
}
_DETECTIONS = {
    "inputs": [{"name": "x", "shape": ["N", 1]}],
    "outputs": [
        *({"name": name, "kind": name} for name in ("scores", "labels")),
        {"name": "boxes", "kind": "boxes", "format": "xyxy", "normalized": False},
    ],
}


def _detectors() -> Iterator[Pair]:
    """Labels that are chosen inside, before other choices; and labels that are the next ones."""
    rng = np.random.default_rng(240)
    low = rng.uniform(0, 400, (SAMPLES, 10, 2))
    boxes = np.concatenate([low, low + rng.uniform(40, 200, low.shape)], axis=2).astype(np.float32)
    for seed, (name, text) in enumerate(_DETECTORS.items()):
        cases = [(f"{name}-near-ties", NEAR, text, PASSED, TIES), (f"{name}-clear", CLEAR, text, FAILED, ())]
        other = text.replace("labels = ", "k = ") + " o = Sub(four, k) labels = Abs(o)"
        for case, margin, theirs, expected, codes in (*cases, (f"{name}-others", NEAR, other, FAILED, ())):
            both = zip(tied((SAMPLES, 10, 5), 2, margin, 241 + seed), (text, theirs), strict=True)
            models = [_detector(each / 4 + 1, boxes, nodes) for each, nodes in both]
            inputs = {"x": numbers(SAMPLES)}
            yield Pair(f"decision-{case}", *models, inputs, expected, spec=_DETECTIONS, codes=codes)


def _detector(logits: Array, boxes: Array, text: str) -> onnx.ModelProto:
    model = replayed({"y": logits.astype(np.float32), "b": boxes})
    model.graph.node.extend(onnx.parser.parse_graph(f"g (float[N] y) => (float[N] z) {{ {text} }}").node)
    constants = {"eight": [8], "last": [-1], "sides": [SAMPLES, 8, 4], "five": 5, "four": 4}
    arrays = {name: np.array(value, np.int64) for name, value in constants.items()}
    arrays["classes"] = np.arange(5, dtype=np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in ("scores", "labels", "boxes"))
    return onnx.shape_inference.infer_shapes(onnx.shape_inference.infer_shapes(model))


_PLACES: Mapping[str, str] = {
    "places": "v, z = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y)",
    "places-on": "v, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y) c = Cast<to = 1>(i) "
    "z = Mod<fmod = 1>(c, wide)",
    "beside-a-pool": "v = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y) u, i = MaxPool<kernel_shape = [2, 2], "
    "strides = [2, 2]>(y) c = Cast<to = 1>(i) d = Mod<fmod = 1>(c, wide) z = Add(v, d)",
    "unpooled": "v, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(y) z = MaxUnpool<kernel_shape = [2, 2], "
    "strides = [2, 2]>(v, i)",
}


def _pooled() -> Iterator[Pair]:
    """Where the largest of each window is; and another window's, or another sample's."""
    for seed, (name, text) in enumerate(_PLACES.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = [_windows(each) for each in tied((SAMPLES, 3, 4, 5, 4), 4, margin, 250 + seed)]
            yield _pair(f"{name}-{what}", both, text, expected, codes)
    values = np.zeros((SAMPLES, 3, 8, 10), np.float32)
    values[..., ::2, ::2] = 1
    values[0, 0, 0, 0] = 2
    for name, by in (("window", "two"), ("sample", "size")):
        text = (
            _PLACES["places-on"]
            .replace("Cast<to = 1>(i)", "Cast<to = 1>(i) d = Add(c, zero)")
            .replace("Mod<fmod = 1>(c", "Mod<fmod = 1>(d")
        )
        models = [deciding(values, each) for each in (text, text.replace("zero", by))]
        yield Pair(f"decision-places-of-another-{name}", *models, {"x": numbers(SAMPLES)}, FAILED)


def _windows(values: Array) -> Array:
    """[N, C, h, w, 4] as [N, C, 2 h, 2 w]."""
    samples, channels, height, width, _ = values.shape
    apart = values.reshape(samples, channels, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return np.ascontiguousarray(apart.reshape(samples, channels, 2 * height, 2 * width))


def _generated() -> Iterator[Pair]:
    """Steps of what a file computes in FP16, of many places: rounding decides some."""
    texts = {
        "greater": "z = Greater(f, q)",
        "floor": "z = Floor(f)",
        "round": "r = Round(f) c = Cast<to = 7>(r) z = Mul(c, c)",
        "hardmax": "z = Hardmax<axis = 2>(f)",
        "largest": "t = ReduceMax<axes = [2]>(f) m = Equal(f, t) z = Where(m, q, f)",
        "top-k": "v, i = TopK<axis = 2>(f, k) d = Slice(v, b, e, b) l = Cast<to = 1>(d) z = GreaterOrEqual(f, l)",
        "larger-of-two": "n = Neg(f) t = Max(f, n) z = Equal(f, t)",
        "to-bool": "r = Relu(f) z = Cast<to = 9>(r)",
        "to-bytes": "s = Sigmoid(f) a = Mul(s, e255) r = Round(a) z = Cast<to = 2>(r)",
    }
    for seed, (name, text) in enumerate(texts.items()):
        rng = np.random.default_rng(260 + seed)
        classes = int(rng.integers(5, 40))
        x = np.float32(rng.normal(0, 1, (4, 60000 // classes, 32)))
        models = _products(rng.normal(0, 1, (32, classes)), text, _TYPES.get(name, "float"))
        yield Pair(f"decision-computed-{name}", *models, {"x": x}, PASSED, codes=TIES)
    from truehalf.config.verification import Evaluation, VerifyConfig

    options = {"options": VerifyConfig(evaluation=Evaluation.emulated_fp16_pessimistic)}
    x = np.float32(rng.normal(0, 1, (4, 2000, 700)))
    for name in ("largest", "mask", "top-k"):
        text = texts.get(name, "m = Greater(f, q) z = Where(m, f, e9)")
        models = _products(rng.normal(0, 1, (700, 12)) / 26, text, _TYPES.get(name, "float"))
        yield Pair(f"decision-pessimistic-{name}", *models, {"x": x}, PASSED, options=options, codes=TIES)


_TYPES = {"greater": "bool", "top-k": "bool", "larger-of-two": "bool", "to-bool": "bool"}
_TYPES |= {"round": "int64", "to-bytes": "uint8"}


def _products(weights: Array, text: str, made: str) -> list[onnx.ModelProto]:
    """Models of a product with weights, in FP32 and in FP16, with the nodes of a text."""
    models = []
    inner, classes = weights.shape
    constants = (
        "float q = {0.7}, float e9 = {9}, float e255 = {255}, int64[1] k = {3}, int64[1] b = {2}, int64[1] e = {3}"
    )
    for kind, dtype, to in (("float", np.float32, 1), ("float16", np.float16, 10)):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
            g (float[N, P, {inner}] x) => ({made}[N, P, {classes}] z) <{kind}[1] w = {{0}}, {constants}>
            {{ h = Cast<to = {to}>(x) y = MatMul(h, w) f = Cast<to = 1>(y) {text} }}""")
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights.astype(dtype), "w"))
        models.append(model)
    return models


def _wrong() -> Iterator[Pair]:
    """Wrong files whose error a decision hides."""
    rng = np.random.default_rng(280)
    y = np.float32(rng.uniform(-3, 3, (SAMPLES, 5, 7)))
    whole = np.float32(rng.integers(0, 2, (SAMPLES, 5, 7)))
    swapped = [
        ("zeros-by-or-equal", whole, "m = Greater(y, zero) z = Where(m, y, minus)", "Greater", "GreaterOrEqual"),
        ("relu-by-or-equal", np.maximum(y, 0), "z = Greater(y, zero)", "Greater", "GreaterOrEqual"),
        ("floor-for-round", y, "z = Round(y)", "Round", "Floor"),
        ("ceil-for-round", 100 * y, "r = Round(y) z = Cast<to = 7>(r)", "Round", "Ceil"),
        ("floor-for-integers", y, "z = Cast<to = 7>(y)", "z = Cast<to = 7>(y)", "f = Floor(y) z = Cast<to = 7>(f)"),
        ("less-for-greater", y, "m = Greater(y, half) z = Where(m, y, minus)", "Greater", "Less"),
        ("sign-of-zeros", np.maximum(y, 0), "s = Sign(y) z = Mul(s, wide)", "Sign(y)", "Exp(zero)"),
        (
            "none-is-largest",
            y,
            "t = ReduceMax<axes = [2]>(y) m = Equal(y, t) z = Where(m, y, minus)",
            "Equal(y, t)",
            "Greater(y, t)",
        ),
        (
            "all-are-largest",
            y,
            "t = ReduceMax<axes = [2]>(y) m = Equal(y, t) z = Where(m, y, minus)",
            "Equal(y, t)",
            "LessOrEqual(y, t)",
        ),
        ("ids-shifted", whole, "m = Equal(y, zero) z = Where(m, wide, minus)", "zero", "one"),
        ("hardmax-of-another-axis", y, "z = Hardmax<axis = 2>(y)", "axis = 2", "axis = 1"),
        (
            "larger-by-less",
            y,
            "n = Neg(y) t = Max(y, n) m = Equal(y, t) z = Where(m, y, wide)",
            "Max(y, n)",
            "Min(y, n)",
        ),
        ("all-to-bool", whole, "z = Cast<to = 9>(y)", "Cast<to = 9>(y)", "GreaterOrEqual(y, zero)"),
        ("hardmax-of-nothing", y, "h = Hardmax<axis = 2>(y) z = Mul(h, wide)", "wide", "zero"),
    ]
    close = np.float32(0.5) + np.float32(rng.uniform(1e-3, 5e-3, y.shape) * rng.choice([-1, 1], y.shape))
    close[0, 0, 0] = 3
    swapped += [
        ("less-beside-the-threshold", close, "z = Greater(y, half)", "Greater", "Less"),
        (
            "not-beside-the-threshold",
            close,
            "m = Greater(y, half) z = Where(m, wide, minus)",
            "wide, minus",
            "minus, wide",
        ),
        ("floor-beside-the-threshold", close, "z = Round(y)", "Round", "Floor"),
        ("ceil-beside-the-threshold", close, "r = Round(y) z = Mul(r, wide)", "Round", "Ceil"),
    ]
    for name, values, text, old, new in swapped:
        models = [deciding(values, text), deciding(values, text.replace(old, new, 1))]
        yield Pair(f"decision-{name}", *models, {"x": numbers(SAMPLES)}, FAILED)
    texts = {
        "greater": "z = Greater(y, zero)",
        "where": "m = Greater(y, zero) z = Where(m, wide, minus)",
        "sign": "z = Sign(y)",
        "argmax": "z = ArgMax<axis = 2>(y)",
        "argmax-on": "i = ArgMax<axis = 2, keepdims = 0>(y) z = Gather(table, i)",
        "hardmax": "z = Hardmax<axis = 2>(y)",
    }
    for name, text in texts.items():  # the scale of the others is no excuse
        for axis, what in ((0, "sample"), (1, "row"), (2, "column")):
            if axis == 2 and name in ("argmax", "argmax-on", "hardmax"):
                continue
            scaled = y.copy()
            index = (slice(None),) * axis + (2,)
            scaled[index] *= 1e-3
            wrong = scaled.copy()
            wrong[index] *= -1
            yield _pair(f"{name}-of-a-small-{what}", [scaled, wrong], text, FAILED, ())
    for name in ("greater", "floor", "hardmax"):
        text = texts.get(name, "z = Floor(y)")
        both = tied((SAMPLES, 12), 1, NEAR, 290) if name == "hardmax" else beside(np.float32([0]), y.shape, NEAR, 291)
        text = text.replace("axis = 2", "axis = 1")
        spoilt = both[1].copy()
        spoilt[3].flat[:] = -spoilt[3].ravel()[::-1]
        yield _pair(f"{name}-one-sample-wrong-among-ties", [both[0], spoilt], text, FAILED, ())
    crowded = np.float32(50 + 0.01 * rng.normal(size=y.shape))  # float16 knows a tenth of these numbers
    mean = "t = ReduceMean<axes = [2]>(y)"
    decided = {
        "greater": f"{mean} z = Greater(y, t)",
        "where": f"{mean} m = Greater(y, t) z = Where(m, wide, minus)",
        "less": "t = ReduceMax<axes = [1]>(y) m = Less(y, t) z = Cast<to = 1>(m)",
        "argmax": "z = ArgMax<axis = 2>(y)",
        "argmin-on": "i = ArgMin<axis = 2, keepdims = 0>(y) z = Gather(table, i)",
    }
    for name, text in decided.items():
        yield _pair(f"{name}-of-noise", [crowded, np.float32(np.float16(crowded))], text, FAILED, ())
