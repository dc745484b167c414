"""CumSum: the bits of numpy.float16 adding one term after the other. Attention: logits beyond FP16, pessimistically."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.truehalf.emulation.emulation import assert_same_bits, parsed, run
from truehalf.emulation.cumulative_sums import TERMS
from truehalf.emulation.emulate import emulate
from truehalf.emulation.half_nodes import NOT_SPLIT
from truehalf.emulation.pessimistic import split_sums
from truehalf.emulation.sessions import EmulatedSession

HALF = np.float16


def emulated(node: str, x: np.ndarray) -> np.ndarray:
    sides = ",".join(map(str, x.shape))
    model = parsed(f"g (float16[{sides}] x) => (float16[{','.join('abcdef'[: x.ndim])}] y) {{ {node} }}", 18)
    assert emulate(model).meta[NOT_SPLIT] == split_sums(model).meta[NOT_SPLIT] == {}
    made = run(model, x=x)["y"]
    assert_same_bits(run(split_sums(model), x=x)["y"], made)
    return made


def drawn(seed: int) -> tuple[np.ndarray, int, np.random.Generator]:
    """Numbers of a random shape, an axis of it, and the generator."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 9, rng.integers(1, 5))
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


def test_what_is_too_long_is_listed() -> None:
    text = f"g (float16[1,{TERMS + 1}] x) => (float16[a,b] y) {{ n = Constant<value_int = 1>() y = CumSum(x, n) }}"
    session = EmulatedSession(parsed(text, 18))
    assert list(session.not_split) == ["CumSum -> y"] and "sums-not-rounded" in session.not_split["CumSum -> y"]


def test_other_sums_are_rounded_once() -> None:
    """3000 ones: scattered, and the state of an RNN, are 3000; the pessimistic evaluation lists both."""
    text = """g (float16[1,3000] x, float16[3000,1,1] s) => (float16[a,b] y, float16[c,d,e,f] z) <int64 none = {0}> {
        n = Shape(x) i = Expand(none, n) p = Sub(x, x)
        y = ScatterElements<axis = 1, reduction = "add">(p, i, x)
        o = Constant<value = float[1,1,1] {1}>() w = CastLike(o, x)
        z = RNN<hidden_size = 1, activations = ["Relu"]>(s, w, w) }"""
    model = parsed(text, 18)
    feeds = {"x": np.ones((1, 3000), HALF), "s": np.ones((3000, 1, 1), HALF)}
    found = run(model, **feeds)
    assert found["y"][0, 0] == 3000 and found["z"][-1, 0, 0, 0] == 3000
    assert emulate(model).meta[NOT_SPLIT] == {}
    assert list(split_sums(model).meta[NOT_SPLIT]) == ["ScatterElements -> y", "RNN -> z"]


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
