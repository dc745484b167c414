"""Operators that add up term by term: the bits of numpy.float16 adding one term after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.onnx_backend import SAMPLE_AND_WHOLE, cases, operators_of
from tests.truehalf.conversion.test_backend_nodes import converted
from tests.truehalf.emulation.emulation import assert_same_bits, parsed, run
from truehalf.emulation.emulate import emulate
from truehalf.emulation.pessimistic import split_sums
from truehalf.emulation.sessions import EmulatedSession
from truehalf.emulation.term_by_term import NOT_SPLIT, RULES, TERMS
from truehalf.runtime.ort.session import Session

HALF = np.float16


def one_by_one(terms: np.ndarray, axis: int) -> np.ndarray:
    """The sum along an axis, which stays, rounded after each term."""
    return np.add.accumulate(terms, axis=axis, dtype=HALF).take([-1], axis=axis)


def emulated(node: str, x: np.ndarray, opset: int = 18, **more: np.ndarray) -> np.ndarray:
    feeds = {"x": x, **more}
    kinds = {"float16": "float16", "int64": "int64"}
    inputs = ", ".join(f"{kinds[a.dtype.name]}[{','.join(map(str, a.shape))}] {name}" for name, a in feeds.items())
    model = parsed(f"g ({inputs}) => (float16[{','.join('abcdef'[: x.ndim])}] y) {{ {node} }}", opset)
    assert emulate(model).meta[NOT_SPLIT] == split_sums(model).meta[NOT_SPLIT] == {}
    made = run(model, **feeds)["y"]
    assert_same_bits(run(split_sums(model), **feeds)["y"], made)
    return made


def drawn(
    seed: int, low: int = 2, most: int = 9, rank: int | None = None
) -> tuple[np.ndarray, int, np.random.Generator]:
    """Numbers of a random shape, an axis of it, and the generator."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(low, most, rng.integers(1, 5) if rank is None else rank)
    axis = int(rng.integers(-len(shape), len(shape)))
    return (rng.standard_normal(shape) * rng.choice([1, 30])).astype(HALF), axis, rng


@pytest.mark.parametrize("seed", range(6))
def test_running_sums(seed: int) -> None:
    x, axis, rng = drawn(seed)
    reverse, exclusive = (int(each) for each in rng.integers(0, 2, 2))
    node = f"n = Constant<value_int = {axis}>() y = CumSum<reverse = {reverse}, exclusive = {exclusive}>(x, n)"
    way = np.flip(x, axis) if reverse else x
    expected = np.add.accumulate(way, axis=axis, dtype=HALF)
    if exclusive:
        expected = np.roll(expected, 1, axis)
        expected[tuple(0 if a == axis % x.ndim else slice(None) for a in range(x.ndim))] = 0
    assert_same_bits(emulated(node, x), np.flip(expected, axis) if reverse else expected)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_scattered_elements(seed: int, reduction: str) -> None:
    x, axis, rng = drawn(seed)
    shape = [int(rng.integers(1, side + 1)) for side in x.shape]
    shape[axis] = 12
    indices, updates = rng.integers(-x.shape[axis], x.shape[axis], shape), rng.standard_normal(shape).astype(HALF)
    node = f'y = ScatterElements<axis = {axis}, reduction = "{reduction}">(x, i, u)'
    expected = x.copy()
    for place in np.ndindex(*shape):
        target = list(place)
        target[axis] = int(indices[place])
        old, new = expected[tuple(target)], updates[place]
        expected[tuple(target)] = old + new if reduction == "add" else old * new
    assert_same_bits(emulated(node, x, i=indices, u=updates), expected)


@pytest.mark.parametrize("seed", range(6))
def test_scattered_slices(seed: int) -> None:
    x, _, rng = drawn(seed)
    width, places = int(rng.integers(1, x.ndim + 1)), [int(n) for n in rng.integers(1, 6, rng.integers(1, 3))]
    indices = np.stack([rng.integers(0, side, places) for side in x.shape[:width]], axis=-1)
    updates = rng.standard_normal((*places, *x.shape[width:])).astype(HALF)
    expected = x.copy()
    for place in np.ndindex(*places):
        expected[tuple(indices[place])] += updates[place]
    assert_same_bits(emulated('y = ScatterND<reduction = "add">(x, i, u)', x, i=indices, u=updates), expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("p", [1, 2])
def test_norms(seed: int, p: int) -> None:
    x, axis, _ = drawn(seed, low=30, most=60, rank=2)
    norm = one_by_one(np.abs(x) if p == 1 else x * x, axis)
    expected = x / (norm if p == 1 else np.sqrt(norm))
    assert_same_bits(emulated(f"y = LpNormalization<axis = {axis}, p = {p}>(x)", x), expected)


def test_a_norm_of_zero() -> None:
    assert_same_bits(emulated("y = LpNormalization(x)", np.zeros((2, 3), HALF)), np.zeros((2, 3), HALF))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_local_responses(size: int) -> None:
    x, _, _ = drawn(size, low=4, most=7, rank=4)
    square = np.pad(x * x, [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)])
    total = np.concatenate([one_by_one(square[:, c : c + size], 1) for c in range(x.shape[1])], axis=1)
    exact = x / (1 + 0.5 / size * total.astype(np.float64)) ** 0.75
    made = emulated(f"y = LRN<size = {size}, alpha = 0.5>(x)", x)
    np.testing.assert_allclose(made, exact, rtol=2**-10, atol=2**-24)
    far = np.full((1, 6, 2, 2), 300, HALF)
    assert not emulated(f"y = LRN<size = {size}>(x)", far).any(), "its square is Inf"


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_pools_of_norms(p: int, rank: int) -> None:
    x, _, _ = drawn(p + rank, low=3, most=6, rank=rank)
    x = np.clip(x, -20, 20)
    root: Callable[[Any], Any] = {1: np.asarray, 2: np.sqrt, 3: lambda v: v.astype(np.float32) ** HALF(1 / 3)}[p]
    powers = {1: np.abs(x), 2: x * x, 3: (np.abs(x).astype(np.float32) ** 3).astype(HALF)}[p]
    whole = root(one_by_one(powers.reshape(*x.shape[:2], -1), 2)).reshape(*x.shape[:2], *[1] * (rank - 2))
    np.testing.assert_allclose(emulated(f"y = GlobalLpPool<p = {p}>(x)", x), whole, rtol=2**-10)
    kernel = f"[{', '.join(['2'] * (rank - 2))}]"
    windows = np.lib.stride_tricks.sliding_window_view(powers, [2] * (rank - 2), axis=tuple(range(2, rank)))
    parts = one_by_one(windows.reshape(*windows.shape[:rank], -1), -1)[..., 0]
    made = emulated(f"y = LpPool<p = {p}, kernel_shape = {kernel}>(x)", x)
    np.testing.assert_allclose(made, root(parts), rtol=2**-10)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("op_type", GATES)
def test_recurrences(op_type: str, seed: int) -> None:
    """ONNX Runtime's node for one step after the other, states rounded in between; in reverse from the end."""
    rng, gates = np.random.default_rng(seed), GATES[op_type]
    steps, batch, inputs, hidden = (int(n) for n in rng.integers(2, 6, 4))
    direction, states = ["forward", "reverse", "bidirectional", "bidirectional"][seed], 2 if op_type == "LSTM" else 1
    ways = {"forward": [1], "reverse": [-1]}.get(direction, [1, -1])

    def numbers(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.7, (len(ways), *shape)).astype(HALF)

    weights = {
        "w": numbers(gates * hidden, inputs),
        "r": numbers(gates * hidden, hidden),
        "b": numbers(2 * gates * hidden),
    }
    begin = [numbers(batch, hidden) for _ in range(states)] if seed % 2 else [HALF(0) * numbers(batch, hidden)] * states
    x = rng.normal(0, 1, (steps, batch, inputs)).astype(HALF)
    names = ["p", "q"][:states] if seed % 2 else []
    feeds = {"x": x, **weights, **dict(zip(names, begin, strict=False))}
    head = ", ".join(f"float16[{','.join(map(str, each.shape))}] {name}" for name, each in feeds.items())
    last = ", ".join(["h", "c"][:states])
    outs = ", ".join(f"float16[d,e,f] {name}" for name in ["h", "c"][:states])
    made = f'y, {last} = {op_type}<hidden_size = {hidden}, direction = "{direction}">(x, w, r, b, , {", ".join(names)})'
    model = parsed(f"g ({head}) => (float16[s,d,b1,h1] y, {outs}) {{ {made.replace(', , )', ')')} }}", 18)
    assert emulate(model).meta[NOT_SPLIT] == {}
    assert "products of a step" in split_sums(model).meta[NOT_SPLIT][f"{op_type} -> y"]
    found = run(model, **feeds)
    if op_type == "RNN":
        assert emulate(split_sums(model)).meta[NOT_SPLIT].keys() == {"RNN -> y"}
    one = f"y, {last} = {op_type}<hidden_size = {hidden}>(x, w, r, b, , {', '.join(['p', 'q'][:states])})"
    sides = ", ".join(f"float[?,?,?] {name}" for name in ["x", "w", "r", *["p", "q"][:states]])
    single = parsed(
        f"g ({sides}, float[?,?] b) => (float[?,?,?,?] y, {outs.replace('float16', 'float')}) {{ {one} }}", 18
    )
    session = Session(single)
    for number, way in enumerate(ways):
        state = [each[number : number + 1] for each in begin]
        for t in range(steps)[::way]:
            own = {name: each[number : number + 1].astype(np.float32) for name, each in weights.items()}
            own |= dict(zip(["p", "q"], (each.astype(np.float32) for each in state), strict=False))
            after = session.run({"x": x[t : t + 1].astype(np.float32), **own})
            state = [after[name].astype(HALF) for name in ["h", "c"][:states]]
            assert_same_bits(found["y"][t, number], state[0][0])
        for name, each in zip(["h", "c"], state, strict=False):
            assert_same_bits(found[name][number], each[0])


LONG = {
    "CumSum": ("n = Constant<value_int = 1>() y = CumSum(x, n)", (1, TERMS + 1)),
    "LpNormalization": ("y = LpNormalization(x)", (1, TERMS + 1)),
    "GlobalLpPool": ("y = GlobalLpPool(x)", (1, 1, 65, 65)),
    "LRN": (f"y = LRN<size = {TERMS + 1}>(x)", (1, 2, 1, 1)),
    "LpPool": ("y = LpPool<kernel_shape = [9, 9]>(x)", (1, 1, 9, 9)),
    "ScatterElements": ('y = ScatterElements<axis = 1, reduction = "add">(x, i, x)', (1, TERMS + 1)),
    "ScatterND": ('y = ScatterND<reduction = "add">(x, j, x)', (TERMS + 1, 1)),
}


@pytest.mark.parametrize("op_type", LONG)
def test_what_is_too_long_is_listed(op_type: str) -> None:
    node, shape = LONG[op_type]
    sides, out = ",".join(map(str, shape)), ",".join("abcd"[: len(shape)])
    text = f"g (float16[{sides}] x, int64[{sides}] i, int64[4097,1] j) => (float16[{out}] y) {{ {node} }}"
    session = EmulatedSession(parsed(text, 18))
    assert list(session.not_split) == [f"{op_type} -> y"] and "sums-not-rounded" in session.not_split[f"{op_type} -> y"]


@pytest.mark.parametrize("whole", SAMPLE_AND_WHOLE)
def test_all_backend_cases_are_rounded(whole: bool) -> None:
    found = set()
    for _, proto, _ in cases(whole):
        if not {("", name) for name in RULES} & operators_of(proto):
            continue
        model = ir.from_proto(converted(proto, keep_io_types=False)[0])
        assert emulate(model).meta[NOT_SPLIT] == {}
        found |= {name for _, name in operators_of(proto)}
    assert found >= {"LRN", "LpNormalization", "LpPool", "ScatterElements", "ScatterND"}  # others are of float64


# Queries and keys whose products, scaled, are beyond 65504 in FP32: the text of the node, and shapes of Q, K and V.
ATTENTIONS = {
    "4-d": ("y = Attention(q, k, v)", [(1, 2, 3, 8)] * 3),
    "3-d": ("y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)", [(2, 3, 16)] * 3),
    "grouped": ("y = Attention(q, k, v)", [(1, 4, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8)]),
    "causal": ("y = Attention<is_causal = 1>(q, k, v)", [(1, 2, 3, 8)] * 3),
    "scaled": ("y = Attention<scale = 2.0>(q, k, v)", [(1, 1, 2, 4)] * 3),
    "softmax in FP32": ("y = Attention<softmax_precision = 1>(q, k, v)", [(1, 2, 3, 8)] * 3),
}


@pytest.mark.parametrize("case", ATTENTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_logits_of_an_attention_beyond_float16(case: str, seed: int) -> None:
    node, shapes = ATTENTIONS[case]
    sides = [f"float16[{','.join(map(str, shape))}] {name}" for name, shape in zip("qkv", shapes, strict=True)]
    model = parsed(f"g ({', '.join(sides)}) => (float16[{','.join('abcd'[: len(shapes[0])])}] y) {{ {node} }}", 23)
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape).astype(HALF) for shape in shapes)
    split = split_sums(model)
    assert split.meta[NOT_SPLIT] == {}
    near = run(split, q=q, k=k, v=v)["y"]
    np.testing.assert_allclose(near, run(model, q=q, k=k, v=v)["y"], atol=2**-7)
    far = {"q": np.abs(q) + HALF(250), "k": np.abs(k) + HALF(250), "v": v}
    assert np.isfinite(run(model, **far)["y"]).all() and not np.isfinite(run(split, **far)["y"]).all()
    onnx.checker.check_model(ir.to_proto(split), full_check=True)


@pytest.mark.parametrize("opset", [7, 9, 11, 12])
@pytest.mark.parametrize(
    "node",
    [
        "y = LpNormalization<axis = 1, p = 1>(x)",
        "y = LRN<size = 3, alpha = 1.5>(x)",
        "y = GlobalLpPool<p = 2>(x)",
        "y = LpPool<kernel_shape = [2, 2], p = 2>(x)",
        "z = LRN<size = 5>(x) y = LpNormalization<axis = -1>(z)",
    ],
)
def test_a_model_of_an_older_opset_is_rounded_as_one_of_a_later(node: str, opset: int) -> None:
    x, _, _ = drawn(opset, rank=4)
    assert_same_bits(emulated(node, x, opset), emulated(node, x, 18))
