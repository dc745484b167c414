"""Near ties: best classes, ArgMax maps, TopK indices and softmax detectors that rounding decides, beside classes that
it does not; and references so small, or so entirely 0, that their largest value is no scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.corpus.pairs import Pair, numbers, replayed

SAMPLES, CLASSES = 8, 12
NEAR, CLEAR = 1e-3, 0.05  # margins, of what values spread over
CLASSIFIER = {"outputs": [{"name": "logits", "kind": "classes"}]}
TIES = ("near-ties",)
FAILED, PASSED = "failed", "passed"
Array = np.ndarray


def pairs() -> Iterator[Pair]:
    yield from _classifiers()
    yield from _index_outputs()
    yield from _computed()
    yield from _masked()
    yield from _made_in_order()
    yield from _carried_on()
    yield from _softmax_detectors()
    yield from _small_references()


def _half(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float32)


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


# --- best classes -----------------------------------------------------------------------------------------------------


def _classifiers() -> Iterator[Pair]:
    cases: list[tuple[str, int, float]] = [("few", 3, 0.0), ("two", 2, 0.0), ("many", 500, 0.0), ("offset", 12, -40.0)]
    rng = np.random.default_rng(1)
    cases += [(f"generated-{n}", int(rng.integers(2, 100)), float(rng.uniform(-9, 9))) for n in range(2)]
    for seed, (name, classes, offset) in enumerate(cases):
        near, clear = (tied((SAMPLES, classes), 1, margin, seed, offset) for margin in (NEAR, CLEAR))
        yield _classes(f"classes-{name}-near-ties", *near, PASSED, TIES)
        yield _classes(f"classes-{name}-clear-flips", *clear, FAILED, ())
    far = np.float32(500) + tied((SAMPLES, 12), 1, NEAR, 9)[0] / 16
    yield _classes("classes-beside-a-large-offset", far, far[:, ::-1], FAILED, ())
    alike = tied((SAMPLES, 12), 1, 2e-3, 10)
    strict = {"options": _options(tie_margin=1e-3)}
    yield _classes("classes-beyond-the-margin-asked-for", *alike, FAILED, (), **strict)


def _options(**options: Any) -> dict[str, Any]:
    from truehalf.config.verification import GatesConfig, VerifyConfig

    # two logits in each other's place may be beyond the tensor rule, too: with a wider tolerance the gate alone speaks
    return {"options": VerifyConfig(gates=GatesConfig(tensor_error_max=0.2), **options)}


def _classes(name: str, r: Array, o: Array, expected: str, codes: tuple[str, ...], **more: Any) -> Pair:
    models = [replayed({"logits": np.ascontiguousarray(each)}) for each in (r, o)]
    inputs = {"x": numbers(len(r))}
    return Pair(name, *models, inputs, expected, CLASSIFIER, codes=codes, **({"options": _options()} | more))


# --- maps of classes, and indices -------------------------------------------------------------------------------------

# The text after the logits `y`, [N, ...]: nodes that make `z`. The type of z, and the axis of the classes.
_MAPS: Mapping[str, tuple[tuple[int, ...], int, list[onnx.NodeProto], int]] = {
    "argmax-map": ((5, 6, 7), 1, [helper.make_node("ArgMax", ["y"], ["z"], axis=1, keepdims=0)], TensorProto.INT64),
    "argmax-kept": ((5, 9), 1, [helper.make_node("ArgMax", ["y"], ["z"], axis=1, keepdims=1)], TensorProto.INT64),
    "argmax-last": ((30, 4), -1, [helper.make_node("ArgMax", ["y"], ["z"], axis=-1)], TensorProto.INT64),
    "argmax-to-int32": (
        (5, 6, 7),
        1,
        [
            helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=1),
            helper.make_node("Squeeze", ["i", "last_axis"], ["s"]),
            helper.make_node("Cast", ["s"], ["z"], to=TensorProto.INT32),
        ],
        TensorProto.INT32,
    ),
    "argmax-to-float": (
        (6, 11),
        1,
        [
            helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=0),
            helper.make_node("Cast", ["i"], ["z"], to=TensorProto.FLOAT),
        ],
        TensorProto.FLOAT,
    ),
    "argmin": (
        (7, 10),
        1,
        [helper.make_node("Neg", ["y"], ["n"]), helper.make_node("ArgMin", ["n"], ["z"], axis=1)],
        TensorProto.INT64,
    ),
    "top-k": ((20,), 1, [helper.make_node("TopK", ["y", "k"], ["v", "z"], axis=1)], TensorProto.INT64),
    "top-k-of-rows": ((9, 13), 2, [helper.make_node("TopK", ["y", "k"], ["v", "z"], axis=2)], TensorProto.INT64),
}


def _index_outputs() -> Iterator[Pair]:
    for seed, (name, (shape, axis, nodes, dtype)) in enumerate(_MAPS.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = tied((SAMPLES, *shape), axis % (len(shape) + 1), margin, 20 + seed)
            yield Pair(
                f"{name}-{what}",
                *(_with(each, nodes, dtype, len(shape)) for each in both),
                {"x": numbers(SAMPLES)},
                expected,
                codes=codes,
            )
    shape, axis, nodes, dtype = _MAPS["argmax-map"]
    near = tied((SAMPLES, *shape), axis, NEAR, 40)
    spoilt = near[1].copy()
    spoilt[3, :, 2, 2] = -spoilt[3, :, 2, 2]  # one place of all
    models = [_with(each, nodes, dtype, len(shape)) for each in (near[0], spoilt)]
    yield Pair("argmax-map-one-wrong-among-ties", *models, {"x": numbers(SAMPLES)}, FAILED)
    twice = [_with(each, _MAPS["top-k"][2], TensorProto.INT64, 1) for each in tied((SAMPLES, 20), 1, NEAR, 41)]
    twice[1] = _same_index_twice(twice[1])
    yield Pair("top-k-one-index-twice", *twice, {"x": numbers(SAMPLES)}, FAILED)


def _computed() -> Iterator[Pair]:
    """Logits that a file computes in FP16: of thousands of places, rounding decides some."""
    for seed, (places, classes, chosen) in enumerate([(6000, 5, "ArgMax"), (700, 40, "ArgMax"), (60, 30, "TopK")]):
        rng = np.random.default_rng(80 + seed)
        x = np.float32(rng.normal(0, 1, (4, places, 32)))
        weights = rng.normal(0, 1, (32, classes))
        index = "z = ArgMax<axis = 2, keepdims = 0>(f)" if chosen == "ArgMax" else "v, z = TopK<axis = 2>(f, k)"
        shape = "N, P" if chosen == "ArgMax" else "N, P, 3"
        both = []
        for name, dtype, to in (("float", np.float32, 1), ("float16", np.float16, 10)):
            text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[N, P, 32] x) => (int64[{shape}] z)
                <{name}[32, {classes}] w = {{0}}, int64[1] k = {{3}}>
                {{ h = Cast<to = {to}>(x) y = MatMul(h, w) f = Cast<to = 1>(y) {index} }}"""
            model = onnx.parser.parse_model(text)
            model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights.astype(dtype), "w"))
            both.append(model)
        yield Pair(f"computed-{chosen.lower()}-{seed}", *both, {"x": x}, PASSED, codes=TIES)


def _with(logits: Array, nodes: list[onnx.NodeProto], dtype: int, rank: int) -> onnx.ModelProto:
    """A model of logits with what follows from them; only `z` is an output."""
    model = replayed({"y": logits})
    model.graph.node.extend(nodes)
    model.graph.initializer.append(helper.make_tensor("k", TensorProto.INT64, [1], [3]))
    del model.graph.output[:]
    axes = [f"d{i}" for i in range(len(_shape_of(nodes, rank)))]
    model.graph.output.append(helper.make_tensor_value_info("z", dtype, ["N", *axes]))
    return onnx.shape_inference.infer_shapes(model)


def _shape_of(nodes: list[onnx.NodeProto], rank: int) -> range:
    lost = any(
        each.op_type.startswith("Arg") and helper.get_node_attr_value(each, "keepdims") == 0
        for each in nodes
        if any(a.name == "keepdims" for a in each.attribute)
    )
    lost = lost or any(each.op_type == "Squeeze" for each in nodes)
    return range(rank - 1 if lost else rank)


def _same_index_twice(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each second index is the first."""
    model.graph.initializer.append(helper.make_tensor("twice", TensorProto.INT64, [3], [0, 0, 2]))
    model.graph.node[-1].output[1] = "i"
    model.graph.node.append(helper.make_node("Gather", ["i", "twice"], ["z"], axis=1))
    return model


# --- masks, and functions that keep the order -------------------------------------------------------------------------


def _masked() -> Iterator[Pair]:
    """Clear flips and near ties beside a class that a mask rules out, which is no part of the others' spread."""
    rng = np.random.default_rng(90)
    fills = [-1e3, -65504.0, -1e9, *(-(10 ** rng.uniform(2.3, 7, 2)))]
    cases = (
        ("argmax-map", (5, 6, 7), 1),
        ("argmax-last", (30, 4), -1),
        ("argmin", (7, 10), 1),
        ("top-k", (20,), 1),
    )
    for seed, fill in enumerate(fills):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = _beside_a_mask(tied((SAMPLES, 15), 1, margin, 90 + seed), 1, fill, rng)
            yield _classes(f"classes-masked-{what}-{seed}", *both, expected, codes)
            name, shape, axis = cases[seed % len(cases)]
            both = _beside_a_mask(tied((SAMPLES, *shape), axis, margin, 95 + seed), axis, fill, rng)
            nodes, dtype = _MAPS[name][2:]
            models = [_with(each, nodes, dtype, len(shape)) for each in both]
            yield Pair(f"{name}-masked-{what}-{seed}", *models, {"x": numbers(SAMPLES)}, expected, codes=codes)
        (r, o), boxes = _queries(0.08, 90 + seed)
        both = _beside_a_mask((r, o), -1, fill, rng)
        models = [replayed({"logits": each, "boxes": boxes}) for each in both]
        yield Pair(f"softmax-masked-clear-{seed}", *models, {"x": numbers(SAMPLES)}, FAILED, _softmax_spec(False))


def _beside_a_mask(both: tuple[Array, Array], axis: int, fill: float, rng: np.random.Generator) -> list[Array]:
    """The two with one more place along the axis, first: the mask's value, or it and noise."""
    noise = rng.normal(0, 3, np.take(both[0], [0], axis).shape) * rng.integers(0, 2)
    masked = np.float32(fill + noise)
    return [np.concatenate([masked, each], axis) for each in both]


_FUNCTIONS: Mapping[str, list[onnx.NodeProto]] = {  # from the logits `y` to `p`
    "softmax": [helper.make_node("Softmax", ["y"], ["p"], axis=1)],
    "log-softmax": [helper.make_node("LogSoftmax", ["y"], ["p"], axis=1)],
    "sigmoid": [helper.make_node("Sigmoid", ["y"], ["p"])],
    "softmax-of-a-cast": [
        helper.make_node("Cast", ["y"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Softmax", ["d"], ["s"], axis=1),
        helper.make_node("Cast", ["s"], ["p"], to=TensorProto.FLOAT),
    ],
    "sigmoid-of-an-exp": [
        helper.make_node("Tanh", ["y"], ["t"]),
        helper.make_node("Exp", ["t"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["p"]),
    ],
}


def _made_in_order() -> Iterator[Pair]:
    """The ArgMax or TopK of a function of the logits: a step of these is as wide as the function is steep."""
    for seed, (name, made) in enumerate(_FUNCTIONS.items()):
        for margin, what, expected, codes in ((2 * NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            for chosen, shape in (("argmax-map", (5, 6, 7)), ("top-k", (6,))):
                both = tied((SAMPLES, *shape), 1, margin, 110 + seed, -6.0 if "sigmoid" in name else 0.0)
                nodes, dtype = _MAPS[chosen][2:]
                models = [_with(each, [*made, *_of_p(nodes)], dtype, len(shape)) for each in both]
                case = f"{chosen}-of-{name}-{what}"
                yield Pair(case, *models, {"x": numbers(SAMPLES)}, expected, codes=codes)
    for seed, classes in enumerate((2, 7, 40)):
        for margin, what, expected, codes in ((2 * NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = (_probabilities(each) for each in tied((SAMPLES, classes), 1, margin, 120 + seed))
            yield _classes(f"probabilities-of-{classes}-{what}", *both, expected, codes)
    nodes = [helper.make_node("Softmax", ["y"], ["p"], axis=2), *_of_p(_MAPS["argmax-map"][2])]  # keeps no order
    models = [_with(each, nodes, TensorProto.INT64, 3) for each in tied((SAMPLES, 5, 6, 7), 1, CLEAR, 130)]
    yield Pair("argmax-map-of-softmax-of-another-axis", *models, {"x": numbers(SAMPLES)}, FAILED)


_CARRIED: Mapping[str, tuple[tuple[int, ...], str]] = {  # logits y, and what is made of the best's indices
    "table": ((12,), "i = ArgMax<axis = 1, keepdims = 0>(y) z = Gather(table, i)"),
    "stride": ((12, 5), "i = ArgMax<axis = 1>(y) c = Cast<to = 1>(i) z = Mul(c, eight)"),
    "rows": ((20,), "v, i = TopK<axis = 1>(y, k) z = Gather(table, i)"),
    "place": ((1, 4, 5), "f = Flatten<axis = 1>(y) i = ArgMax<axis = 1>(f) c = Mod(i, five) z = Cast<to = 1>(c)"),
    "one-hot": ((12,), "i = ArgMax<axis = 1, keepdims = 0>(y) h = OneHot(i, depth, pair) z = MatMul(h, table)"),
    "expert": ((12,), "i = ArgMax<axis = 1, keepdims = 0>(y) w = Gather(table, i) m = Mul(w, w) z = Tanh(m)"),
    "least": ((7,), "n = Neg(y) v, i = TopK<axis = 1, largest = 0>(n, k) c = Cast<to = 1>(i) z = Mul(c, eight)"),
    "twice": (
        (20,),
        "v, i = TopK<axis = 1>(y, k) t = Gather(table, i) s = ReduceSum<keepdims = 0>(t, last) "
        "j = ArgMax<axis = 1, keepdims = 0>(s) u = Gather(table, j) z = Add(u, u)",
    ),
}


def _carried_on() -> Iterator[Pair]:
    """Indices that go on through arithmetic and into tables."""
    rng = np.random.default_rng(140)
    weights = {"table": rng.normal(0, 1, (20, 3)).astype(np.float32), "eight": np.float32(8)}
    weights |= {"depth": np.array([20]), "pair": np.array([0, 1], np.float32), "five": np.array(5)}
    weights |= {"last": np.array([-1])}
    for seed, (name, (shape, text)) in enumerate(_CARRIED.items()):
        nodes = [*onnx.parser.parse_graph(f"g (float[N] y) => (float[N] z) {{ {text} }}").node]
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            axis = 1 if name != "place" else 3
            models = [
                _with(each, nodes, TensorProto.FLOAT, 0) for each in tied((SAMPLES, *shape), axis, margin, 150 + seed)
            ]
            for model in models:
                model.graph.initializer.extend(numpy_helper.from_array(value, key) for key, value in weights.items())
                model.graph.output[0].type.tensor_type.ClearField("shape")
                del model.graph.value_info[:]  # a file need not state types
            yield Pair(f"{name}-of-indices-{what}", *models, {"x": numbers(SAMPLES)}, expected, codes=codes)


def _of_p(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The same, of `p`."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    copies[0].input[0] = "p"
    return copies


def _probabilities(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.float32(powers / powers.sum(axis=1, keepdims=True))


# --- softmax detectors ------------------------------------------------------------------------------------------------

_QUERIES = 10


def _softmax_detectors() -> Iterator[Pair]:
    for no_object in (False, True):
        spec = _softmax_spec(no_object)
        for what, margin, expected, codes in (("near-ties", NEAR, PASSED, TIES), ("clear", 0.08, FAILED, ())):
            for seed in (0, 1, 2):
                logits, boxes = _queries(margin, 60 + seed)
                other = logits[0].copy(), logits[1]
                models = [replayed({"logits": each, "boxes": boxes}) for each in other]
                name = f"softmax-{'no-object-' if no_object else ''}{what}-{seed}"
                yield Pair(name, *models, {"x": numbers(SAMPLES)}, expected, spec, codes=codes)


def _softmax_spec(no_object: bool) -> dict[str, Any]:
    logits = {"name": "logits", "kind": "logits", "activation": "softmax", "no_object": no_object}
    boxes = {"name": "boxes", "kind": "boxes", "format": "xyxy", "normalized": False}
    return {"inputs": [{"name": "x", "shape": ["N", 1]}], "outputs": [logits, boxes]}


def _queries(margin: float, seed: int) -> tuple[tuple[Array, Array], Array]:
    """Logits of queries of which the best class leads by `margin` of the spread, at a third of them; and the boxes."""
    rng = np.random.default_rng(seed)
    logits = rng.uniform(-12, -8, (SAMPLES, _QUERIES, 5))
    best = rng.integers(0, 4, (SAMPLES, _QUERIES, 1))
    np.put_along_axis(logits, best, 6.0, -1)
    tie = np.arange(_QUERIES)[None, :, None] % 3 == 0
    second = (best + 1) % 4
    np.put_along_axis(logits, second, np.where(tie, 6.0 - margin * 18, -9.0), -1)
    other = logits.copy()
    a, b = (np.take_along_axis(logits, each, -1) for each in (best, second))
    np.put_along_axis(other, best, np.where(tie, b, a), -1)
    np.put_along_axis(other, second, np.where(tie, a, b), -1)
    corner = rng.uniform(0, 400, (SAMPLES, _QUERIES, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(40, 200, corner.shape)], -1)
    return (np.float32(logits), np.float32(other)), np.float32(boxes)


# --- references of next to nothing ------------------------------------------------------------------------------------


def _small_references() -> Iterator[Pair]:
    step = 2.0**-24
    rng = np.random.default_rng(70)
    for name, size in (("2", 2), ("10", 10), ("60", 60)):
        r = np.float32(rng.uniform(-size, size, (SAMPLES, 30)) * step)
        off = np.float32(rng.choice([-1, 1], r.shape) * step)
        yield _plain(f"subnormal-{name}-steps-rounded", r, _half(r), PASSED)
        yield _plain(f"subnormal-{name}-steps-one-off", r, _half(r) + off, PASSED)
    r = np.float32(rng.uniform(-300, 300, (SAMPLES, 30)) * step)
    for name, wrong in (("zeroed", 0 * r), ("negated", -r), ("doubled", 2 * r)):
        yield _plain(f"subnormal-{name}", r, wrong, FAILED)
    zero = np.zeros((SAMPLES, 30), np.float32)
    yield _plain("zero-beside-one-step", zero, np.full_like(zero, step), "not verified", ("nothing-compared",))
    yield _plain("zero-beside-a-thousandth", zero, np.full_like(zero, 1e-3), FAILED)


def _plain(name: str, r: Array, o: Array, expected: str, codes: tuple[str, ...] = ()) -> Pair:
    return Pair(
        name, *(replayed({"y": np.float32(each)}) for each in (r, o)), {"x": numbers(len(r))}, expected, codes=codes
    )
