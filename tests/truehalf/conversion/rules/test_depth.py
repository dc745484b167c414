"""Depth of reduction against its bound."""

from __future__ import annotations

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge

TEXT = "(float[2,640] x, float[640,3] w) => (float[2,3] y) { [mul] a = MatMul(x, w) [soft] y = Softmax(a) }"


def test_deep_reductions_are_candidates() -> None:
    found = judge(TEXT, reduction_depth_max=639)
    expect(found["mul"].reason, None, "MatMul", 640, "reduction_depth_max", 639)
    assert (found["mul"].value, found["mul"].threshold) == (640.0, 639.0)
    assert (found["mul"].rule, found["soft"].rule) == ("reduction_depth", "none")


def test_softmax_counts_and_none_is_off() -> None:
    assert {name: d.rule for name, d in judge(TEXT, reduction_depth_max=2).items()} == {
        "mul": "reduction_depth",
        "soft": "reduction_depth",
    }
    assert {d.rule for d in judge(TEXT, reduction_depth_max=640).values()} == {"none"}
    assert {d.rule for d in judge(TEXT).values()} == {"none"}
