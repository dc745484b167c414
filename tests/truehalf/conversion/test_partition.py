"""Placing: the minimum cut is the cheapest of all assignments, and stays so where capacities are scaled."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from truehalf.conversion.partition import CAST, Assignment, Link, Problem, Weight, cost, eager, min_cut
from truehalf.conversion.ports import FP16, FP32, End

NODES = [ir.node("Relu", [None], name=f"n{i}") for i in range(7)]


def cheapest(problem: Problem) -> int:
    """By trying all assignments."""
    free = list(problem.fp32)
    assignments = (
        problem.fixed | dict(zip(free, types, strict=True))
        for types in itertools.product((FP32, FP16), repeat=len(free))
    )
    return min(cost(problem, assignment).bytes for assignment in assignments)


@st.composite
def problems(draw: st.DrawFn, scale: int = 1) -> Problem:
    """Random graphs with fan-out, pins of both kinds, fixed ends, and costs around the constant for a launch."""
    count = draw(st.integers(1, len(NODES)))
    fixed: Assignment = {}
    fp32: dict[ir.Node, int] = {}
    for node in NODES[:count]:
        if draw(st.booleans()):
            fp32[node] = scale * draw(st.integers(0, 3 * CAST))
        else:
            fixed[node] = draw(st.sampled_from([FP32, FP16]))
    ends = st.sampled_from([*NODES[:count], FP32, FP16])
    links = []
    for _ in range(draw(st.integers(0, 8))):
        producer: End = draw(ends)
        readers = [reader for reader in draw(st.lists(ends, max_size=4, unique=True)) if reader != producer]
        if readers:
            links.append(Link(producer, tuple(readers), scale * draw(st.integers(0, 3 * CAST))))
    shared = draw(st.lists(st.lists(ends, min_size=2, max_size=4, unique=True), max_size=3))
    weights = (Weight(tuple(readers), scale * draw(st.integers(0, 3 * CAST))) for readers in shared)
    return Problem(fixed, dict(fp32), tuple(links), tuple(weights))


@settings(max_examples=examples(500))
@given(problems())
def test_the_minimum_cut_is_the_cheapest_assignment(problem: Problem) -> None:
    assignment = min_cut(problem)
    assert assignment.keys() == problem.fixed.keys() | problem.fp32.keys()
    assert all(assignment[owner] == dtype for owner, dtype in problem.fixed.items())
    assert cost(problem, assignment).bytes == cheapest(problem)
    assert cost(problem, assignment).bytes <= cost(problem, eager(problem)).bytes


@settings(max_examples=examples(200))
@given(problems(scale=10_000))
def test_beyond_32_bits_it_is_the_cheapest_up_to_the_unit(problem: Problem) -> None:
    """Ten thousand times larger, naive costs reach 10^12 bytes: units of a few hundred bytes, one rounding an edge."""
    naive = cost(problem, eager(problem)).bytes
    edges = 2 * len(NODES) + 10 * (len(problem.links) + len(problem.weights))
    assert cost(problem, min_cut(problem)).bytes <= cheapest(problem) + edges * (naive / 2**29 + 1)


def test_among_equals_fewest_nodes_stay_fp32() -> None:
    """n0 -> n1 -> n2, n0 pinned, n2 wanted, n1 free of cost: the cast costs the same on either side of n1."""
    a, b, c = NODES[:3]
    problem = Problem({a: FP32, c: FP16}, {b: 0}, (Link(a, (b,), 60), Link(b, (c,), 60)))
    assert min_cut(problem)[b] == FP16


def test_a_small_island_disappears_and_a_large_one_stays() -> None:
    """Between two pinned nodes: two casts against what the node costs more in FP32."""
    a, b, c = NODES[:3]
    for extra, expected in ((2 * (60 + CAST) - 1, FP32), (2 * (60 + CAST) + 1, FP16)):
        problem = Problem({a: FP32, c: FP32}, {b: extra}, (Link(a, (b,), 60), Link(b, (c,), 60)))
        assert min_cut(problem)[b] == expected


@pytest.mark.parametrize("before", [66, 2**29 - 1 - CAST], ids=["small", "largest of which the unit is 1"])
def test_one_byte_decides(before: int) -> None:
    """Three nodes cost 1, 1 and 3 bytes more in FP32, the cast before them 6 more than the one behind them."""
    a, b, c, d, e = NODES[:5]
    dear = 2**29
    links = (Link(a, (b,), before), Link(b, (c,), dear), Link(c, (d,), dear), Link(d, (e,), before - 6))
    problem = Problem({a: FP32, e: FP16}, {b: 1, c: 1, d: 3}, links)
    assert min_cut(problem) == {a: FP32, b: FP32, c: FP32, d: FP32, e: FP16}


def test_a_cast_is_paid_once_however_many_read_it() -> None:
    a, *readers = NODES[:5]
    shared = Problem({a: FP32} | dict.fromkeys(readers, FP16), {}, (Link(a, tuple(readers), 60),))
    found = cost(shared, min_cut(shared))
    assert (found.casts, found.cast_bytes, found.bytes) == (1, 60, 60 + CAST)


def test_without_fp32_anywhere_all_is_fp16() -> None:
    a, b = NODES[:2]
    problem = Problem({a: FP16}, {b: 5}, (Link(a, (b,), 60),))
    assert min_cut(problem) == eager(problem) == {a: FP16, b: FP16}


@pytest.mark.parametrize("count", [2000])
def test_long_chains_are_solved(count: int) -> None:
    """No recursion limit, and the cheapest link of the chain is cut: number 1234."""
    nodes = [ir.node("Relu", [None], name=f"n{i}") for i in range(count)]
    links = [Link(x, (y,), 600 if i != 1234 else 60) for i, (x, y) in enumerate(itertools.pairwise(nodes))]
    problem = Problem({nodes[0]: FP32, nodes[-1]: FP16}, dict.fromkeys(nodes[1:-1], 0), tuple(links))
    assignment = min_cut(problem)
    assert [assignment[node] for node in nodes] == [FP32] * 1235 + [FP16] * (count - 1235)
