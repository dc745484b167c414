"""NaN and Inf: candidates, unless they only mask."""

from __future__ import annotations

from typing import Any

import pytest

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge, rules_by_node

INF = {"absmax": 1.0, "nonfinite": 3, "sample": "s"}
FINE = {"absmax": 1.0, "nonfinite": 0}
HEAD = "(float[2,4] x, bool[2,4] c) => (float[2,4] y) <float zero = {0.0}> "


def test_who_writes_and_who_reads_is_a_candidate() -> None:
    text = HEAD + "{ [log] a = Log(x) [exp] b = Exp(a) [end] y = Relu(b) }"
    found = judge(text, {"a": INF, "b": FINE})
    assert {name: d.rule for name, d in found.items()} == {"log": "nonfinite", "exp": "nonfinite", "end": "none"}
    assert (found["log"].value, found["log"].tensor, found["log"].sample) == (3.0, "a", "s")
    expect(found["log"].reason, None, "'a'", "NaN or Inf", 3)
    assert set(rules_by_node(text, {"a": INF, "b": FINE}, rules="autocast").values()) == {"none"}


@pytest.mark.parametrize(
    "body",
    [
        "b = Add(x, a) d = Reshape(b, s) e = Softmax(d) y = Reshape(e, s)",
        "b = Where(c, a, zero) d = Add(b, x) y = Softmax(d)",
        "b = Greater(a, x) y = Where(b, x, zero)",
        "b = IsInf(a) y = Where(b, x, zero)",
        "y = Max(a, x)",
        "y = Clip(a, zero)",
        "y = Where(c, x, a)",
    ],
)
def test_inf_that_only_masks_is_legitimate(body: str) -> None:
    text = HEAD.replace("<float", "<int64[2] s = {2, 4}, float") + f"{{ [log] a = Log(x) {body} }}"
    tensors = {"a": INF, "y": FINE} | {name: INF for name in "bd" if "Softmax" in body}
    assert set(rules_by_node(text, tensors).values()) <= {"none", "no_fp16_kernel"}


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("b = Add(x, a) y = Softmax(b)", {"b": INF, "y": FINE | {"nonfinite": 4}}),  # a row that was masked all over
        ("y = Max(a, x)", {"y": FINE | {"nonfinite": 1}}),  # not chosen away
        ("b = Add(x, a) y = Softmax(b) d = Exp(b)", {"b": INF, "y": FINE}),  # somebody else reads it
        ("y = Add(x, a)", {"y": INF}),  # an output
    ],
)
def test_other_inf_is_not(body: str, more: dict[str, Any]) -> None:
    found = rules_by_node(HEAD + f"{{ [log] a = Log(x) {body} }}", {"a": INF} | more)
    assert found["log"] == "nonfinite"


def test_inf_in_a_graph_input() -> None:
    text = "(float[2,4] x, float[2,4] m) => (float[2,4] y) { [add] a = Add(x, m) [soft] y = Softmax(a) }"
    assert set(rules_by_node(text, {"m": INF, "a": INF, "y": FINE}).values()) == {"none"}
    assert set(rules_by_node(text.replace("Softmax", "Relu"), {"m": INF, "a": INF}).values()) == {"nonfinite"}
