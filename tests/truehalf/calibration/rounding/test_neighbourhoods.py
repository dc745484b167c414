"""Nodes that may amplify rounding, and what is computed around them."""

from __future__ import annotations

import pytest

from tests.truehalf.calibration.small_graphs import parsed
from truehalf.calibration.rounding.neighbourhoods import Neighbourhood, neighbourhoods
from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir.normalize import PREPARE


def found_in(nodes: str, sizes: dict[str, float] | None = None, deep: bool = False) -> list[Neighbourhood]:
    text = f"""g (float[4,8] x, float[4,8] z) => (float[4,8] y) <float[8,8] w = {{{", ".join(["1"] * 64)}}},
        float c = {{2}},
        float h = {{-0.5}}, int64 axis = {{1}}> {{ {nodes} }}"""
    model = parsed(text)
    PREPARE(model)
    return neighbourhoods(model, lambda value: (sizes or {}).get(str(value.name)), deep)


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ("a = Exp(x) y = Log(a)", "underflow"),
        ("a = Mul(x, x) y = Sqrt(a)", "underflow"),
        ("a = Abs(x) y = Pow(a, h)", "underflow"),
        ("y = Div(x, z)", "underflow"),
        ("a = Sub(c, x) y = Log(a)", "cancellation"),
        ("a = Add(x, z) y = Log(a)", "cancellation"),
        ("y = Acos(x)", "cancellation"),
        ("y = Softmax(x)", "cancellation"),
        ("a = Mul(x, c) y = Cos(a)", "phases"),
    ],
)
def test_kinds(nodes: str, kind: str) -> None:
    (found,) = found_in(nodes)
    assert found.kind == kind
    assert found.end.outputs[0].name == "y"


@pytest.mark.parametrize(
    ("nodes", "limit"),
    [
        ("a = Log(x) y = Exp(a)", 0.005),  # steep: another sample comes nearer
        ("a = Div(x, z) y = Exp(a)", 0.005),
        ("a = Reciprocal(z) b = Mul(x, a) y = Exp(b)", 0.005),
        ("a = Acos(x) y = Exp(a)", 0.005),
        ("y = Sub(x, z)", 0.005),  # a result
        ("a = Sub(x, z) y = Relu(a)", 0.005),
        ("y = Softmax(x)", 0.005),
        ("a = LpNormalization(x) y = Neg(a)", 2.0**-7),
        ("a = Sub(x, z) y = Exp(a)", 2.0**-7),
        ("y = Sin(x)", 0.005),
    ],
)
def test_limits(nodes: str, limit: float) -> None:
    assert [each.limit for each in found_in(nodes, {"x": 8.0, "z": 8.0, "a": 0.1, "y": 0.1})] == [limit]


@pytest.mark.parametrize(
    ("reader", "shown"),
    [
        ("b = Transpose(a) y = Transpose(b)", ["Transpose", "Transpose"]),
        ("b = Relu(a) y = Sigmoid(b)", ["Relu", "Sigmoid"]),
        ("b = Min(a, c) d = Neg(b) y = Relu(d)", ["Min", "Neg", "Relu"]),
        ("b = Exp(a) y = Relu(b)", []),
        ("b = Relu(a) y = Mul(a, b)", []),  # more than one reader
        ("y = Where(k, a, z)", []),  # what is chosen is not known before a run
    ],
)
def test_what_is_shown_of_a_result(reader: str, shown: list[str]) -> None:
    text = f"k = Greater(x, z) a = Sub(x, z) {reader}"
    (found,) = found_in(text, {"x": 8.0, "z": 8.0, "a": 0.1, "y": 0.1})
    assert [node.op_type for node in found.shown] == shown


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Div(x, c)",
        "y = Mul(x, z)",
        "y = Pow(x, c)",
        "y = CumSum(x, axis)",
        "far = Constant<value_int = 9>() y = CumSum(x, far)",  # which no runtime takes
        "two = Constant<value_ints = [9, -9]>() y = CumSum(x, two)",
        "y = Exp(x)",
        "a = Softmax(x) t = Transpose(z) s = MatMul(a, t) y = MatMul(s, x)",
        "a = Softmax(x) b = MatMul(a, w) y = Erf(b)",
    ],
)
def test_what_amplifies_nothing(nodes: str) -> None:
    assert not found_in(nodes)


@pytest.mark.parametrize(
    ("total", "hides", "count"),
    [(1.0, 1.0, 1), (2.0, 1.0, 0), (1.0, 4.0, 0), (1e-6, 1.0, 0)],
)
def test_sums_cancel_where_they_are_far_below_their_terms(total: float, hides: float, count: int) -> None:
    """Not where another sum hides it, nor where float32's own rounding is what is left."""
    sizes = {"x": 8.0, "z": 8.0, "a": total, "y": hides}
    assert len(found_in("a = Sub(x, z) y = Add(a, x)", sizes)) == count


def test_the_way_back_ends_at_products_with_weights_and_goes_behind_them_when_deep() -> None:
    nodes = "a = Relu(x) b = MatMul(a, w) d = Mul(b, b) m = ReduceMean<axes = [1]>(d) r = Sqrt(m) y = Add(x, r)"
    (near,), (deep,) = found_in(nodes), found_in(nodes, deep=True)
    assert [node.op_type for node in near.depths] == ["Mul", "ReduceMean", "Sqrt"]
    assert [leaf.name for leaf in near.leaves] == ["b"]
    assert [node.op_type for node in deep.depths] == ["MatMul", "Mul", "ReduceMean", "Sqrt"]
    assert [leaf.name for leaf in deep.leaves] == ["a"]


@pytest.mark.parametrize(
    "end", ["y = Sqrt(d)", "y = Reciprocal(d)", "y = Div(x, d)", "f = Reciprocal(d) y = Mul(x, f)"]
)
def test_the_way_back_from_a_divisor_or_root_goes_behind_products_where_nothing_adds_up(end: str) -> None:
    (near,) = found_in(f"a = Relu(x) b = MatMul(a, w) d = Abs(b) {end}")
    assert [node.op_type for node in near.depths][:2] == ["MatMul", "Abs"]
    assert "a" in [leaf.name for leaf in near.leaves]
    assert near.kind == "cancellation"


def test_the_way_back_from_a_dividend_ends_at_products_with_weights() -> None:
    (near,) = found_in("b = MatMul(x, w) y = Div(b, z)")
    assert [leaf.name for leaf in near.leaves] == ["b", "z"]


def test_the_way_back_from_a_logarithm_goes_on_to_what_products_with_weights_read() -> None:
    (near,) = found_in("a = Relu(x) b = MatMul(a, w) d = Abs(b) y = Log(d)")
    assert [node.op_type for node in near.depths] == ["MatMul", "Abs", "Log"]
    assert [leaf.name for leaf in near.leaves] == ["a"]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("parts", [20, 60])
def test_nodes_that_only_move_elements_are_counted_by_themselves(parts: int, deep: bool) -> None:
    cut = " ".join(f"t{i} = Transpose(x) u{i} = Transpose(t{i})" for i in range(parts))
    joined = ", ".join(f"u{i}" for i in range(parts))
    nodes = f"e = Exp(z) m = Exp(e) {cut} b = Concat<axis = 0>(m, {joined}) d = Mul(b, b) r = Sqrt(d)"
    (found,) = found_in(nodes + " k = ReduceMax<axes = [0]>(r) y = Add(x, k)", deep=deep)
    names = [node.op_type for node in found.depths]
    assert names.count("Exp") == 2
    assert names.count("Transpose") == min(2 * parts, (256 if deep else 128) - 1)


def test_what_leads_to_another_node_that_amplifies_is_not_looked_at_by_itself() -> None:
    (found,) = found_in("a = Sub(c, x) b = Div(x, a) y = Log(b)")
    assert found.end.op_type == "Log"


def test_a_deep_neighbourhood_hides_none_of_the_nodes_that_the_others_begin_at() -> None:
    nodes = "a = Log(x) b = Neg(a) d = Neg(b) f = Neg(d) i = Neg(f) j = Neg(i) k = Neg(j) l = Neg(k) y = Sqrt(l)"
    for deep in (False, True):
        assert [each.end.op_type for each in found_in(nodes, deep=deep)] == ["Log", "Sqrt"]


def test_nodes_that_stay_float32_anyway_are_leaves() -> None:
    model = parsed("g (float[4] x) => (float[4] y) { a = Mul(x, x) y = Sqrt(a) }")
    PREPARE(model)
    model.graph[0].metadata_props[KEEP_FLOAT32] = "it says so"
    (found,) = neighbourhoods(model, lambda value: None)
    assert [leaf.name for leaf in found.leaves] == ["a"]
    model.graph[1].metadata_props[KEEP_FLOAT32] = "it says so"
    assert not neighbourhoods(model, lambda value: None)
