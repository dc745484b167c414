"""Rounding where the layers of an engine end: what stays in a layer, what leaves it, what has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from tests.messages import raises
from tests.truehalf.emulation.emulation import parsed
from truehalf.emulation.by_layers import by_layers
from truehalf.emulation.sessions import EmulatedSession

X = np.array([0.1001, -1.0003, 3.7, 2.0009], np.float32)


def half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def result(model: ir.Model, x: np.ndarray = X) -> np.ndarray:
    (output,) = EmulatedSession(model).run({"x": x}).values()
    return output


def layer(*nodes: str, stores: Sequence[str | None] = ("Half",)) -> dict[str, object]:
    return {"onnx_nodes": list(nodes), "outputs": list(stores)}


def chain(dtype: str = "float16") -> str:
    """c = a * x + a of a = x * x; nodes are named as their outputs."""
    return f"""g ({dtype}[4] x) => ({dtype}[4] c)
        {{
            [a] a = Mul(x, x)
            [b] b = Mul(a, x)
            [c] c = Add(b, a)
        }}"""


def test_what_stays_in_a_layer_is_not_rounded() -> None:
    found = by_layers(parsed(chain()), [layer("a", "b", "c")])
    x = half(X)
    np.testing.assert_array_equal(result(found.model), half(x * x * x + x * x))
    assert (found.layers, found.in_layers, found.not_rounded, found.rounded) == (1, 3, 2, 0)


def test_a_value_is_rounded_for_those_outside_its_layer_alone() -> None:
    found = by_layers(parsed(chain()), [layer("a", "b"), layer("c")])
    x = half(X)
    expected = half(x * x * x) + half(x * x)
    np.testing.assert_array_equal(result(found.model), half(expected))
    assert found.not_rounded == 1  # a, within its layer


def test_a_layer_for_each_node_rounds_as_node_by_node() -> None:
    model = parsed(chain())
    found = by_layers(model, [layer(name) for name in "abc"])
    np.testing.assert_array_equal(result(found.model), result(model))
    assert found.not_rounded == 0


def test_a_layer_that_stores_float_rounds_nothing() -> None:
    found = by_layers(parsed(chain()), [layer("a", stores=["Float"]), layer("b", stores=["Float"]), layer("c")])
    x = half(X)
    np.testing.assert_array_equal(result(found.model), half(x * x * x + x * x))
    assert found.not_rounded == 2


def test_a_layer_that_stores_half_rounds_what_the_file_has_in_fp32() -> None:
    found = by_layers(parsed(chain(dtype="float")), [layer("a"), layer("b", "c", stores=["Float"])])
    a = half(X * X)
    np.testing.assert_array_equal(result(found.model), a * X + a)
    assert (found.rounded, found.not_rounded) == (1, 0)


@pytest.mark.parametrize("stores", [(), ("Half", "Float"), (None,), ("FP8",)])
def test_where_a_layer_tells_no_one_type_the_files_counts(stores: Sequence[str | None]) -> None:
    found = by_layers(parsed(chain()), [layer(name, stores=stores) for name in "abc"])
    model = parsed(chain())
    np.testing.assert_array_equal(result(found.model), result(model))


def test_integers_beside_half_are_no_second_type() -> None:
    found = by_layers(parsed(chain(dtype="float")), [layer("a", stores=["Half", "Int64"]), layer("b"), layer("c")])
    assert found.rounded == 2


@pytest.mark.parametrize("named", ["ab", "ac", "bc"])
def test_a_node_without_layer_keeps_the_files_types(named: str) -> None:
    found = by_layers(parsed(chain()), [layer(*named)])
    x = half(X)
    a, in_layer = x * x, {"ab": (x * x) * x, "ac": half(half(x * x) * x), "bc": half(x * x) * x}[named]
    expected = {"ab": half(in_layer) + half(a), "ac": in_layer + a, "bc": in_layer + half(a)}[named]
    np.testing.assert_array_equal(result(found.model), half(expected))
    assert found.without_layer == 1


def test_a_node_in_two_layers_reads_in_both_and_leaves_the_last() -> None:
    found = by_layers(parsed(chain()), [layer("a", "b"), layer("b", "c")])
    x = half(X)
    expected = x * x * x + half(x * x)  # b reads a in the first, c reads b in the second; a leaves the first
    np.testing.assert_array_equal(result(found.model), half(expected))
    assert found.in_several == 1


def test_casts_within_a_layer_round_nothing() -> None:
    text = """g (float[4] x) => (float[4] y)
        {
            [down] h = Cast<to = 10>(x)
            [square] s = Mul(h, h)
            [up] f = Cast<to = 1>(s)
            [root] r = Exp(f)
            [down_again] g = Cast<to = 10>(r)
            [twice] t = Add(g, g)
            [out] y = Cast<to = 1>(t)
        }"""
    names = ("down", "square", "up", "root", "down_again", "twice", "out")
    whole = by_layers(parsed(text), [layer(*names, stores=["Float"])]).model
    np.testing.assert_allclose(result(whole), 2 * np.exp(X * X), rtol=1e-6)
    parted = by_layers(parsed(text), [layer(*names[:2]), layer(*names[2:], stores=["Float"])]).model
    np.testing.assert_allclose(result(parted), 2 * np.exp(half(X * X)), rtol=1e-6)


def test_sums_term_by_term_and_bodies_keep_the_files_types() -> None:
    text = """g (float16[4] x, bool yes) => (float16[4] y, float16[4] z)
        <int64 axis = {0}>
        {
            [a] a = Mul(x, x)
            [s] y = CumSum(a, axis)
            [i] z = If(yes) <
                then_branch = then () => (float16[4] p) { [p] p = Mul(a, a) },
                else_branch = else () => (float16[4] q) { [q] q = Identity(a) }
            >
        }"""
    found = by_layers(parsed(text), [layer("a", "s", "i")])
    feeds = {"x": X, "yes": np.array(True)}
    expected = EmulatedSession(parsed(text)).run(feeds)
    for name, value in EmulatedSession(found.model).run(feeds).items():
        np.testing.assert_array_equal(value, expected[name])
    assert (found.in_layers, found.not_rounded) == (1, 0)


@pytest.mark.parametrize("table", [[], [layer()], [layer("other", "names", "a")], [{"name": "kernel"}]])
def test_layers_of_another_file_are_refused(table: list[dict[str, object]]) -> None:
    with raises("wrong-file"):
        by_layers(parsed(chain()), table)
