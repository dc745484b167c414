"""Pairs of an FP32 graph and the same in FP16, of sums inside a node: CumSum stops or overflows, others are fine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from tests.corpus.pairs import Pair

# Nodes, the shape of x, the size of its values, and the verdict; x is 0.5 to 1 of that size.
CASES: dict[str, tuple[str, tuple[int, ...], float, str]] = {
    "running": ("y = CumSum(x, last)", (2, 3000), 1, "failed"),
    "running-beyond": ("y = CumSum(x, last)", (1, 400), 300, "failed"),
    "running-short": ("y = CumSum(x, last)", (3, 12), 1, "passed"),
    "running-long": ("y = CumSum(x, last)", (1, 4097), 1, "not verified"),
    "scattered": ('y = ScatterElements<axis = 1, reduction = "add">(x, zeros, x)', (2, 9), 1, "passed"),
    "norm": ("y = LpNormalization<axis = 1>(x)", (2, 8), 300, "passed"),
    "pool": ("y = GlobalLpPool(x)", (1, 2, 60, 60), 8, "passed"),
    "states": (
        'w = CastLike(unit, x) t = RNN<hidden_size = 1, activations = ["Relu"]>(x, w, w) y = Squeeze(t, tail)',
        (3000, 1, 1),
        1,
        "passed",
    ),
}


def graph(node: str, shape: tuple[int, ...], half: bool) -> onnx.ModelProto:
    """From and to float32; in between in FP16, or not."""
    sides, out, to = ",".join(map(str, shape)), ",".join(f"d{axis}" for axis in range(len(shape))), 10 if half else 1
    body = node.replace("(x", "(h").replace(", x)", ", h)").replace("y = ", "z = ")
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]> g (float[{sides}] x) => (float[{out}] y)
        <int64 last = {{-1}}, int64 none = {{0}}, int64[1] tail = {{1}},
        float[1, 1, 1] unit = {{1}}> {{
        h = Cast<to = {to}>(x) s = Shape(x) zeros = Expand(none, s)
        {body} y = Cast<to = 1>(z) }}"""
    )


def pairs() -> Iterator[Pair]:
    for name, (node, shape, size, verdict) in CASES.items():
        x = (np.random.default_rng(0).uniform(0.5, 1, shape) * size).astype(np.float32)
        models = [graph(node, shape, half) for half in (False, True)]
        yield Pair(f"sum-{name}", *models, {"x": x}, verdict, codes=("sums-not-rounded",) if "long" in name else ())
