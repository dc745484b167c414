"""Numbers held against float16 or an option: ranges, inner sums, terms; what nobody measured."""

from __future__ import annotations

from typing import Any

import pytest

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge, rules_by_node
from truehalf.conversion.rules.base import Decision, Verdict
from truehalf.ir.selectors import Lists

CHAIN = "(float[2] x) => (float[2] y) { [p] a = Relu(x) [q] b = Neg(a) [r] y = Relu(b) }"


def test_overflow_pins_who_writes_and_who_reads_with_the_numbers() -> None:
    found = judge(CHAIN, {"a": {"absmax": 40000.0, "sample": "s7"}}, safety_factor=2.0)
    assert {name: decision.rule for name, decision in found.items()} == {"p": "overflow", "q": "overflow", "r": "none"}
    expect(found["q"].reason, None, "'a'", "4e+04", "safety_factor 2", 65504, "s7")
    assert found["q"] == Decision(
        Verdict.fp32,
        "overflow",
        found["q"].reason,
        value=40000.0,
        threshold=65504.0,
        tensor="a",
        sample="s7",
    )


@pytest.mark.parametrize(
    ("absmax", "factor", "rule"), [(65504.0, 1, "none"), (65505.0, 1, "overflow"), (32752.0, 2, "none")]
)
def test_the_bound_of_overflow(absmax: float, factor: float, rule: str) -> None:
    assert rules_by_node(CHAIN, {"a": {"absmax": absmax}}, safety_factor=factor)["p"] == rule


def test_no_include_list_overrides_overflow_but_autocast_knows_no_overflow() -> None:
    include = Lists(node=("p",))
    assert rules_by_node(CHAIN, {"a": {"absmax": 1e6}}, include=include)["p"] == "overflow"
    found = rules_by_node(CHAIN, {"a": {"absmax": 1e6}}, include=include, rules="autocast", data_max=512.0)
    assert found == {"p": "node_include_list", "q": "data_max", "r": "none"}


def test_overflow_pins_readers_in_bodies() -> None:
    text = """(float[2] x, bool c) => (float[2] y) { [w] a = Relu(x) [if] y = If(c) <
        then_branch = t () => (float[2] ty) { [then] ty = Neg(a) },
        else_branch = e () => (float[2] ey) { [else] ey = Exp(x) }> }"""
    found = rules_by_node(text, {"x": {"absmax": 1.0}, "a": {"absmax": 1e6}, "y": {"absmax": 1.0}})
    assert found == {"w": "overflow", "if": "none", "then": "overflow", "else": "unmeasured"}


BODY = """(float[2,2] x, bool c) => (float[2,2] y) <float[2,2] w = {10000.5, 0, 0, 0}, float[2,2] v = {10, 0, 0, 0}> {
    [if] y = If(c) <
        then_branch = t () => (float[2,2] ty) {
            [move] m = Transpose(x) [first] a = MatMul(m, w) [second] ty = MatMul(a, v) },
        else_branch = e () => (float[2,2] ey) { [only] ey = Identity(x) }> }"""


def test_what_a_body_computes_has_no_range_though_what_it_captures_has() -> None:
    found = judge(BODY, {"x": {"absmax": 9.0}, "y": {"absmax": 9.0}})
    rules = {name: decision.rule for name, decision in found.items()}
    assert rules == {"if": "none", "move": "none", "first": "unmeasured", "second": "unmeasured", "only": "none"}
    assert found["first"].tensor == "a"
    expect(found["first"].reason, None, "'a'")
    assert set(rules_by_node(BODY).values()) == {"none"}


def test_ranges_of_what_is_in_a_body_may_be_given() -> None:
    ranges = {name: {"absmax": 9.0} for name in ("x", "a", "ty", "y")}
    assert set(rules_by_node(BODY, ranges).values()) == {"none"}


def test_data_max_pins_with_the_numbers() -> None:
    found = judge(CHAIN, {"a": {"absmax": 600.0, "sample": "s"}}, data_max=512.0)["p"]
    assert (found.rule, found.value, found.threshold, found.tensor, found.sample) == (
        "data_max",
        600.0,
        512.0,
        "a",
        "s",
    )
    expect(found.reason, None, "'a'", 600, "data_max 512", "s")
    assert rules_by_node(CHAIN, {"a": {"absmax": 512.0}}, data_max=512.0)["p"] == "none"


def test_outputs_that_stay_float32_anyway_are_not_judged() -> None:
    text = """(float[2,4] x) => (float[2,4] y) <float[4] s = {1.0, 1.0, 1.0, 1.0}>
        { [norm] y, mean = LayerNormalization(x, s) }"""
    assert rules_by_node(text, {"mean": {"absmax": 1e6}}, data_max=512.0) == {"norm": "none"}


def test_ranges_may_be_bare() -> None:
    tensors: Any = {"x": {"absmax": None}, "a": {"absmax": None}, "y": {"absmax": 0.5}}
    options = {"data_max": 1.0, "epsilons": True, "masks": True, "inner_rule": True}
    assert set(rules_by_node(CHAIN, tensors, **options).values()) == {"none"}


# --- sums inside nodes ------------------------------------------------------------------------------------------------

TEXT = "(float[2,4] x) => (float[2,1] y) { [mean] y = ReduceMean<axes = [1]>(x) }"
QUANTITY = "mean_square"
ENTRY = {"quantity": QUANTITY, "value": 40000.0, "sample": "s3"}


def test_an_inner_sum_is_held_against_float16s_largest() -> None:
    found = judge(TEXT, inner={"mean": ENTRY}, inner_rule=True)["mean"]
    assert found.rule == "none"  # 40000 < 65504
    found = judge(TEXT, inner={"mean": ENTRY}, inner_rule=True, safety_factor=2.0)["mean"]
    expect(found.reason, None, QUANTITY.replace("_", " "), "ReduceMean", "4e+04", "safety_factor 2", 65504, "s3")
    assert (found.rule, found.value, found.threshold, found.sample) == ("inner", 40000.0, 65504.0, "s3")


def test_it_can_be_off_and_says_nothing_without_numbers() -> None:
    assert judge(TEXT, inner={"mean": ENTRY}, safety_factor=2.0)["mean"].rule == "none"
    assert judge(TEXT, inner_rule=True)["mean"].rule == "none"
    assert judge(TEXT, inner={"mean": {"value": None}}, inner_rule=True)["mean"].rule == "none"


DEEP = "(float[2,640] x, float[640,3] w) => (float[2,3] y) { [mul] a = MatMul(x, w) [soft] y = Softmax(a) }"


def test_deep_reductions_are_candidates() -> None:
    found = judge(DEEP, reduction_depth_max=639)
    expect(found["mul"].reason, None, "MatMul", 640, "reduction_depth_max", 639)
    assert (found["mul"].value, found["mul"].threshold) == (640.0, 639.0)
    assert (found["mul"].rule, found["soft"].rule) == ("reduction_depth", "none")


def test_softmax_counts_and_none_is_off() -> None:
    assert {name: d.rule for name, d in judge(DEEP, reduction_depth_max=2).items()} == {
        "mul": "reduction_depth",
        "soft": "reduction_depth",
    }
    assert {d.rule for d in judge(DEEP, reduction_depth_max=640).values()} == {"none"}
    assert {d.rule for d in judge(DEEP).values()} == {"none"}
