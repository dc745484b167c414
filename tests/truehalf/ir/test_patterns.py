"""Selecting nodes by their neighbours."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from tests.messages import raises
from truehalf.config.selector_entries import Chain, parse_pattern
from truehalf.ir.normalize import NORMALIZE
from truehalf.ir.patterns import Neighbours, beside

ATTENTION = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4,8] x, bool[4,4] c, float[8,8] w, float[8,8] v) => (float[2,4,8] out)
<float scale = {0.5}, float big = {-1e9}, float zero = {0.0}, int64[3] flat = {2, 4, 8},
 float[8] ones = {1, 1, 1, 1, 1, 1, 1, 1}>
{
    [q] q = MatMul(x, w)
    [turn] k = Transpose<perm = [0, 2, 1]>(q)
    [scores] s = MatMul(q, k)
    [scaled] t = Mul(s, scale)
    [mask] m = Where(c, big, zero)
    [masked] u = Add(t, m)
    [soft] p = Softmax(u)
    [mix] a = MatMul(p, x)
    [flat] b = Reshape(a, flat)
    [proj] o = MatMul(b, v)
    [residual] r = Add(o, a)
    [norm] n = LayerNormalization(r, ones)
    [act] e = Relu(n)
    [last] d = Neg(e)
    [shape] out = Reshape(d, flat)
}"""


def named(text: str, source: str = ATTENTION) -> list[str]:
    model = ir.from_onnx_text(source)
    NORMALIZE(model)
    return [node.name or "" for node in Neighbours(model).select(parse_pattern(text))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("MatMul -> Softmax", ["scores"]),  # through its scale and mask; q and proj feed no Softmax
        ("MatMul -> MatMul", ["q", "mix"]),  # through Transpose, Reshape
        ("MatMul -> MatMul -> Softmax", ["q"]),
        ("Softmax -> MatMul", ["soft"]),
        ("MatMul -> Mul", ["scores"]),
        ("MatMul -> LayerNormalization", []),  # an Add of two results is neither a scale nor a mask
        ("MatMul -> Add -> LayerNormalization", ["mix", "proj"]),
        ("LayerNormalization <- Add", ["norm"]),
        ("Softmax <- MatMul", ["soft"]),
        ("MatMul <- Softmax", ["mix"]),
        ("MatMul <- MatMul <- Softmax", ["proj"]),
        ("Add <- Where", ["masked"]),
        ("Softmax <- Where", []),  # Add passes the scores on, the mask only acts on them
        ("Neg <- LayerNormalization", []),  # Relu is between
        ("ai.onnx::MatMul->Softmax", ["scores"]),
        ("com.acme::MatMul -> Softmax", []),
    ],
)
def test_chains(text: str, names: list[str]) -> None:
    assert named(text) == names


@pytest.mark.parametrize(
    ("node", "passes"),
    [
        ("Div(a, two)", True),
        ("Div(two, a)", False),  # a denominator is not scaled
        ("Sub(a, two)", True),
        ("Where(c, a, two)", True),
        ("Where(c, two, a)", True),
        ("Cast<to = 1>(a)", True),
        ("Expand(a, shape)", True),
        ("Exp(a)", False),
        ("Mul(a, a)", False),
        ("Mul(a, x)", True),  # no product stands before x: it is a scale
    ],
)
def test_what_a_chain_passes(node: str, passes: bool) -> None:
    source = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, bool c) => (float[2,2] y)
        <float two = {{2.0}}, int64[2] shape = {{2, 2}}>
        {{ [mul] a = MatMul(x, x) b = {node} [soft] y = Softmax(b) }}"""
    assert named("MatMul -> Softmax", source) == (["mul"] if passes else [])
    assert named("Softmax <- MatMul", source) == (["soft"] if passes else [])


def test_chains_within_bodies() -> None:
    source = """<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, bool c) => (float[2,2] y) {
        [outer] a = MatMul(x, x)
        y = If(c) <then_branch = t () => (float[2,2] ty) { [inner] b = MatMul(x, x) d = Add(a, b) ty = Softmax(b) },
                   else_branch = e () => (float[2,2] ey) { ey = Softmax(a) }> }"""
    assert named("MatMul -> Softmax", source) == ["outer", "inner"]


def test_parsing() -> None:
    assert parse_pattern(" A->com.x::B -> C ") == Chain(("A", "com.x::B", "C"), forward=True)
    assert parse_pattern("A <- B") == Chain(("A", "B"), forward=False)


@pytest.mark.parametrize("text", ["A", "A -> ", "-> A", "A -> B <- C", "A B -> C"])
def test_what_is_no_pattern(text: str) -> None:
    with raises(None, "'MatMul -> Softmax'", "'Add <- Conv'", error=ValueError):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("scores", {"q", "scaled"}),
        ("mix", {"soft", "proj", "residual"}),
        ("masked", {"scaled", "mask", "soft"}),
        ("q", {"scores"}),
        ("act", {"norm", "last"}),
        ("last", {"act"}),
    ],
)
def test_what_computes_beside_a_node(node: str, expected: set[str]) -> None:
    model = ir.from_onnx_text(ATTENTION)
    NORMALIZE(model)
    (found,) = (each for each in model.graph if each.name == node)
    assert {str(each.name) for each in beside(found)} == expected


@pytest.mark.parametrize(
    "reader", ["[n] n = Shape(s)", "[n] n = Cast<to = 9>(s)", "[t] t = Transpose(s) [n] n = Size(t)"]
)
def test_what_reads_no_floats_as_such_is_not_beside_it(reader: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, float[2,2] w) => (float[2,2] y, float[2,2] z)
    {{ [c] a = Cast<to = 1>(x) [s] s = MatMul(a, w) [e] y = Exp(s) {reader} [z] z = Relu(x) }}"""
    model = ir.from_onnx_text(text)
    NORMALIZE(model)
    (product,) = (node for node in model.graph if node.op_type == "MatMul")
    assert [node.op_type for node in beside(product)] == ["Exp"]
