"""Sizes and positions that are computed from data."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import found, only

CONSTANTS = """<int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] second = {1}, float half = {0.5},
    int64[1] three = {3}, int64[1] axis = {0}, int64[2] heads = {2, -1}>"""


def of(body: str, inputs: str = "float[N] x, int64[N] k", result: str = "float[A] y") -> list[tuple[str, str]]:
    return found(f"({inputs}) => ({result}) {CONSTANTS} {{ {body} }}")


POSITIONS = "p = NonZero(m) t = Transpose(p) y = GatherND(x, t)"


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        ("m = Greater(x, half)", "nonzero-threshold"),
        ("a = Greater(x, half) b = Greater(k, one) m = And(a, b)", "nonzero-threshold"),
        ("m = Equal(k, one)", "bool-index"),
        ("e = Equal(k, one) m = Cast<to = 7>(e)", "bool-index"),
    ],
)
def test_positions_of_a_mask(mask: str, rule: str) -> None:
    rules = [found for found in of(f"{mask} {POSITIONS}") if found[1] != "bool-arithmetic"]
    assert rules == [("warning", rule)]


def test_a_boolean_input() -> None:
    inputs = "float[N] x, bool[N] m"
    assert of(POSITIONS, inputs) == [("warning", "bool-index")]


@pytest.mark.parametrize(
    "body",
    [
        "e = Equal(k, one) p = NonZero(e) s = Shape(p) n = Gather(s, one) r = Range(zero, n, one) y = Cast<to = 1>(r)",
        "c = Greater(half, half) p = NonZero(c) z = Cast<to = 1>(p) y = Squeeze(z, axis)",  # of constants
    ],
    ids=["counted", "constants"],
)
def test_no_positions_of_a_mask(body: str) -> None:
    assert of(body) == []


@pytest.mark.parametrize(
    "mask",
    [
        "m = Identity(k)",
        "m = Identity(x)",
        "e = Equal(k, one) c = Cast<to = 7>(e) s = Shape(x) n = Squeeze(s, axis) r = Range(zero, n, one) m = Mul(c, r)",
    ],
    ids=["integers", "floats", "a mask times places"],
)
def test_positions_of_numbers(mask: str) -> None:
    assert of(f"{mask} {POSITIONS}") == [("warning", "data-dependent-size")]
    assert of(f"{mask} p = NonZero(m) y = Shape(p)", result="int64[2] y") == []


def test_boxes_that_do_not_overlap() -> None:
    inputs = "float[N,100,4] b, float[N,1,100] s"
    kept = "i = NonMaxSuppression(b, s, three)"
    assert of(f"{kept} y = Cast<to = 1>(i)", inputs) == [("info", "data-dependent-size")]
    assert of(f"{kept} z = Shape(i) y = Cast<to = 1>(z)", inputs) == []


def test_positions_as_an_output() -> None:
    assert of("e = Equal(k, one) y = NonZero(e)", result="int64[1,A] y") == [("warning", "bool-index")]


@pytest.mark.parametrize(
    ("limit", "rules"),
    [
        ("e = Cast<to = 9>(k) f = Cast<to = 7>(e) n = ReduceSum<keepdims = 0>(f)", ["range-of-execution-tensor"]),
        ("n = ReduceMax<keepdims = 0>(k)", ["range-of-execution-tensor"]),
        ("s = Shape(x) n = Gather(s, zero)", []),
        ("n = Identity(one)", []),
        ("n = Identity(count)", []),  # a shape-tensor input
    ],
)
def test_range(limit: str, rules: list[str]) -> None:
    inputs = "float[N] x, int64[N] k, int64 count"
    got = of(f"{limit} r = Range(zero, n, one) y = Cast<to = 1>(r)", inputs)
    assert [rule for _, rule in got] == rules


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("e = ReduceMax<axes = [0]>(k)", [("warning", "dynamic-slice")]),
        ("e = Identity(count)", [("info", "dynamic-slice")]),
        ("s = Shape(x) e = Add(s, second)", []),
        ("e = Identity(three)", []),
    ],
)
def test_slice(end: str, expected: list[tuple[str, str]]) -> None:
    assert of(f"{end} y = Slice(x, first, e)", "float[N] x, int64[N] k, int64[1] count") == expected


def test_a_slice_by_the_round_of_a_loop() -> None:
    """Whether TensorRT has that number on the host is not documented: no error."""
    text = f"""
    (float[N,3] x, float[1,3] z) => (float[1,3] y) {CONSTANTS} {{
        s = Shape(x) n = Gather(s, zero) on = Constant<value = bool {{1}}> ()
        y = Loop(n, on, z) <body = l (int64 i, bool c, float[1,3] a) => (bool c2, float[1,3] b)
            {{ c2 = Identity(c) e = Add(i, one) p = Unsqueeze(i, first) q = Unsqueeze(e, first)
               r = Slice(x, p, q, first) b = Add(a, r) }}>
    }}
    """
    finding = only(text)
    assert (finding.rule, finding.severity) == ("dynamic-slice", "warning")
    expect(finding.message, None, "loop", "round")
    expect(finding.remedy, None, "index_select")


EMPTY = "p = NonZero(k) t = Transpose(p) i = Squeeze(t, second) z = Gather(x, i)"
SIZED = "s = Shape(z) n = Gather(s, first) f = Concat<axis = 0>(n, second)"


def test_reshape_of_what_may_be_empty() -> None:
    findings = of(f"{EMPTY} {SIZED} y = Reshape(z, f)", result="float[A,B] y")
    assert findings == [("warning", "data-dependent-size"), ("warning", "reshape-allowzero")]


@pytest.mark.parametrize(
    "body",
    [
        f"{EMPTY} {SIZED} y = Reshape<allowzero = 1>(z, f)",
        f"{EMPTY} y = Reshape(z, heads)",
        "s = Shape(x) f = Concat<axis = 0>(s, second) y = Reshape(x, f)",
    ],
    ids=["allowzero", "inferred", "never empty"],
)
def test_reshape_that_is_safe(body: str) -> None:
    assert "reshape-allowzero" not in {rule for _, rule in of(body, result="float[A,B] y")}


KEPT = "p = NonZero(k) t = Transpose(p) i = Squeeze(t, second) z = Gather(x, i)"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (f"{KEPT} y = Gather<axis = 0>(z, zero)", True),
        (f"{KEPT} y = Gather<axis = -2>(z, zero)", True),
        (f"{KEPT} y = ScatterND(z, t, z)", True),
        (f"{KEPT} y = ScatterElements(z, t, z)", True),
        (f"{KEPT} y = Gather<axis = 1>(z, zero)", False),  # a channel, which is there
        (f"{KEPT} y = Gather<axis = 0>(z, i)", False),
        ("y = Gather<axis = 0>(x, zero)", False),
        (f"{KEPT} y = ScatterND(x, t, z)", False),
    ],
)
def test_what_may_be_empty(body: str, found: bool) -> None:
    rules = of(body, "float[N,8] x, int64[N] k", "float[A,B] y")
    assert (("info", "may-be-empty") in rules) is found


def test_the_message_names_a_way_out() -> None:
    text = f"(float[N] x, int64[N] k) => (float[A] y) {CONSTANTS} {{ m = Greater(x, half) {POSITIONS} }}"
    finding = only(text)
    assert finding.link == "truehalf lint --explain nonzero-threshold"
    expect(finding.remedy, None, "torch.topk")


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        ("m = ReduceMax<keepdims = 0>(k) c = Reshape(m, second)", [("warning", "dynamic-topk")]),
        ("c = Identity(count)", [("warning", "dynamic-topk")]),
        ("c = Shape(x)", []),  # torch.sort
        ("s = Shape(x) c = Div(s, three)", []),
        ("c = Identity(three)", []),
    ],
)
def test_topk(k: str, expected: list[tuple[str, str]]) -> None:
    assert of(f"{k} y, i = TopK(x, c)", "float[N] x, int64[N] k, int64[1] count") == expected
