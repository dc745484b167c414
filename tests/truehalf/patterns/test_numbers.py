"""Numbers and types that do not fit."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import found, model_of, only
from truehalf.patterns import lint

CONSTANTS = """<float big = {-1000000000}, float fits = {-10000}, float edge = {65504}, float zero = {0},
    int64[1] one = {1}, int64 beyond = {8589934592}, int64 within = {2147483647}, int64[1] last = {9223372036854775807},
    int64[1] first = {0}, double tenth = {0.1}>"""


def of(body: str, inputs: str = "float[N] x, bool[N] b, int64[N] k", result: str = "float[A] y") -> list[str]:
    rules = found(f"({inputs}) => ({result}) {CONSTANTS} {{ {body} }}")
    return [rule for _, rule in rules if rule != "where-condition"]


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, big)",
        "y = Mul(x, big)",
        "y = Sub(big, x)",
        "y = Where(b, big, x)",
        "s = Shape(x) m = Expand(big, s) y = Where(b, x, m)",
        "s = Shape(x) m = ConstantOfShape<value = float[1] {-1000000000}>(s) y = Add(x, m)",
        "m = Unsqueeze(big, first) y = Add(x, m)",
    ],
)
def test_a_mask_beyond_float16(body: str) -> None:
    assert of(body) == ["mask-beyond-fp16"]


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, fits)",
        "y = Add(x, edge)",
        "y = Max(x, big)",  # a limit that limits nothing
        "y = Div(x, big)",
        "y = Add(x, inf)",  # float16 has it
        "m = Add(big, zero) y = Add(x, m)",  # once, where it is read
    ],
)
def test_what_is_no_mask_beyond_float16(body: str) -> None:
    expected = ["mask-beyond-fp16"] if "Add(big" in body else []
    model = model_of(f"(float[N] x, float inf) => (float[N] y) {CONSTANTS} {{ {body} }}")
    infinite = next(value for value in model.graph.inputs if value.name == "inf")
    model.graph.inputs.remove(infinite)
    infinite.const_value = ir.tensor(np.array(-np.inf, np.float32), name="inf")
    model.graph.initializers.add(infinite)
    rules = [finding.rule for finding in lint(model, ignore=["empty-node-name"])]
    assert rules == expected


def test_the_extreme_is_named_with_its_sign() -> None:
    text = "(float[2] x) => (float[2] y) <float[2] m = {0, 340000000000000000000000000000000000000}> { y = Add(x, m) }"
    finding = only(text)
    expect(finding.message, None, "3.4e+38", "inf")
    assert "-3.4e+38" not in finding.message and "-inf" not in finding.message
    expect(finding.remedy, None, 65504)
    finding = only(text.replace("{0, 34", "{0, -34"))
    expect(finding.message, None, "-3.4e+38", "-inf")
    expect(finding.remedy, None, "-1e4")


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        ("d = Cast<to = 11>(x) e = Add(d, tenth) f = Mul(e, e) y = Cast<to = 1>(f)", ["float64"]),  # where it begins
        ("f = Cast<to = 1>(tenth) y = Mul(x, f)", []),  # a constant when it is folded
        ("s = Shape(x) d = Cast<to = 11>(s) f = Mul(d, tenth) y = Cast<to = 1>(f)", ["float64"]),
        ("y = Mul(x, x)", []),
    ],
)
def test_float64(body: str, rules: list[str]) -> None:
    assert of(body) == rules


def test_a_float64_input() -> None:
    findings = found("(double[N] x) => (float[N] y) { z = Neg(x) y = Cast<to = 1>(z) }")
    assert findings == [("warning", "float64")]


@pytest.mark.parametrize(
    ("body", "is_mixed"),
    [
        ("y = Mul(x, h)", True),
        ("z = Concat<axis = 0>(x, x, h) y = Identity(z)", True),
        ("c = Cast<to = 1>(h) y = Mul(x, c)", False),
        ("y = BatchNormalization(i, h, h, x, x)", False),  # scale and mean may differ
    ],
)
def test_float_types_that_meet(body: str, is_mixed: bool) -> None:
    text = f"(float[3] x, float16[3] h, float16[2,3,4] i) => (float y) {{ {body} }}"
    assert found(text) == [("error", "mixed-floats")] * is_mixed
