"""Where values come from, and what is sized by data."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from tests.truehalf.patterns.linting import model_of
from truehalf.patterns.origins import Origin, Values


def values_of(text: str) -> tuple[Values, dict[str, ir.Value]]:
    model = model_of(text)
    return Values(model.graph), ir.convenience.create_value_mapping(model.graph)


@pytest.mark.parametrize(
    ("body", "origin"),
    [
        ("y = Identity(c)", "CONSTANT"),
        ("s = Shape(x) y = Gather(s, c)", "CONSTANT"),  # axis 1, whose size is fixed
        ("y = Shape(x)", "SHAPE"),
        ("s = Shape(x) y = ConstantOfShape(s)", "SHAPE"),
        ("p = NonZero(x) y = Shape(p)", "SHAPE"),
        ("y = Add(n, c)", "INPUT"),
        ("s = Shape(x) y = Mul(s, n)", "INPUT"),
        ("y = NonZero(x)", "DATA"),
        ("f = Cast<to = 7>(x) s = ReduceMax(f) y = Add(s, n)", "DATA"),
        ("y = Identity(many)", "DATA"),
        ("y = Identity(mask)", "DATA"),
        ("r = RandomNormal<shape = [1]>() y = Cast<to = 7>(r)", "DATA"),
    ],
)
def test_origin(body: str, origin: str) -> None:
    text = f"""
    (float[N,3] x, int64[1] n, int64[M] many, bool[1] mask) => (int64[K] y) <int64[1] c = {{1}}> {{ {body} }}
    """
    values, by_name = values_of(text)
    assert values.origin(by_name["y"]) is Origin[origin]


def test_what_a_body_reads_from_outside_counts_and_what_a_loop_hands_it_is_data() -> None:
    text = """
    (float[N,3] x, bool c) => (int64[2] y, float[N,3] z) <int64 four = {4}, bool on = {1}> {
        y = If(c) <then_branch = t () => (int64[2] a) { a = Shape(x) }, else_branch = e () => (int64[2] b)
            { b = Shape(x) }>
        z = Loop(four, on, x) <body = l (int64 i, bool k, float[N,3] s) => (bool k2, float[N,3] s2)
            { k2 = Identity(k) s2 = Relu(s) }>
    }
    """
    values, by_name = values_of(text)
    assert (values.origin(by_name["y"]), values.origin(by_name["z"])) == (Origin.DATA, Origin.DATA)  # c is data


def test_the_number_of_a_round() -> None:
    model = model_of("""
    (float[N,3] x) => (float[N,3] z) <int64 four = {4}, bool on = {1}> {
        z = Loop(four, on, x) <body = l (int64 i, bool k, float[N,3] s) => (bool k2, float[N,3] s2)
            { k2 = Identity(k) j = Add(i, four) s2 = Relu(s) }>
    }
    """)
    (loop,) = model.graph
    added = loop.attributes["body"].as_graph()[1]
    assert Values(model.graph).origin(added.outputs[0]) is Origin.ROUND


@pytest.mark.parametrize(
    ("body", "sized"),
    [
        ("p = NonZero(x) y = Transpose(p)", True),
        ("p = NonZero(x) t = Transpose(p) y = GatherND(x, t)", True),
        ("p = NonZero(x) s = Shape(p) y = ConstantOfShape(s)", True),
        ("p = NonZero(x) y = Shape(p)", False),
        ("i = ArgMax(x) y = Gather(x, i)", False),
        ("p = NonZero(x) t = Transpose(p) u = Gather(x, c) y = ScatterND(x, t, u)", False),
        ("p = NonZero(c) y = Transpose(p)", False),
    ],
)
def test_sized_by_data(body: str, sized: bool) -> None:
    values, by_name = values_of(f"(float[4,3] x) => (int64[K] y) <int64[1] c = {{1}}> {{ {body} }}")
    assert values.sized_by_data(by_name["y"]) is sized


def test_a_fixed_size_is_not_sized_by_data() -> None:
    values, by_name = values_of("(float[4,3] x) => (int64 y) { p = NonZero(x) y = ReduceSum<keepdims = 0>(p) }")
    assert values.sized_by_data(by_name["p"]) and not values.sized_by_data(by_name["y"])


def test_counted() -> None:
    values, by_name = values_of("(float[4,3] x) => (int64[2] y) { p = NonZero(x) y = Shape(p) q = Shape(x) }")
    assert values.counted(by_name["y"]) and not values.counted(by_name["q"])
