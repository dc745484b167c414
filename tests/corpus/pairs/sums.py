"""Pairs of an FP32 graph and the same in FP16, of sums that go on term by term: they stop, overflow, or are fine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from tests.corpus.pairs import Pair

_RELU, _LAST = ', activations = ["Relu"]', "y = Squeeze(t, tail)"
# Nodes, the shape of x, the size of its values, and the verdict; x is 0.5 to 1 of that size.
CASES: dict[str, tuple[str, tuple[int, ...], float, str]] = {
    "running": ("y = CumSum(x, last)", (2, 3000), 1, "failed"),
    "running-first-axis": ("y = CumSum(x, first)", (4000, 2), 1, "failed"),
    "running-back": ("y = CumSum<reverse = 1, exclusive = 1>(x, last)", (2, 2, 3500), 2, "failed"),
    "running-beyond": ("y = CumSum(x, last)", (1, 400), 300, "failed"),
    "running-short": ("y = CumSum(x, last)", (3, 12), 1, "passed"),
    "running-long": ("y = CumSum(x, last)", (1, 4097), 1, "not verified"),
    "scattered": ('y = ScatterElements<axis = 1, reduction = "add">(x, zeros, x)', (2, 3500), 1, "failed"),
    "scattered-slices": ('y = ScatterND<reduction = "add">(x, places, x)', (4000, 1), 1, "failed"),
    "scattered-short": ('y = ScatterElements<axis = 1, reduction = "add">(x, zeros, x)', (2, 9), 1, "passed"),
    "norm": ("y = LpNormalization<axis = 1>(x)", (2, 8), 300, "failed"),
    "norm-of-many": ("y = LpNormalization<axis = 0, p = 1>(x)", (4000, 1), 1, "failed"),
    "norm-short": ("y = LpNormalization<axis = 1>(x)", (2, 8), 3, "passed"),
    "responses": ("y = LRN<size = 5>(x)", (1, 8, 3, 3), 400, "failed"),
    "responses-small": ("y = LRN<size = 5>(x)", (1, 8, 3, 3), 2, "passed"),
    "pool": ("y = GlobalLpPool(x)", (1, 2, 60, 60), 8, "failed"),
    "pool-small": ("y = GlobalLpPool(x)", (1, 2, 4, 4), 2, "passed"),
    "pool-of-windows": ("y = LpPool<kernel_shape = [3, 3]>(x)", (1, 2, 6, 6), 300, "failed"),
    **{
        f"states{name}": (
            f"w = CastLike(unit, x) t = RNN<hidden_size = 1{more}>(x, w, w{given}) {_LAST}",
            shape,
            1,
            expected,
        )
        for name, more, given, shape, expected in (
            ("", _RELU, "", (3000, 1, 1), "failed"),
            ("-reverse", f'{_RELU}, direction = "reverse"', "", (3500, 2, 1), "failed"),
            ("-of-some-steps", _RELU, ", , steps", (3000, 1, 1), "failed"),
            ("-short", _RELU, "", (40, 2, 1), "passed"),
            ("-of-a-tanh", "", "", (3000, 2, 1), "passed"),
            ("-long", _RELU, "", (4097, 1, 1), "not verified"),
        )
    },
}


def graph(node: str, shape: tuple[int, ...], half: bool) -> onnx.ModelProto:
    """From and to float32; in between in FP16, or not."""
    sides, out, to = ",".join(map(str, shape)), ",".join(f"d{axis}" for axis in range(len(shape))), 10 if half else 1
    body = node.replace("(x", "(h").replace(", x)", ", h)").replace("y = ", "z = ")
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]> g (float[{sides}] x) => (float[{out}] y)
        <int64 last = {{-1}}, int64 first = {{0}}, int64 none = {{0}}, int64[1] tail = {{1}},
        float[1, 1, 1] unit = {{1}}, int32[1] steps = {{2990}}> {{
        h = Cast<to = {to}>(x) s = Shape(x) zeros = Expand(none, s)
        n = Shape<end = 1>(x) pair = Concat<axis = 0>(n, tail) places = Expand(none, pair)
        {body} y = Cast<to = 1>(z) }}"""
    )


def pairs() -> Iterator[Pair]:
    for name, (node, shape, size, verdict) in CASES.items():
        x = (np.random.default_rng(0).uniform(0.5, 1, shape) * size).astype(np.float32)
        models = [graph(node, shape, half) for half in (False, True)]
        yield Pair(f"sum-{name}", *models, {"x": x}, verdict, codes=("sums-not-rounded",) if "long" in name else ())
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.integers(1, 4, rng.integers(1, 4)))
        axis = int(rng.integers(len(shape)))
        shape = (*shape[:axis], int(rng.integers(2500, 4000)) if seed % 2 else 9, *shape[axis + 1 :])
        node = f"at = Constant<value_int = {axis}>() y = CumSum<reverse = {seed // 2}>(x, at)"
        models = [graph(node, shape, half) for half in (False, True)]
        x = rng.uniform(0.5, 1, shape).astype(np.float32)
        yield Pair(f"sum-drawn-{seed}", *models, {"x": x}, "failed" if seed % 2 else "passed")
