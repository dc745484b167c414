"""Attention masks: what is proven to only mask is clamped, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.measuring.converted import only
from tests.messages import expect
from truehalf.calibration.ranges_form import ranges_of
from truehalf.conversion.decide import decide
from truehalf.conversion.masks.masks import Masks, find_masks
from truehalf.ir.normalize import NORMALIZE
from truehalf.ir.selectors import Lists

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x, bool[2,4] c, int64[2,4] keep) => (float[2,4] y) '
CONSTANTS = "<float big = {-3.4028235e38}, float zero = {0.0}, float one = {1.0}, float tenk = {-10000.0}> "


def model_of(body: str, **constants: Any) -> ir.Model:
    model = ir.from_onnx_text(HEAD + CONSTANTS + "{ " + body + " }")
    NORMALIZE(model)
    for name, array in constants.items():
        model.graph.initializers[name].const_value = ir.tensor(np.array(array, np.float32), name=name)
    return model


def span(low: float, high: float) -> dict[str, Any]:
    return {"min": low, "max": high, "absmax": max(abs(low), abs(high))}


def masks(body: str, ranges: dict[str, Any] | None = None, **constants: Any) -> Masks:
    return find_masks(model_of(body, **constants), None if ranges is None else ranges_of({"tensors": ranges}))


BIG = ("'big'", "-3.403e+38")


def clamps(found: Masks) -> dict[str, float]:
    return {value.name or "": clamp for value, clamp in found.clamps.items()}


SCORES = {"x": span(-100.0, 100.0)}
ADD = """i = Constant<value_ints = [0]>() m = Where(c, big, zero) u = Unsqueeze(m, i) s = Squeeze(u, i) t = Add(x, s)
    y = Softmax(t)"""
WHERE = "t = Where(c, big, x) u = Identity(t) y = Softmax(u)"


def test_an_added_mask_is_clamped_and_its_path_is_exempt() -> None:
    found = masks(ADD, SCORES)
    assert clamps(found) == {"big": -32768.0}
    assert found.exempt == {"big", "m", "u", "s", "t"}
    (finding,) = found.findings
    expect(finding, None, *BIG, -32768)


def test_minus_infinity_as_well() -> None:
    assert clamps(masks(ADD, SCORES, big=-np.inf)) == {"big": -32768.0}


def test_a_constant_node_as_well() -> None:
    body = "w = Constant<value_float = -1e9>() m = Where(c, w, zero) t = Add(x, m) y = Softmax(t)"
    assert clamps(masks(body, SCORES)) == {"w": -32768.0}


def test_an_array_of_zeros_and_extremes_as_well() -> None:
    body = "t = Add(x, big) y = Softmax(t)"
    assert clamps(masks(body, SCORES, big=[[0, 0, -1e9, -1e9]])) == {"big": -32768.0}


FACTOR = "k = Cast<to = 1>(keep) n = Sub(one, k) m = Mul(n, big) t = Add(x, m) y = Softmax(t)"
ZERO_ONE = {"k": span(0.0, 1.0), "n": span(0.0, 1.0)}


def test_one_minus_mask_times_a_constant_is_clamped() -> None:
    found = masks(FACTOR, SCORES | ZERO_ONE)
    assert clamps(found) == {"big": -32768.0}
    assert found.exempt == {"big", "m", "t"}


@pytest.mark.parametrize("factor", [{}, {"k": span(0.0, 2.0), "n": span(-1.0, 1.0)}])
def test_a_factor_that_may_be_something_else_than_0_or_1(factor: dict[str, Any]) -> None:
    found = masks(FACTOR, SCORES | factor)
    assert (clamps(found), found.exempt) == ({}, set())
    assert found.findings == []
    (refusal,) = found.refused
    expect(refusal, None, *BIG, "'n'", "Mul", "'Mul_m'", 0, 1)


def test_a_factor_between_0_and_1_would_change_what_the_mask_means() -> None:
    body = "n = Sigmoid(x) m = Mul(n, big) t = Add(x, m) y = Softmax(t)"
    assert clamps(masks(body, SCORES | {"n": span(0.0, 1.0)})) == {}


def test_a_where_directly_before_the_softmax_takes_the_minimum_and_needs_no_calibration() -> None:
    assert clamps(masks(WHERE)) == {"big": -65504.0}
    assert masks(WHERE).exempt == {"big", "t", "u"}


@pytest.mark.parametrize(("low", "clamped"), [(-65472.0, True), (-70000.0, False)])
def test_scores_that_may_lie_below_the_minimum_forbid_it(low: float, clamped: bool) -> None:
    found = masks(WHERE, {"x": span(low, 0.0)})
    assert (bool(found.clamps), len(found.refused)) == (clamped, 0 if clamped else 1)
    for refusal in found.refused:
        expect(refusal, None, *BIG, "'Softmax_y'", -70000)


def test_an_added_mask_without_calibration_is_left() -> None:
    found = masks(ADD)
    assert (clamps(found), found.exempt) == ({}, set())
    (refusal,) = found.refused
    expect(refusal, "not-measured", *BIG, "'Softmax_y'")


@pytest.mark.parametrize(
    ("low", "high", "refused"),
    [
        (-31999.0, 0.0, []),
        (-32000.0, 0.0, ["|s| = 32000", 32000]),  # the sum could leave float16
        (-100.0, 32636.0 - 1000.0, []),
        (-16368.0, 16368.0, []),  # span 32736: a masked element is 32 below the smallest other one
        (-16368.0, 16369.0, [32737, 32736]),
    ],
)
def test_how_large_the_scores_may_be(low: float, high: float, refused: list[object]) -> None:
    found = masks(ADD, {"x": span(low, high)})
    assert (bool(found.clamps), len(found.refused)) == (not refused, 1 if refused else 0)
    for refusal in found.refused:
        expect(refusal, None, *BIG, "'Softmax_y'", *refused)


def test_scores_that_are_not_finite_are_not_known() -> None:
    assert clamps(masks(ADD, {"x": span(-1.0, 1.0) | {"neginf": 3}})) == {}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("e = Exp(m) f = ReduceSum(e)", "Exp"),
        ("e = Exp(big)", "Exp"),
        ("e = Greater(x, big)", "Greater"),
        ("e = LogSoftmax(t)", "LogSoftmax"),
        ("e = Sub(x, m)", "Sub"),
        ("e = ReduceMax(t)", "ReduceMax"),
    ],
)
def test_a_constant_with_another_use_is_left(more: str, why: str) -> None:
    found = masks(f"{ADD} {more}", SCORES)
    assert (clamps(found), found.exempt) == ({}, set())
    expect(found.refused[0], None, *BIG, why, f"'{why}_e'")


def test_a_result_that_nobody_reads_is_no_other_use() -> None:
    assert clamps(masks(f"{ADD} e = Add(x, big)", SCORES)) == {"big": -32768.0}


def test_a_mask_that_is_a_graph_output_is_left() -> None:
    found = masks("y = Where(c, big, x) z = Softmax(y)")
    assert clamps(found) == {}
    expect(found.refused[0], None, *BIG, "output 'y'")


def test_a_weight_that_a_caller_may_override_is_left() -> None:
    text = HEAD.replace("int64[2,4] keep", "float big") + "<float big = {-1e9}> { t = Where(c, big, x) y = Softmax(t) }"
    model = ir.from_onnx_text(text)
    NORMALIZE(model)
    assert find_masks(model, None).clamps == {}


GUARD = "n = IsNaN(%s) g = Where(n, zero, p) y = MatMul(g, v)"


@pytest.mark.parametrize(
    ("body", "big", "clamped"),
    [
        ("t = Where(c, big, x) p = Softmax(t) " + GUARD % "p", -np.inf, False),
        ("m = Where(c, big, zero) t = Add(x, m) p = Softmax(t) " + GUARD % "p", -np.inf, False),
        ("t = Where(c, big, x) p = Softmax(t) q = Identity(p) " + GUARD % "q", -np.inf, False),
        ("t = Where(c, big, x) p = Softmax(t) q = MatMul(p, v) n = IsInf(q) y = Where(n, zero, q)", -np.inf, False),
        ("m = Where(c, big, zero) t = Add(x, m) u = Add(t, m) p = Softmax(u) " + GUARD % "p", -3e38, False),
        ("t = Where(c, big, x) p = Softmax(t) " + GUARD % "p", -3e38, True),  # no NaN to look for
        ("t = Where(c, big, x) p = Softmax(t) y = MatMul(p, v)", -np.inf, True),
    ],
)
def test_the_nan_of_a_fully_masked_row_stays_where_somebody_looks_for_it(body: str, big: float, clamped: bool) -> None:
    found = masks("v = Transpose(x) " + body, SCORES, big=big)
    assert (bool(found.clamps), bool(found.refused), bool(found.exempt)) == (clamped, not clamped, clamped)
    for refusal in found.refused:
        expect(refusal, None, "IsInf" if "IsInf" in body else "IsNaN", "'big'", "NaN", "'Softmax_p'")


def test_the_nan_may_leave_a_body() -> None:
    body = """b = Cast<to = 9>(zero) p = If(b) <
        then_branch = a () => (float[2,4] ap) { t = Where(c, big, x) ap = Softmax(t) },
        else_branch = e () => (float[2,4] ep) { ep = Identity(x) }> y = Identity(p) """
    assert clamps(masks(body, big=-np.inf)) == {"big": -65504.0}
    (refusal,) = masks(body + "n = IsNaN(p)", big=-np.inf).refused
    expect(refusal, None, "'big'", "-inf", "IsNaN", "'IsNaN_n'", "'Softmax_ap'")


def test_shape_reads_no_values() -> None:
    assert clamps(masks(WHERE + " n = Shape(t)")) == {"big": -65504.0}


TWO = """m = Where(c, big, zero) d = Not(c) n = Where(d, other, zero) t = Add(x, m) u = Add(t, n) y = Softmax(u)"""


def test_masks_that_add_up_share_the_room() -> None:
    body = TWO.replace("d = Not", "other = Constant<value_float = -1e9>() d = Not")
    assert clamps(masks(body, SCORES)) == {"big": -16384.0, "other": -16384.0}
    assert clamps(masks(body, {"x": span(-8000.0, 8353.0)})) == {}  # 16353 > 16384 - 32


def test_a_constant_that_meets_one_that_is_left_is_left_too() -> None:
    body = TWO.replace("d = Not", "other = Constant<value_float = -1e9>() d = Not") + " e = Exp(other)"
    found = masks(body, SCORES)
    assert (clamps(found), found.exempt) == ({}, set())


def test_a_constant_is_left_that_meets_one_that_is_left_by_way_of_a_third() -> None:
    body = """other = Constant<value_float = -1e9>() third = Constant<value_float = -1e8>() d = Not(c)
        m = Where(c, big, zero) n = Where(d, other, zero) o = Where(c, third, zero) e = Exp(third)
        p = Add(x, m) q = Add(p, n) y = Softmax(q) r = Add(x, n) s = Add(r, o) z = Softmax(s)"""
    found = masks(body, SCORES)
    assert (clamps(found), found.exempt) == ({}, set())


def test_a_where_with_something_added_behind_it_counts_as_added() -> None:
    body = "t = Where(c, big, x) u = Add(t, one) y = Softmax(u)"
    assert clamps(masks(body, SCORES)) == {"big": -32768.0}
    assert clamps(masks(body)) == {}


def test_one_constant_in_both_places_takes_the_level_that_suits_both() -> None:
    body = "t = Where(c, big, x) y = Softmax(t) m = Where(c, big, zero) u = Add(x, m) z = Softmax(u)"
    assert clamps(masks(body, SCORES)) == {"big": -32768.0}


def test_masks_that_float16_holds_are_tolerated_as_they_are() -> None:
    found = masks("m = Where(c, tenk, zero) t = Add(x, m) y = Softmax(t)", SCORES)
    assert (clamps(found), found.exempt, found.tolerated) == ({}, set(), {"tenk", "m", "t"})


def test_a_max_with_the_minimum_behind_the_sum() -> None:
    body = "m = Where(c, tenk, zero) t = Add(x, m) u = Max(t, big) y = Softmax(u)"
    assert clamps(masks(body, SCORES)) == {"big": -32768.0}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float32) - x.max(axis=-1, keepdims=True).astype(np.float32))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("low", "high"), [(-31999.0, 700.0), (-16368.0, 16368.0), (-5.0, 5.0)])
def test_float16_sums_stay_finite_and_masked_elements_vanish(low: float, high: float) -> None:
    """What the bounds promise, in numpy's float16: the worst scores, a masked row and a row that is masked all over."""
    scores = np.array([[high, low, high, low], [low, high, low, high]], np.float16)
    mask = np.array([[-32768.0, 0, -32768.0, -32768.0], [-32768.0] * 4], np.float16)
    total = scores + mask
    assert np.isfinite(total).all()
    assert softmax(total)[0].tolist() == pytest.approx([0, 1, 0, 0], abs=2**-20)
    assert softmax(total)[1].sum() == pytest.approx(1)


def test_decide_takes_masks_out_of_the_range_rules() -> None:
    model = model_of(ADD)
    ranges = ranges_of({"tensors": SCORES | {name: span(-3.4e38, 0.0) for name in ("m", "u", "s", "t")}})
    rules = only(masks=True, data_max=512.0, init_max=65504.0)
    found = decide(model, ranges, rules)
    assert {decision.rule for decision in found.nodes.values()} == {"none"}
    assert {value.name: clamp for value, clamp in found.clamps.items()} == {"big": -32768.0}
    (finding,) = found.masks
    expect(finding, None, *BIG, -32768)
    assert found.warnings == []
    for other in (only(data_max=512.0, init_max=65504.0), only(masks=True, rules="autocast", data_max=512.0)):
        found = decide(model, ranges, other)
        assert {d.rule for d in found.nodes.values()} <= {"overflow", "data_max"}
        assert found.clamps == {}


def test_decide_tolerates_small_masks_in_data_max_and_init_max_alone() -> None:
    model = model_of("m = Where(c, tenk, zero) t = Add(x, m) y = Softmax(t)")
    ranges = ranges_of({"tensors": SCORES | {"m": span(-10000.0, 0.0), "t": span(-10100.0, 100.0)}})
    rules = only(masks=True, data_max=512.0, init_max=512.0)
    assert {d.rule for d in decide(model, ranges, rules).nodes.values()} == {"none"}
    doubled = only(masks=True, safety_factor=10.0, block=Lists())
    assert {d.rule for d in decide(model, ranges, doubled).nodes.values()} == {"overflow"}


def test_decide_warns_of_what_float16_does_not_hold_and_is_no_mask() -> None:
    found = decide(model_of(ADD), None, only(masks=True))
    assert (found.masks, found.clamps) == ([], {})
    (warning,) = found.warnings
    expect(warning, "not-measured", *BIG, "'Softmax_y'")
