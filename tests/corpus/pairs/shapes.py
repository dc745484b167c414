"""Sizes that are computed in FP16: 300 + 1997 is 2297, of which FP16 makes 2296."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from tests.corpus.pairs import Pair

# 300 is the width of x; `k` is a constant; the size `m` is made of both. `seen` reacts to the input.
TEXT = """<ir_version: 10, opset_import: ["": 21]> g (float[b, 300] x) => (float[b, c] y, float[b, 300] seen)
    <{type} k = {{0}}, {type} half = {{0}}, int64[1] one = {{1}}, int64[1] zero = {{0}}>
{{ shape = Shape<start = 1>(x) f = Cast<to = {to}>(shape) {arithmetic} i = Cast<to = 7>(m)
   y = Slice(x, zero, i, one) seen = Neg(x) }}"""
CASES = {
    "exact": (0.5, "m = Mul(f, k)", "passed"),
    "floor": (0.5, "m0 = Mul(f, k) m1 = Add(m0, half) m = Floor(m1)", "passed"),
    "rounded": (1997.0, "m0 = Add(f, k) m = Sub(m0, k)", "failed"),
}


def model(dtype: type, k: float, arithmetic: str) -> onnx.ModelProto:
    """The same graph with its size arithmetic in float32 or in float16."""
    half = dtype is np.float16
    text = TEXT.format(type="float16" if half else "float", to=10 if half else 1, arithmetic=arithmetic)
    proto = onnx.parser.parse_model(text)
    for weight in proto.graph.initializer:
        if weight.name in ("k", "half"):
            weight.CopyFrom(numpy_helper.from_array(np.array(k if weight.name == "k" else 0.5, dtype), weight.name))
    return proto


def pairs() -> Iterator[Pair]:
    x = np.random.default_rng(0).random((2, 300), dtype=np.float32)
    for name, (k, arithmetic, verdict) in CASES.items():
        models = [model(dtype, k, arithmetic) for dtype in (np.float32, np.float16)]
        yield Pair(f"size-of-slice-{name}", *models, {"x": x}, verdict)
