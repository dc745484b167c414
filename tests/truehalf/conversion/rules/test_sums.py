"""Sums inside nodes."""

from __future__ import annotations

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge

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
