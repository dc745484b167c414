"""Files that decide by another rule among equals or beside a threshold, and files whose rule is the same under other
names: the margin of near ties excuses none of the first, and finds all of the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from tests.corpus.pairs import Pair, numbers
from tests.corpus.pairs.decisions import beside, deciding
from tests.corpus.pairs.ties import CLEAR, FAILED, NEAR, PASSED, SAMPLES, TIES, tied

Array = np.ndarray
# Nodes that make `z` of values `y`, [N, 6, 8], of which many are equal; and what the candidate has instead.
_AMONG_EQUALS: Mapping[str, tuple[str, str, str]] = {
    "last-of-row": ("z = ArgMax<axis = 2>(y)", "axis = 2", "axis = 2, select_last_index = 1"),
    "last-of-column": ("z = ArgMax<axis = 1, keepdims = 0>(y)", "axis = 1", "axis = 1, select_last_index = 1"),
    "last-least": ("z = ArgMin<axis = 2>(y)", "axis = 2", "axis = 2, select_last_index = 1"),
    "last-to-a-table": (
        "i = ArgMax<axis = 2, keepdims = 0>(y) z = Gather(table, i)",
        "axis = 2",
        "axis = 2, select_last_index = 1",
    ),
    "last-of-two": (
        "i = ArgMax<axis = 2, keepdims = 0>(y) t = Gather(table, i) j = ArgMax<axis = 1, keepdims = 0>(t) "
        "c = Cast<to = 1>(j) z = Mul(c, wide)",
        "ArgMax<axis = 2",
        "ArgMax<select_last_index = 1, axis = 2",
    ),
    "last-of-folded": (
        "a = Mul(y, two) z = ArgMax<axis = 2>(a)",
        "a = Mul(y, two) z = ArgMax<axis = 2>(a)",
        "b = Mul(y, two) z = ArgMax<axis = 2, select_last_index = 1>(b)",
    ),
    "last-by-top-of-folded": (
        "a = Mul(y, two) z = ArgMax<axis = 2>(a)",
        "a = Mul(y, two) z = ArgMax<axis = 2>(a)",
        "b = Mul(y, two) c = Neg(b) z = ArgMin<axis = 2, select_last_index = 1>(c)",
    ),
    "last-mark": (
        "z = Hardmax<axis = 2>(y)",
        "z = Hardmax<axis = 2>(y)",
        "i = ArgMax<axis = 2, keepdims = 0, select_last_index = 1>(y) z = OneHot(i, eight, pair)",
    ),
}
# The same of values without equals; their threshold is another one.
_THRESHOLDS: Mapping[str, tuple[str, str, str]] = {
    "constant": ("m = Greater(y, half) z = Where(m, wide, minus)", "half", "more"),
    "of-a-step": ("a = Add(y, half) z = Floor(a)", "z = Floor(a)", "b = Add(a, step) z = Floor(b)"),
    "of-a-sigmoid": ("p = Sigmoid(y) m = Greater(p, half) z = Where(m, wide, y)", "half", "more"),
    "counted": ("m = Less(y, half) c = Cast<to = 1>(m) z = ReduceSum(c, last)", "half", "more"),
}
# Nodes that the candidate has under other names, or merged into others.
_RENAMED: Mapping[str, tuple[str, str, str]] = {
    "identity": ("h = Round(y) i = Identity(h) z = Mul(i, wide)", "h = Round(y) i = Identity(h)", "i = Round(y)"),
    "squeezed": (
        "h = ArgMax<axis = 2>(y) s = Squeeze(h, last) z = Gather(table, s)",
        "h = ArgMax<axis = 2>(y) s = Squeeze(h, last)",
        "s = ArgMax<axis = 2, keepdims = 0>(y)",
    ),
    "cast": (
        "m = Greater(y, half) c = Cast<to = 1>(m) z = Mul(c, y)",
        "m = Greater(y, half) c = Cast<to = 1>(m)",
        "k = Greater(y, half) c = Cast<to = 1>(k)",
    ),
    "opposite": (
        "m = Greater(y, half) n = Not(m) z = Where(n, wide, minus)",
        "m = Greater(y, half) n = Not(m)",
        "n = LessOrEqual(y, half)",
    ),
    "folded": (
        "a = Mul(y, two) r = Round(a) z = Mul(r, wide)",
        "a = Mul(y, two) r = Round(a)",
        "b = Mul(y, two) r = Round(b)",
    ),
    "folded-threshold": (
        "d = Cast<to = 11>(y) h = Cast<to = 11>(half) m = Less(d, h) z = Where(m, wide, minus)",
        "h = Cast<to = 11>(half) m = Less(d, h)",
        "m = Less(d, half_double)",
    ),
    "quantized": (
        "q = QuantizeLinear(y, half, point) z = DequantizeLinear(q, half, point)",
        "z = DequantizeLinear",
        "z = DequantizeLinear",
    ),
    "twins": (
        "i = ArgMax<axis = 2>(y) j = ArgMax<axis = 2>(y) a = Gather(table, i) b = Gather(table, j) z = Mul(a, b)",
        "j = ArgMax<axis = 2>(y) a = Gather(table, i) b = Gather(table, j)",
        "a = Gather(table, i) b = Gather(table, i)",
    ),
    "twin-put-out": (
        "z = ArgMax<axis = 2>(y) j = ArgMax<axis = 2>(y) w = Gather(table, j)",
        "j = ArgMax<axis = 2>(y) w = Gather(table, j)",
        "w = Gather(table, z)",
    ),
}
_TYPED: Mapping[str, str] = {  # other types of what was decided on
    "double": "d = Cast<to = 11>(y) z = ArgMax<axis = 2>(d)",
    "double-on": "d = Cast<to = 11>(y) i = ArgMax<axis = 2, keepdims = 0>(d) z = Gather(table, i)",
    "half": "d = Cast<to = 10>(y) i = ArgMax<axis = 2, keepdims = 0>(d) z = Gather(table, i)",
    "half-threshold": "d = Cast<to = 10>(y) h = Cast<to = 10>(half) m = Greater(d, h) z = Where(m, wide, minus)",
    "double-threshold": "d = Cast<to = 11>(y) h = Cast<to = 11>(half) z = Greater(d, h)",
    "double-constant-threshold": "d = Cast<to = 11>(y) z = Greater(d, half_double)",
    "double-constant-threshold-on": "d = Cast<to = 11>(y) m = Less(d, half_double) z = Where(m, wide, minus)",
}
# Softmax and its like are of another axis, or another function.
_MADE_OTHERWISE: Mapping[str, tuple[str, str, str]] = {
    "softmax": ("s = Softmax<axis = 2>(y) z = ArgMax<axis = 2>(s)", "Softmax<axis = 2>", "Softmax<axis = 1>"),
    "softmax-on": (
        "s = Softmax<axis = 2>(y) i = ArgMax<axis = 2, keepdims = 0>(s) z = Gather(table, i)",
        "Softmax<axis = 2>",
        "Softmax<axis = 0>",
    ),
    "log-softmax": (
        "s = LogSoftmax<axis = 1>(y) z = ArgMax<axis = 1>(s)",
        "LogSoftmax<axis = 1>",
        "LogSoftmax<axis = 2>",
    ),
    "top": ("s = Softmax<axis = 2>(y) v, z = TopK<axis = 2>(s, three)", "Softmax<axis = 2>", "Softmax<axis = 1>"),
    "mark": ("s = Softmax<axis = 2>(y) z = Hardmax<axis = 2>(s)", "Softmax<axis = 2>", "Softmax<axis = 1>"),
}
_OF_ANOTHER_SHAPE: Mapping[str, tuple[str, str, str]] = {  # a threshold, among values of which many are the largest
    "largest": ("t = ReduceMax<axes = [2]>(b) z = Equal(b, t)", "[2]", "[1]"),
    "largest-on": ("t = ReduceMax<axes = [2]>(b) m = Equal(b, t) z = Where(m, y, minus)", "[2]", "[1]"),
    "least": ("t = ReduceMin<axes = [1]>(b) m = LessOrEqual(b, t) z = Where(m, y, minus)", "[1]", "[2]"),
    "mean": ("t = ReduceMean<axes = [1]>(b) z = Greater(b, t)", "[1]", "[2]"),
}
_BESIDE_AN_OFFSET: Mapping[str, str] = {  # what is small beside all of a value is much of what decides
    "best": "z = ArgMax<axis = 2>(b)",
    "best-to-a-table": "i = ArgMax<axis = 2, keepdims = 0>(b) z = Gather(table, i)",
    "least-mark": "n = Neg(b) z = Hardmax<axis = 2>(n)",
    "first-two": "v, z = TopK<axis = 2>(b, two_)",
    "largest": "t = ReduceMax<axes = [2]>(b) z = Equal(b, t)",
}
_RESTS: Mapping[str, str] = {  # what a division leaves
    "put-out": "z = Mod<fmod = 1>(y, half)",
    "on": "r = Mod<fmod = 1>(y, half) z = Mul(r, wide)",
    "of-two": "r = Mod<fmod = 1>(y, half) s = Mod<fmod = 1>(y, one) z = Add(r, s)",
}
_OF_THE_THIRD: Mapping[str, str] = {  # the third largest is a threshold, or the third least
    "mask": "v, i = TopK<axis = 2>(y, three) t = ReduceMin<axes = [2]>(v) z = GreaterOrEqual(y, t)",
    "masked": "v, i = TopK<axis = 2>(y, three) t = ReduceMin<axes = [2]>(v) m = Less(y, t) z = Where(m, minus, y)",
    "of-a-column": "v, i = TopK<axis = 1>(y, three) t = ReduceMin<axes = [1]>(v) m = GreaterOrEqual(y, t) "
    "c = Cast<to = 1>(m) z = Mul(c, y)",
    "of-all": "f = Flatten<axis = 1>(y) v, i = TopK<axis = 1>(f, three) t = ReduceMin<axes = [1]>(v) z = Less(f, t)",
    "taken-by-its-place": "v, i = TopK<axis = 2>(y, three) t = Gather<axis = 2>(v, last) m = LessOrEqual(t, y) "
    "z = Where(m, y, minus)",
    "least": "v, i = TopK<axis = 2, largest = 0>(y, three) t = ReduceMax<axes = [2]>(v) m = LessOrEqual(y, t) "
    "z = Where(m, wide, y)",
}
_BESIDE: Mapping[str, tuple[float, ...]] = {  # where values lie that a step decides on
    "identity": (-1.5, 0.5, 1.5),
    "cast": (0.5,),
    "opposite": (0.5,),
    "folded-threshold": (0.5,),
    "folded": (-0.75, 0.25, 0.75),
    "quantized": (-0.75, 0.25, 0.75),
    "of-a-sigmoid": (0.0,),
}


def pairs() -> Iterator[Pair]:
    equal = np.float32(np.random.default_rng(400).integers(0, 3, (SAMPLES, 6, 8)))
    for name, case in _AMONG_EQUALS.items():
        yield _pair(f"equals-{name}", (equal, equal), case, FAILED)
    for name, case in _MADE_OTHERWISE.items():
        yield _pair(f"made-{name}", (equal, equal), case, FAILED)
    for seed, (name, text) in enumerate(_TYPED.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = tied((SAMPLES, 6, 8), 2, margin, 440 + seed)
            if "threshold" in name:
                both = beside(np.float32([0.5]), (SAMPLES, 6, 8), margin, 440 + seed)
            yield _pair(f"{name}-{what}", both, (text, "z", "z"), expected, codes)
    for seed, (name, case) in enumerate(_THRESHOLDS.items()):
        values = beside(np.float32(_BESIDE.get(name, (0.5,))), (SAMPLES, 6, 8), NEAR, 410 + seed)[0]
        yield _pair(f"threshold-{name}", (values, values), case, FAILED)
    for seed, (name, case) in enumerate(_RENAMED.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = tied((SAMPLES, 6, 8), 2, margin, 420 + seed)
            if name in _BESIDE:
                both = beside(np.float32(_BESIDE[name]), (SAMPLES, 6, 8), margin, 420 + seed)
            yield _pair(f"renamed-{name}-{what}", both, case, expected, codes)
    for what, margin, offset, expected, codes in (
        ("held", 0.0055, 100.0, PASSED, TIES),  # of 16, as far as a step of FP16
        ("noise", 0.03, 800.0, FAILED, ()),
    ):
        both = tied((SAMPLES, 6, 8), 2, margin, 430, offset)
        for name in ("last-of-row", "last-to-a-table"):
            yield _pair(f"offset-{what}-{name}", both, (_AMONG_EQUALS[name][0], "z", "z"), expected, codes)
    narrow = [np.float32(0.3 * each + 40) for each in tied((SAMPLES, 6, 8), 2, 0.011, 431)]  # 0.05 of 4.5
    case = (_AMONG_EQUALS["last-to-a-table"][0], "z", "z")
    yield _pair("offset-held-and-computed", (narrow[0], narrow[1]), case, PASSED, TIES)
    for name, text in _BESIDE_AN_OFFSET.items():
        case = (f"a = Mul(y, ones) b = Add(a, many) {text}", "ones", "uneven")
        rng = np.random.default_rng(460)
        values = rng.uniform(-8, -4, (SAMPLES, 6, 8)).astype(np.float32)
        values[..., 3], values[..., 5] = rng.uniform(7.5, 8, (2, SAMPLES, 6))  # two lead, and by next to nothing
        values[..., 5] = values[..., 3] - rng.choice([-1, 1], (SAMPLES, 6)) * 0.01
        yield _pair(f"scaled-beside-an-offset-{name}", (values, values), case, FAILED)
    yield from _of_the_third()
    crowded = np.float32(np.random.default_rng(465).normal(0, 0.02, (SAMPLES, 6, 8)))
    crowded[:, 0, 0] = 6
    for name, case in _OF_ANOTHER_SHAPE.items():
        text = f"b = Add(y, many) {case[0]}"
        yield _pair(f"shape-{name}", (crowded, crowded), (text, *case[1:]), FAILED)
    for seed, (name, text) in enumerate(_RESTS.items()):
        for margin, what, expected, codes in ((NEAR, "near-ties", PASSED, TIES), (CLEAR, "clear", FAILED, ())):
            both = beside(np.float32([0.5, 1.0, -1.0]), (SAMPLES, 6, 8), margin, 490 + seed)
            yield _pair(f"rest-{name}-{what}", both, (text, "z", "z"), expected, codes)
        values = np.float32(np.random.default_rng(495 + seed).normal(0, 1, (SAMPLES, 6, 8)))
        for what, new in (("of-more", "Mod<fmod = 1>(y, more)"), ("of-the-other", "Mod<fmod = 1>(half, y)")):
            case = (text, "Mod<fmod = 1>(y, half)", new)
            yield _pair(f"rest-{name}-{what}", (values, values), case, FAILED)
    yield from _of_inputs()
    fewer = ("v, i = TopK<axis = 2>(y, three) t = Gather(table, i) z = ReduceSum(t, second)", "three", "two_")
    yield _pair("fewer-are-chosen", (both[0], both[0]), fewer, FAILED)


def _of_the_third() -> Iterator[Pair]:
    for seed, (name, text) in enumerate(_OF_THE_THIRD.items()):
        ranked = np.sort(np.random.default_rng(470 + seed).uniform(-8, 8, (SAMPLES, 48)), axis=1)
        axis, sign = (1, 1) if name == "of-a-column" else (2, -1 if name == "least" else 1)
        ranked = ranked if name == "of-all" else np.moveaxis(np.sort(ranked.reshape(SAMPLES, 6, 8), axis=axis), axis, 2)
        near, clear, equal = (ranked.copy() for _ in range(3))
        near[..., -4] = near[..., -3] - 0.01  # of 16
        clear[..., -4] = clear[..., -3] - 0.7
        equal[..., -4] = equal[..., -3] = near[..., -3]
        places = np.random.default_rng(480 + seed).random(ranked.shape).argsort(axis=-1)
        cases = (near, clear, equal, _with_places(near, -4, -3), _with_places(clear, -4, -3))
        near, clear, equal, near_swapped, clear_swapped = (np.take_along_axis(each, places, -1) for each in cases)
        for what, values, other, by, expected, codes in (
            ("fourth", near, near, "four", FAILED, ()),
            ("second", near, near, "two_", FAILED, ()),
            ("near-ties", near, near_swapped, "three", PASSED, TIES),
            ("equal", near, equal, "three", PASSED, TIES),
            ("clear", clear, clear_swapped, "three", FAILED, ()),
        ):
            shaped = (each if each.ndim == 3 else each.reshape(SAMPLES, 6, 8) for each in (values, other))
            both = [np.float32(sign * np.moveaxis(each, -1, axis)) for each in shaped]
            yield _pair(f"third-{name}-{what}", (both[0], both[1]), (text, "three", by), expected, codes)


def _with_places(values: Array, one: int, other: int) -> Array:
    """With two columns in each other's place."""
    swapped = values.copy()
    swapped[..., [one, other]] = values[..., [other, one]]
    return swapped


def _pair(
    name: str, both: tuple[Array, Array], case: tuple[str, str, str], expected: str, codes: tuple[str, ...] = ()
) -> Pair:
    text, old, new = case
    constants = {
        "last": np.array([-1]),
        "second": np.array([2]),
        "three": np.array([3]),
        "two_": np.array([2]),
        "four": np.array([4]),
        "eight": np.array([8]),
        "more": np.float32(0.505),
        "far": np.float32(0.51),
        "little": np.float32(0.012),
        "half_double": np.array(0.5),
        "many": np.float32(40),
        "ones": np.ones(8, np.float32),
        "uneven": np.random.default_rng(461).choice(np.float32([0.95, 1.05]), (6, 8)),
        "step": np.float32(0.005),
        "point": np.array(0, np.int8),
    }
    outputs = ("z", "w") if "w = " in text else ("z",)
    texts = (text, text.replace(old, new))
    models = [deciding(values, each, outputs, constants) for values, each in zip(both, texts, strict=True)]
    return Pair(f"rule-{name}", *models, {"x": numbers(SAMPLES)}, expected, codes=codes)


def _of_inputs() -> Iterator[Pair]:
    """What is decided on is an input, which the candidate rounds."""
    values = np.float32(np.random.default_rng(450).uniform(0.4, 0.8, (SAMPLES, 4000)))
    for name, text in (("threshold", "z = Less(x, half)"), ("rounded", "r = Round(x) z = Greater(r, half)")):
        for rule, expected, codes in (("the-same", PASSED, TIES), ("other", FAILED, ())):
            theirs = text.replace("x,", "h,").replace("x)", "h)")
            theirs = theirs if rule == "the-same" else theirs.replace("Less", "Greater").replace("Round", "Ceil")
            yield Pair(
                f"rule-{rule}-of-an-input-{name}", *map(_of_input, (text, theirs)), {"x": values}, expected, codes=codes
            )


def _of_input(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[N, M] x) => (bool[N, M] z)
        <float half = {{0.7}}> {{ c = Cast<to = 10>(x) h = Cast<to = 1>(c) {text} }}""")
