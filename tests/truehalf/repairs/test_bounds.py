"""What is proven to be bounded and never NaN."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir
import pytest

from tests.truehalf.repairs.repairing import parsed, run
from truehalf.ir.normalize import InferTypes
from truehalf.repairs.bounds import bounds

HEAD = """net (float[2, 3] x, float[2, 3] z, bool[2, 3] c) => (float[2, 3] y)
<float low = {-2.0}, float high = {3.0}, float[3] k = {-4.0, 0.5, 2.0}, float[3] w = {1.0, 9.0, 4.0},
 int64[2] turn = {3, 2}>
"""


def bounds_of(body: str) -> tuple[float, float] | None:
    model = ir.from_proto(parsed(HEAD + body))
    InferTypes()(model)
    return bounds(model.graph.outputs[0], model.graph.inputs)


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
        ("{ d = Add (x, z)  e = Exp (d)  y = Tanh (e) }", (-1, 1)),
        ("{ p = Mul (x, z)  y = Sigmoid (p) }", (0, 1)),
        ("{ s = Sigmoid (x)  t = Add (s, w)  y = Div (k, t) }", (-4, 2)),
        ("{ s = Sigmoid (x)  t = Add (s, w)  r = Reciprocal (t)  y = Log (t) }", (0, 2.302585)),
        ("{ s = Tanh (x)  e = Exp (s)  f = Floor (e)  y = Ceil (f) }", (0, 2)),
        ("{ s = Sign (x)  u = Cast <to = 2> (s)  y = Cast <to = 1> (u) }", (0, 255)),
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
        "{ s = Tanh (x)  e = Exp (s)  y = Mul (e, z) }",
    ],
)
def test_not_bounded(body: str) -> None:
    assert bounds_of(body) is None


HUGE = np.array([[-1000, -3, 0], [3e38, 1000, -3e38]], np.float32)


@pytest.mark.parametrize(
    "body",
    [
        "{ l = Log (x)  y = Sigmoid (l) }",
        "{ r = Sqrt (x)  y = Clip (r, low, high) }",
        "{ d = Div (x, x)  y = Clip (d, low, high) }",
        "{ d = Div (z, x)  y = Atan (d) }",
        "{ r = Reciprocal (x)  y = Sin (r) }",
        "{ e = Exp (x)  y = Sin (e) }",
        "{ e = Exp (x)  y = Softsign (e) }",
        "{ e = Exp (x)  f = Exp (z)  d = Sub (e, f)  y = Tanh (d) }",
        "{ e = Exp (x)  r = Relu (z)  m = Mul (e, r)  y = Sigmoid (m) }",
        "{ e = Exp (x)  f = Exp (z)  q = Div (e, f)  y = Sigmoid (q) }",
        "{ s = Mul (x, w)  t = Mul (z, w)  d = Sub (s, t)  y = Tanh (d) }",
        "{ l = Log (x)  s = Softmax (l)  r = Relu (s)  y = Min (r, high) }",
        "{ r = Relu (z)  m = Mod <fmod = 1> (x, r)  y = Tanh (m) }",
        "{ a = Acos (x)  t = Tanh (a)  y = Abs (t) }",
        "{ p = Pow (x, k)  y = Erf (p) }",
        "{ t = Transpose <perm = [1, 0]> (z)  m = MatMul (x, t)  n = MatMul (m, x)  y = Sigmoid (n) }",
        "{ d = Cast <to = 11> (x)  m = Mul (d, d)  f = Cast <to = 1> (m)  e = Sub (f, f)  y = Sigmoid (e) }",
    ],
)
def test_bounded_but_perhaps_nan(body: str) -> None:
    """Each of them is NaN somewhere, with finite inputs."""
    assert bounds_of(body) is None
    feeds = {"x": HUGE, "z": HUGE[:, ::-1].copy(), "c": HUGE > 0}
    same = feeds | {"z": HUGE}
    assert any(np.isnan(run(parsed(HEAD + body), feed)[0]).any() for feed in (feeds, same))


def test_infinities_have_a_place_in_these_ranges() -> None:
    body = "{ e = Exp (x)  a = Tanh (e)  b = Erf (e)  d = Sigmoid (e)  f = Atan (e)  y = Sum (a, b, d, f) }"
    got = run(parsed(HEAD + body), {"x": np.full((2, 3), 1e3, np.float32), "z": HUGE, "c": HUGE > 0})[0]
    np.testing.assert_allclose(got, 3 + math.pi / 2, rtol=1e-6)


def test_inputs_of_a_body_are_not_known_to_be_finite() -> None:
    before = parsed(HEAD + "{ y = Sin (x) }")
    model = ir.from_proto(before)
    InferTypes()(model)
    assert bounds(model.graph.outputs[0], [model.graph.inputs[1]]) is None


def test_a_chain_of_squares_is_looked_at_once() -> None:
    names = ["s", *(f"v{i}" for i in range(30)), "y"]
    body = "{ s = Sigmoid (x) " + " ".join(f"{b} = Mul ({a}, {a})" for a, b in itertools.pairwise(names)) + "}"
    assert bounds_of(body) == (0, 1)


def test_clip_by_attributes() -> None:
    model = ir.from_proto(
        parsed("net (float[2] x) => (float[2] y) { s = Sigmoid (x)  y = Clip <min = 2.0, max = 3.0> (s) }", opset=10)
    )
    InferTypes()(model)
    assert bounds(model.graph.outputs[0], model.graph.inputs) == (2, 2)


def test_constants_must_be_finite() -> None:
    def of(*numbers: float) -> tuple[float, float] | None:
        tensor = ir.tensor(np.array(numbers, np.float32), name="k")
        return bounds(ir.Value(name="k", const_value=tensor))

    assert of(1.0, -3.0) == (-3.0, 1.0)
    assert of(1.0, math.inf) is of(math.nan) is of() is None
