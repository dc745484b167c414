"""Attention masks: a constant that only masks is clamped and judged by no range, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.measuring.converted import only
from tests.messages import expect
from truehalf.calibration.ranges_form import read_ranges
from truehalf.conversion.decide import decide
from truehalf.conversion.masks import LEVEL, Masks, find_masks
from truehalf.ir.normalize import NORMALIZE

HEAD = '<ir_version: 8, opset_import: ["": %d]> g (float[2,4] x, bool[2,4] c, int64[2,4] keep) => (float[2,4] y) '
CONSTANTS = "<float big = {-3.4028235e38}, float zero = {0.0}, float one = {1.0}, float tenk = {-10000.0}> "
BIG = ("'big'", "-3.403e+38")

ADD = """i = Constant<value_ints = [0]>() m = Where(c, big, zero) u = Unsqueeze(m, i) s = Squeeze(u, i) t = Add(x, s)
    y = Softmax(t)"""
WHERE = "t = Where(c, big, x) u = Identity(t) y = Softmax(u)"
FACTOR = "k = Cast<to = 1>(keep) n = Sub(one, k) m = Mul(n, big) t = Add(x, m) y = Softmax(t)"
ATTENTION = """i = Constant<value_ints = [0, 1]>() q = Unsqueeze(x, i) e = Constant<value_ints = [2, 2]>()
    s = Slice(c, i, e) m = Where(s, big, zero) p = Attention(q, q, q, m) y = Squeeze(p, i)"""


def model_of(body: str, opset: int = 17, **constants: Any) -> ir.Model:
    model = ir.from_onnx_text(HEAD % opset + CONSTANTS + "{ " + body + " }")
    NORMALIZE(model)
    for name, array in constants.items():
        model.graph.initializers[name].const_value = ir.tensor(np.array(array, np.float32), name=name)
    return model


def span(low: float, high: float) -> dict[str, Any]:
    return {"min": low, "max": high, "absmax": max(abs(low), abs(high))}


def masks(body: str, ranges: dict[str, Any] | None = None, **constants: Any) -> Masks:
    opset = 23 if "Attention" in body else 17
    return find_masks(model_of(body, opset, **constants), None if ranges is None else read_ranges({"tensors": ranges}))


def clamped(found: Masks) -> set[str]:
    return {value.name or "" for value in found.clamped}


@pytest.mark.parametrize(
    ("body", "constants", "tensors"),
    [
        (ADD, {}, {"big", "m", "u", "s", "t"}),
        (
            ADD.replace("big", "w").replace("i =", "w = Constant<value_float = -1e9>() i ="),
            {},
            {"w", "m", "u", "s", "t"},
        ),
        ("t = Add(x, big) y = Softmax(t)", {"big": [[0, 0, -1e9, -1e9]]}, {"big", "t"}),
        (FACTOR, {}, {"big", "m", "t"}),
        (WHERE, {}, {"big", "t", "u"}),
        (WHERE + " n = Shape(t)", {}, {"big", "t", "u"}),
        (ATTENTION, {}, {"big", "m"}),
        ("m = Where(c, tenk, zero) t = Add(x, m) u = Max(t, big) y = Softmax(u)", {}, {"big", "tenk", "m", "t", "u"}),
    ],
    ids=["added", "node", "array", "factor", "chosen", "shape", "attention", "max"],
)
def test_what_only_masks_is_clamped_and_judged_by_no_range(
    body: str, constants: dict[str, Any], tensors: set[str]
) -> None:
    found = masks(body, **constants)
    assert (clamped(found), found.tensors, found.refused) == (tensors & {"big", "w"}, tensors, [])


@pytest.mark.parametrize(("constant", "is_clamped"), [(-np.inf, False), (-10000.0, False), (-30000.0, True)])
def test_what_float16_holds_stays(constant: float, is_clamped: bool) -> None:
    found = masks(ADD, big=constant)
    assert (bool(clamped(found)), found.tensors) == (is_clamped, {"big", "m", "u", "s", "t"})


def test_an_ordinary_constant_is_no_mask() -> None:
    assert masks(ADD, big=-100.0).tensors == set()


@pytest.mark.parametrize(("low", "high", "masks_it"), [(0.0, 1.0, True), (0.0, 2.0, False), (-1.0, 0.0, False)])
def test_a_factor_lies_between_0_and_1(low: float, high: float, masks_it: bool) -> None:
    found = masks(FACTOR, {"n": span(low, high)})
    assert bool(found.tensors) == masks_it
    for refusal in found.refused:
        expect(refusal, None, *BIG, "'Mul_m'")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("e = Exp(m) f = ReduceSum(e)", "Exp"),
        ("e = Greater(x, big)", "Greater"),
        ("e = LogSoftmax(t)", "LogSoftmax"),
        ("e = Sub(x, m)", "Sub"),
        ("e = ReduceMax(t)", "ReduceMax"),
    ],
)
def test_a_constant_with_another_use_is_left(more: str, why: str) -> None:
    found = masks(f"{ADD} {more}")
    assert (found.clamped, found.tensors) == ([], set())
    expect(found.refused[0], None, *BIG, why, f"'{why}_e'")


def test_a_mask_that_is_an_output_is_left() -> None:
    found = masks("y = Where(c, big, x) z = Softmax(y)")
    assert found.clamped == []
    expect(found.refused[0], None, *BIG, "output 'y'")


def test_a_constant_that_a_caller_may_override_is_left() -> None:
    head = HEAD.replace("int64[2,4] keep", "float big") % 17
    model = ir.from_onnx_text(head + "<float big = {-1e9}> { t = Where(c, big, x) y = Softmax(t) }")
    NORMALIZE(model)
    assert find_masks(model, None).tensors == set()


def test_ranges_judge_where_a_mask_meets_a_constant_that_is_none() -> None:
    body = """other = Constant<value_float = -1e9>() m = Where(c, big, zero) d = Not(c) n = Where(d, other, zero)
        t = Add(x, m) u = Add(t, n) y = Softmax(u) e = Exp(other)"""
    found = masks(body)
    assert (clamped(found), found.tensors, len(found.refused)) == ({"big"}, {"big", "m", "t"}, 1)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float32) - x.max(axis=-1, keepdims=True).astype(np.float32))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("low", "high"), [(-15600.0, 700.0), (-8000.0, 8000.0), (-5.0, 5.0)])
def test_three_masks_and_a_score_stay_finite_and_a_masked_element_vanishes(low: float, high: float) -> None:
    """The level's two promises, in numpy's float16, also for a row that is masked all over."""
    scores = np.array([[high, low, high, low], [low, high, low, high]], np.float16)
    one = np.array([[LEVEL, 0, LEVEL, LEVEL], [LEVEL] * 4], np.float16)
    assert softmax(scores + one)[0].tolist() == pytest.approx([0, 1, 0, 0], abs=2**-20)
    three = scores + one + one + one
    assert np.isfinite(three).all()
    assert softmax(three)[1].sum() == pytest.approx(1)


def test_decide_takes_masks_out_of_the_range_rules() -> None:
    model = model_of(ADD)
    ranges = read_ranges(
        {"tensors": {"x": span(-1.0, 1.0)} | {name: span(-3.4e38, 0.0) for name in ("m", "u", "s", "t")}}
    )
    found = decide(model, ranges, only(masks=True, data_max=512.0, init_max=65504.0))
    assert {decision.rule for decision in found.nodes.values()} == {"none"}
    assert ([value.name for value in found.masks], found.warnings) == (["big"], [])
    for other in (only(data_max=512.0, init_max=65504.0), only(masks=True, rules="autocast", data_max=512.0)):
        found = decide(model, ranges, other)
        assert {d.rule for d in found.nodes.values()} <= {"overflow", "data_max"}
        assert found.masks == []


def test_decide_warns_of_what_float16_does_not_hold_and_is_no_mask() -> None:
    found = decide(model_of(f"{ADD} e = Exp(big)"), None, only(masks=True))
    assert found.masks == []
    (warning,) = found.warnings
    expect(warning, None, *BIG, "'Exp_e'")
