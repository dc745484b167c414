"""What is proven to be bounded."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from stages.graph.normalize import infer_types
from stages.graph.repair.bounds import bounds
from tests.stages.graph.repair.repairing import parsed, run

HEAD = """net (float[2, 3] x, float[2, 3] z, bool[2, 3] c) => (float[2, 3] y)
<float low = {-2.0}, float high = {3.0}, float[3] k = {-4.0, 0.5, 2.0}, float[3] w = {1.0, 9.0, 4.0},
 int64[2] turn = {3, 2}>
"""


def bounds_of(body: str) -> tuple[float, float] | None:
    model = ir.from_proto(parsed(HEAD + body))
    infer_types(model)
    return bounds(model.graph.outputs[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{ y = Sigmoid (x) }", (0, 1)),
        ("{ y = Clip (x, low, high) }", (-2, 3)),
        ("{ s = Sigmoid (x)  y = Clip (s, low) }", (0, 1)),
        ("{ s = Tanh (x)  y = Mul (s, k) }", (-4, 4)),
        ("{ s = Tanh (x)  t = Sigmoid (z)  y = Sub (s, t) }", (-2, 1)),
        ("{ s = Tanh (x)  y = Add (s, k) }", (-5, 3)),
        ("{ s = Tanh (x)  t = Neg (s)  y = Abs (t) }", (0, 1)),
        ("{ n = Cast <to = 1> (c)  y = Mul (n, w) }", (0, 9)),
        ("{ s = Sigmoid (x)  r = Reshape (s, turn)  y = Transpose <perm = [1, 0]> (r) }", (0, 1)),
        ("{ s = Sigmoid (x)  t = Tanh (z)  y = Where (c, s, t) }", (-1, 1)),
        ("{ s = Sigmoid (x)  t = Tanh (z)  y = Max (s, t) }", (0, 1)),
        ("{ s = Sigmoid (x)  m = Mul (s, w)  y = Sqrt (m) }", (0, 3)),
        ("{ s = Tanh (x)  y = Relu (s) }", (0, 1)),
        ("{ s = Sin (x)  t = Cos (z)  y = Min (s, t) }", (-1, 1)),
    ],
)
def test_bounded(body: str, expected: tuple[float, float]) -> None:
    assert bounds_of(body) == pytest.approx(expected)
    wide = np.array([[-1e30, -3, 0], [0.3, 5, 1e30]], np.float32)
    got = run(parsed(HEAD + body), {"x": wide, "z": wide[::-1].copy(), "c": wide > 0})[0]
    assert expected[0] <= got.min() <= got.max() <= expected[1]


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Identity (x) }",
        "{ y = Softmax (x) }",
        "{ s = Sigmoid (x)  y = Mul (s, z) }",
        "{ y = Exp (x) }",
        "{ y = Clip (x, low) }",
        "{ y = Relu (x) }",
        "{ s = Sigmoid (x)  y = Max (s, z) }",
        "{ s = Tanh (x)  y = Sqrt (s) }",
        "{ s = Sigmoid (x)  y = Div (k, s) }",
    ],
)
def test_not_bounded(body: str) -> None:
    assert bounds_of(body) is None


def test_constants_must_be_finite() -> None:
    def of(*numbers: float) -> tuple[float, float] | None:
        tensor = ir.tensor(np.array(numbers, np.float32), name="k")
        return bounds(ir.Value(name="k", const_value=tensor))

    assert of(1.0, -3.0) == (-3.0, 1.0)
    assert of(1.0, math.inf) is of(math.nan) is of() is None
