"""Sizes, indices and trip counts that are computed in FP16: in good files they are exact, in bad ones not.

Rounded to FP16 behind every node 300 * 2/3 is 200; where a kernel computes it in FP32 and a Cast to an integer follows,
it is 199. 300 + 1997 is 2297, of which FP16 makes 2296; nothing is lost without a rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from tests.corpus.pairs import Pair

# `n` is 300, the width of x; `f` is it as a float, `k` a constant; the size `i` is made of them. `seen` reacts to the
# input where `y` has but a size of it.
HEAD = """<ir_version: 10, opset_import: ["": 21]> g (float[b, 300] x) => ({output} y, float[b, 300] seen)
    <{type} k = {{0}}, int64[1] one = {{1}}, int64[1] zero = {{0}},
    int64 c0 = {{0}}, int64 c1 = {{1}}, int64 c200 = {{200}}, {type} half = {{0}}>
{{ shape = Shape<start = 1>(x) f = Cast<to = {to}>(shape) {arithmetic} i = Cast<to = 7>(m) {body} seen = Neg(x) }}"""
MUL = "m = Mul(f, k)"
BODIES = {
    "Slice": ("y = Slice(x, zero, i, one)", "float[b, c]"),
    "Tile": ("y = Tile(one, i)", "int64[c]"),
    "ConstantOfShape": ("v = ConstantOfShape(i) y = Cast<to = 7>(v)", "int64[c]"),
    "Expand": ("y = Expand(one, i)", "int64[c]"),
    "Range": ("s = Squeeze(i) y = Range(c0, s, c1)", "int64[c]"),
    "TopK": ("y, p = TopK(x, i)", "float[b, c]"),
    "Pad": ("p = Concat<axis = 0>(zero, i) y = Pad(one, p)", "int64[c]"),
    "Resize": ("n = Shape<end = 1>(x) w = Concat<axis = 0>(n, i) y = Resize(x, , , w)", "float[b, c]"),
    "Loop": ("""s = Squeeze(i) v, y = Loop(s, , zero) <body = l (int64 t, bool c, int64[1] k)
        => (bool e, int64[1] r, int64[1] o)
        { e = Identity(c) r = Add(k, one) o = Identity(k) }>""", "int64[c, 1]"),
    "If": ("""s = Squeeze(i) z = Equal(s, c200) y = If(z) <then_branch = a () => (float[d, e] p) { p = Identity(x) },
        else_branch = h () => (float[d1, e1] q) { q = Slice(x, zero, one, one) }>""", "float[b, c]"),
}  # fmt: skip
X = np.random.default_rng(0).random((2, 300), dtype=np.float32)


def model(body: str, dtype: type, k: float, arithmetic: str = MUL) -> onnx.ModelProto:
    """The same graph with its size arithmetic in float32 or in float16."""
    text, output = BODIES[body]
    half = dtype is np.float16
    head = HEAD.format(
        output=output, type="float16" if half else "float", to=10 if half else 1, arithmetic=arithmetic, body=text
    )
    proto = onnx.parser.parse_model(head)
    for weight in proto.graph.initializer:
        if weight.name in ("k", "half"):
            weight.CopyFrom(numpy_helper.from_array(np.array(k if weight.name == "k" else 0.5, dtype), weight.name))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def pairs() -> Iterator[Pair]:
    for body in BODIES:
        cases = {
            "exact": (0.5, MUL, "passed"),
            "floor": (0.5, "m0 = Mul(f, k) m1 = Add(m0, half) m = Floor(m1)", "passed"),
            "not-rounded": (2 / 3, MUL, "failed"),
            "rounded": (1997.0, "m0 = Add(f, k) m = Sub(m0, k)", "failed"),
        }
        if body != "Slice":  # other operators read the size as it does
            cases = {"not-rounded": cases["not-rounded"]}
        for name, (k, arithmetic, verdict) in cases.items():
            models = [model(body, dtype, k, arithmetic) for dtype in (np.float32, np.float16)]
            codes = ("wrong-shape",) if name == "not-rounded" else ()
            yield Pair(f"size-of-{body.lower()}-{name}", *models, {"x": X}, verdict, codes=codes)
