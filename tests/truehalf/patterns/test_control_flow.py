"""Branches and loops."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import found, only


def squeezed(condition: str, passed: str = "x", axes: str = "one") -> str:
    return f"""
    (float[N,F,3] x, float[N,F,3] w) => (float[A,B,C] y) <int64 i = {{1}}, int64[1] one = {{1}}, bool yes = {{1}}> {{
        s = Shape(x) n = Gather(s, i) c = Equal(n, i)
        y = If({condition}) <then_branch = t () => (float[N,3] a) {{ a = Squeeze(x, {axes}) }},
            else_branch = e () => (float[N,F,3] b) {{ b = Identity({passed}) }}>
    }}
    """


def test_a_squeeze_of_unknown_size() -> None:
    finding = only(squeezed("c"))
    assert (finding.rule, finding.severity, finding.op_type) == ("if-from-squeeze", "error", "If")
    assert finding.node == "If_y"


def test_another_if_of_two_ranks_is_no_squeeze() -> None:
    assert found(squeezed("c", passed="w")) == [("error", "data-dependent-if")]


def test_a_constant_condition_is_no_finding() -> None:
    assert found(squeezed("yes")) == []


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("passed", ["x", "w"])
def test_a_condition_that_fixed_sizes_decide_is_no_finding(size: int, passed: str) -> None:
    """A squeeze of an axis whose size the file states, and another If of two ranks."""
    assert found(squeezed("c", passed=passed).replace("N,F,3", f"N,{size},3")) == []


TILE = """
(float[4] x) => (float[A] y) <int64[1] two = {2}, int64[1] one = {1}, bool c = {1}> {
    SIZE
    z = Tile(x, r)
    y = Cos(z)
}
"""
SIZE_IF = """q = If(k) <then_branch = t () => (int64[A] a) { a = Concat<axis = 0>(one, two) },
    else_branch = e () => (int64[B] b) { b = Identity(two) }>
    r = Cast<to = 7>(q)"""


def test_tile_behind_if() -> None:
    text = TILE.replace("SIZE", "n = Size(x) k = Greater(n, two) " + SIZE_IF)
    assert found(text) == [("info", "rope-tile")]  # the If is part of it, and no finding of its own
    assert found(text, tensorrt="10.3") == [("error", "rope-tile")]


def test_tile_behind_an_if_that_fixed_sizes_decide() -> None:
    """As torch.tile is exported where sizes are fixed; users report that TensorRT refuses it as it stands."""
    text = TILE.replace("SIZE", "n = Size(x) m = Cast<to = 7>(n) k = Greater(m, two) " + SIZE_IF)
    assert found(text) == [("info", "rope-tile")]


def test_tile_alone() -> None:
    assert found(TILE.replace("SIZE", "r = Identity(two)")) == []


def branching(condition: str, otherwise: str = "Neg(x)") -> str:
    return f"""
    (float[N,4] x, bool flag) => (float[N,4] y) <float zero = {{0}}, int64[1] two = {{2}}, int64[1] first = {{0}}> {{
        {condition}
        y = If(c) <then_branch = t () => (float[N,4] a) {{ a = Relu(x) }},
            else_branch = e () => (float[N,4] b) {{ b = {otherwise} }}>
    }}
    """


@pytest.mark.parametrize(
    "condition",
    [
        "m = ReduceMax<keepdims = 0>(x) c = Less(m, zero)",
        "c = Identity(flag)",
        "s = Shape(x) n = Gather(s, first) d = Greater(n, two) c = Squeeze(d, first)",
    ],
)
def test_a_condition_that_varies(condition: str) -> None:
    finding = only(branching(condition))
    assert (finding.rule, finding.severity) == ("data-dependent-if", "warning")


def test_a_condition_that_folds_is_no_finding() -> None:
    fixed = "s = Shape<start = 1>(x) d = Greater(s, two) c = Squeeze(d, first)"
    assert found(branching(fixed)) == []


def loop(count: str, body: str, scan: str = "", results: str = "y") -> str:
    return f"""
    (float[N,4] x, int64[N] rounds, int64 n) => (float[N,4] y) <int64 four = {{4}}, bool on = {{1}}, int64 i = {{0}}> {{
        m = ReduceMax<keepdims = 0>(rounds)
        s = Shape(x) d = Gather(s, i)
        {results} = Loop({count}, on, x) <body = l (int64 k, bool c, float[N,4] a) => (bool c2, float[N,4] b{scan})
            {{ {body} }}>
    }}
    """


STEP = "c2 = Identity(c) b = Relu(a)"


def test_a_trip_count_from_data() -> None:
    finding = only(loop("m", STEP))
    assert (finding.rule, finding.severity) == ("data-dependent-loop", "warning")
    expect(finding.message, None, "count")


def test_a_trip_count_from_data_that_stacks() -> None:
    text = loop("m", STEP + " e = Neg(a)", ", float[N,4] e", "y, z")
    assert found(text) == [("warning", "data-dependent-loop")]


def test_an_input_as_trip_count() -> None:
    assert found(loop("n", STEP)) == [("warning", "data-dependent-loop")]


def test_a_condition_from_data() -> None:
    text = loop("four", "z = ReduceSum<keepdims = 0>(a) c2 = Cast<to = 9>(z) b = Relu(a)")
    finding = only(text)
    assert finding.rule == "data-dependent-loop"
    expect(finding.message, None, "condition")


@pytest.mark.parametrize("count", ["four", "d"])
def test_a_fixed_count_and_a_size_are_no_finding(count: str) -> None:
    assert found(loop(count, STEP)) == []
