"""Cast clean-up, one rule of the algebra after the other, then graphs that other tools wrote."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from tests.tiers import examples
from tests.truehalf.conversion.cast_graphs import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    chain,
    cleaned,
    graph,
    ops,
    run,
)
from truehalf.conversion.casts_of_file import clean_model


def test_cast_to_the_type_that_is_there_goes() -> None:
    result, report = cleaned(graph(chain(F32)))
    assert ops(result) == ["Relu", "Relu"]
    assert (report.casts_before, report.casts_after, report.rules) == (1, 0, {"same_type": 1})


def test_widening_then_narrowing_is_identity_and_exact() -> None:
    proto = graph(chain(F32, F16), "float16[4] x", "float16[4] y")
    result, report = cleaned(proto, strict=True)
    assert ops(result) == ["Relu", "Relu"]
    assert report.rules == {"dead": 1, "same_type": 1, "widening": 1}


def test_narrowing_then_widening_removes_a_rounding() -> None:
    result, report = cleaned(graph(chain(F16, F32)))
    assert ops(result) == ["Relu", "Relu"]
    assert report.rules == {"dead": 1, "rounding": 1, "same_type": 1}


def test_strict_keeps_a_rounding() -> None:
    result, report = cleaned(graph(chain(F16, F32)), strict=True)
    assert ops(result) == ["Relu", "Cast", "Cast", "Relu"]
    assert report.rules == {}


@pytest.mark.parametrize("pairs", [2, 3, 8])
def test_chains_of_any_length_resolve(pairs: int) -> None:
    """The case on which peers leave an invalid graph: f32 -> f16 -> f32 -> f16 -> f32."""
    result, _ = cleaned(graph(chain(*[F16, F32] * pairs)))
    assert ops(result) == ["Relu", "Relu"]


def test_strict_leaves_one_rounding_of_a_long_chain() -> None:
    proto = graph(chain(F16, F32, F16, F32, F16, F32))
    result, report = cleaned(proto, strict=True)
    assert ops(result) == ["Relu", "Cast", "Cast", "Relu"]
    assert report.casts_after == 2
    x = np.array([0.1, 1e-9, 70000.0, 1 / 3], np.float32)
    np.testing.assert_array_equal(run(result, x), run(proto, x))


def test_a_middle_of_a_chain_that_others_read_stays_for_them() -> None:
    body = "a = Cast<to = 10>(x)  b = Cast<to = 1>(a)  z = Relu(a)  y = Relu(b)"
    result, _ = cleaned(graph(body, outputs="float16[4] z, float[4] y"))
    assert sorted(ops(result)) == ["Cast", "Relu", "Relu"]


@pytest.mark.parametrize("middle", [I64, I32, I8, BOOL])
def test_a_truncation_stays(middle: int) -> None:
    proto = graph(chain(middle, F32))
    result, report = cleaned(proto)
    assert ops(result) == ["Relu", "Cast", "Cast", "Relu"]
    assert report.rules == {}


def test_rounding_before_an_integer_stays() -> None:
    """2.9999 is 3 in float16: without the rounding the integer would be another."""
    result, _ = cleaned(graph("a = Cast<to = 10>(x)  y = Cast<to = 7>(a)", outputs="int64[4] y"))
    assert ops(result) == ["Cast", "Cast"]


def test_an_integer_through_a_float_that_holds_it() -> None:
    result, report = cleaned(graph("a = Cast<to = 1>(x)  y = Cast<to = 7>(a)", "int8[4] x", "int64[4] y"), strict=True)
    assert ops(result) == ["Cast"]
    assert report.rules == {"dead": 1, "widening": 1}


def test_an_integer_through_a_float_that_does_not_hold_it_stays() -> None:
    result, _ = cleaned(graph("a = Cast<to = 10>(x)  y = Cast<to = 7>(a)", "int64[4] x", "int64[4] y"))
    assert ops(result) == ["Cast", "Cast"]


def test_a_negative_through_a_float_into_unsigned_stays() -> None:
    """What -1.0 becomes as uint8 is undefined, what -1 becomes is not: they may differ."""
    result, _ = cleaned(graph("a = Cast<to = 1>(x)  y = Cast<to = 2>(a)", "int8[4] x", "uint8[4] y"))
    assert ops(result) == ["Cast", "Cast"]


def test_bfloat16_and_float16_do_not_hold_each_other() -> None:
    strict, _ = cleaned(graph(chain(F32, BF16), "float16[4] x", "bfloat16[4] y"), strict=True)
    assert ops(strict) == ["Relu", "Cast", "Relu"]  # f16 -> f32 is exact, so f16 -> bf16 rounds once as before
    kept, _ = cleaned(graph(chain(BF16, F32), "float16[4] x", "float[4] y"), strict=True)
    assert ops(kept) == ["Relu", "Cast", "Cast", "Relu"]


def test_duplicates_are_shared() -> None:
    body = "a = Cast<to = 10>(x)  b = Cast<to = 10>(x)  c = Cast<to = 11>(x)  z = Add(a, b)  y = Relu(c)"
    result, report = cleaned(graph(body, outputs="float16[4] z, double[4] y"))
    assert sorted(ops(result)) == ["Add", "Cast", "Cast", "Relu"]
    assert report.rules == {"duplicate": 1}


def test_dead_casts_go_and_with_them_those_that_fed_them() -> None:
    result, report = cleaned(graph("a = Cast<to = 10>(x)  b = Cast<to = 7>(a)  y = Relu(x)"))
    assert ops(result) == ["Relu"]
    assert report.rules == {"dead": 2}


def test_a_cast_of_an_initializer_is_folded() -> None:
    proto = graph(
        "w = Constant<value_floats = [0.1, -1e-9, 3.0, 70000.0]>()  h = Cast<to = 10>(w)  y = Add(x, h)",
        "float16[4] x",
        "float16[4] y",
    )
    result, report = cleaned(proto, strict=True)
    assert ops(result) == ["Add"]
    assert report.rules == {"constant": 1}
    (stored,) = result.graph.initializer
    values = onnx.numpy_helper.to_array(stored)
    np.testing.assert_array_equal(values, np.array([0.1, -1e-9, 3.0, np.inf], np.float16))
    assert np.signbit(values[1])


def test_a_shared_initializer_stays_for_its_other_readers() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y, float16[2] z)
        <float[2] w = {1.5, 2.5}> { y = Add(x, w)  h = Cast<to = 10>(w)  k = Cast<to = 10>(w)  z = Add(h, k) }"""
    result, report = cleaned(onnx.parser.parse_model(text))
    assert ops(result) == ["Add", "Add"]
    assert report.rules["constant"] == 2


def test_an_initializer_that_the_caller_may_override_is_not_folded() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] w = {1.5, 2.5}) => (float16[2] y)
        { h = Cast<to = 10>(w)  k = Cast<to = 10>(x)  y = Add(h, k) }"""
    result, _ = cleaned(onnx.parser.parse_model(text))
    assert ops(result) == ["Cast", "Cast", "Add"]


@pytest.mark.parametrize(("version", "folded"), [(3, False), (4, True)])
def test_before_version_4_of_the_format_every_initializer_may_be_overridden(version: int, folded: bool) -> None:
    text = """<ir_version: 8, opset_import: ["": 9]> g (float[2] x) => (float16[2] y) <float[2] w = {1.5, 2.5}>
        { h = Cast<to = 10>(w)  k = Cast<to = 10>(x)  y = Add(h, k) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    model.ir_version = version
    assert clean_model(model).rules.get("constant", 0) == folded


def test_nan_is_not_folded_into_an_integer() -> None:
    proto = graph(
        "w = Constant<value_floats = [0.5, 1e30, 3.0, 4.0]>()  h = Cast<to = 7>(w)  y = Add(x, h)",
        "int64[4] x",
        "int64[4] y",
    )
    result, _ = cleaned(proto)
    assert "Cast" in ops(result)


def test_output_of_a_removed_cast_keeps_its_name_by_renaming_the_producer() -> None:
    result, _ = cleaned(graph("a = Relu(x)  b = Cast<to = 10>(a)  y = Cast<to = 1>(b)"))
    assert ops(result) == ["Relu"]


def test_output_of_a_removed_cast_keeps_its_shape() -> None:
    """Nobody can infer the shape of a sum over axes that come as an input: the output states it."""
    body = "a = ReduceSum<keepdims = 0>(x, axes)  b = Cast<to = 11>(a)  y = Cast<to = 1>(b)"
    result, _ = cleaned(graph(body, "float[4, 3] x, int64[1] axes", 'float["n"] y'), strict=True)
    assert ops(result) == ["ReduceSum"]


def test_a_cast_from_an_input_to_an_output_stays() -> None:
    result, report = cleaned(graph("y = Cast<to = 1>(x)"))
    assert (ops(result), report.rules) == (["Cast"], {})


def test_two_outputs_of_one_tensor() -> None:
    result, _ = cleaned(
        graph(
            "a = Relu(x)  y = Cast<to = 1>(a)  z = Cast<to = 1>(a)  u = Neg(y)",
            outputs="float[4] y, float[4] z, float[4] u",
        )
    )
    assert sorted(ops(result)) == ["Cast", "Neg", "Relu"]


def test_two_outputs_of_duplicate_casts() -> None:
    result, _ = cleaned(graph("y = Cast<to = 10>(x)  z = Cast<to = 10>(x)", outputs="float16[4] y, float16[4] z"))
    assert sorted(ops(result)) == ["Cast", "Cast"]


def test_subgraphs_are_cleaned_and_keep_their_outputs() -> None:
    body = """y = If(c) <
        then_branch = t () => (float[4] ty) { a = Cast<to = 10>(x)  ty = Cast<to = 1>(a) },
        else_branch = e () => (float[4] ey) { b = Relu(x)  d = Cast<to = 10>(b)  ey = Cast<to = 1>(d) }>"""
    proto = graph(body, "float[4] x, bool c")
    result, report = cleaned(proto)
    assert (report.casts_before, report.casts_after) == (4, 1)  # a branch that returns what it captures
    x = np.array([-1.0, 0.1, 2.0, 3.0], np.float32)
    for c in (np.array(True), np.array(False)):
        np.testing.assert_allclose(run(result, x, c=c), run(proto, x, c=c), rtol=1e-3)


def test_unknown_types_are_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "their": 1]> g (float[2] x) => (float[2] y)
        { a = their.Op(x)  b = Cast<to = 1>(a)  y = Relu(b) }"""
    result, _ = cleaned(onnx.parser.parse_model(text))
    assert ops(result) == ["Op", "Cast", "Relu"]


def test_an_unsorted_graph_is_sorted() -> None:
    proto = graph("a = Cast<to = 10>(x)  b = Cast<to = 1>(a)  y = Relu(b)")
    nodes = list(reversed(proto.graph.node))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(proto)
    result, _ = cleaned(proto)
    assert ops(result) == ["Relu"]


def test_a_second_run_finds_nothing() -> None:
    first, _ = cleaned(graph(chain(F16, F32, I64, F32, F16, F32)))
    again, report = cleaned(first)
    assert report.rules == {}
    assert again.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)


# --- bodies, shapes, CastLike -----------------------------------------------------------------------------------------

LOOP = """n = Constant<value = int64 {{3}}>()  t = Constant<value = bool {{1}}>()  {before}
    last = Loop(n, t, x) <body = b (int64 i, bool p, float[4] s) => (bool q, float[4] r) {{ q = Identity(p)  {body} }}>
    {after}"""


@pytest.mark.parametrize(("s", "m", "t", "after"), [
    ("uint8", F32, I32, 2), ("uint8", F32, I64, 2), ("uint8", F16, BOOL, 2), ("int8", F32, 2, 2), ("bool", F32, 2, 2),
    ("uint8", F32, F16, 1), ("uint8", I32, F32, 1), ("float16", F32, 2, 1), ("uint8", F32, 2, 0),
])  # fmt: skip
def test_no_cast_from_or_to_uint8_that_tensorrt_has_not(s: str, m: int, t: int, after: int) -> None:
    _, report = cleaned(
        graph(f"a = Cast<to = {m}>(x)  b = Cast<to = {t}>(a)  y = Identity(b)", f"{s}[4] x", f"{NAMES[t]}[4] y")
    )
    assert report.casts_after == after


NAMES = {F16: "float16", F32: "float", BOOL: "bool", 2: "uint8", I32: "int32", I64: "int64"}


def test_a_constant_in_a_body_is_folded_beside_itself() -> None:
    body = LOOP.format(
        before="w = Constant<value = float16[4] {1, 1, 2, 3}>()",
        body="k = Cast<to = 1>(w)  r = Add(s, k)",
        after="j = Cast<to = 1>(w)  y = Mul(last, j)",
    )
    result, report = cleaned(graph(body), strict=True)
    assert report.casts_after == 0
    assert [tensor.data_type for tensor in result.graph.initializer] == [F32]


def test_a_large_constant_may_keep_its_cast() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float16[2] x) => (float16[2] y)
        <float[2] w = {1.5, 2.5}>
        { h = Cast<to = 10>(w)  t = Identity(w)  u = Cast<to = 10>(t)  z = Add(x, u)  y = Add(z, h) }"""
    for limit, after in ((7, 2), (8, 0)):
        model = ir.from_onnx_text(text)
        assert clean_model(model, fold_max_bytes=limit).casts_after == after


def test_a_cast_that_only_its_shape_is_read_of() -> None:
    body = "a = Cast<to = 10>(x)  s = Shape(a)  n = Size(a)  m = Mul(s, n)  y = Cast<to = 1>(m)"
    result, report = cleaned(graph(body, outputs="float[1] y"), strict=True)
    assert ops(result) == ["Shape", "Size", "Mul", "Cast"]
    assert report.rules == {"dead": 1, "unread": 2}


# --- any graph --------------------------------------------------------------------------------------------------------

STEPS = ["Cast", "Cast", "Cast", "Cast", "Transpose", "Concat", "Split", "Identity", "Neg", "Where", "Shape"]


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Casts between float16, float32, float64, int64 and bool, moves and arithmetic, one after the other."""
    types = [F16, F32, F16, F32, F64, I64, BOOL]
    nodes, known = [], {"x": F32, "h": F16}
    for number in range(draw(st.integers(1, 14))):
        step, result = draw(st.sampled_from(STEPS)), f"v{number}"
        source = draw(st.sampled_from(list(known)[-3:]))
        alike = sorted(name for name, dtype in known.items() if dtype == known[source])
        other, dtype, options, inputs, outputs = draw(st.sampled_from(alike)), known[source], {}, [source], [result]
        if step == "Cast" or (step == "Neg" and dtype == BOOL):
            step, dtype = "Cast", draw(st.sampled_from(types))
            options = {"to": dtype}
        elif step == "Concat":  # two halves side by side, and one of them
            nodes.append(onnx.helper.make_node("Concat", [source, other], [f"{result}_long"], axis=0))
            inputs, step = [f"{result}_long", "starts", "stops"], "Slice"
        elif step == "Split":
            nodes.append(onnx.helper.make_node("Split", [source, "halves"], [f"{result}_a", f"{result}_b"], axis=0))
            inputs, step, options = [f"{result}_b", f"{result}_a"], "Concat", {"axis": 0}
        elif step == "Where":
            inputs = ["mask", source, other]
        elif step == "Shape":
            nodes.append(onnx.helper.make_node("Shape", [source], [f"{result}_shape"]))
            inputs, step = [source, f"{result}_shape"], "Reshape"
        nodes.append(onnx.helper.make_node(step, inputs, outputs, **options))
        known[result] = dtype
    outs = sorted({list(known)[-1], draw(st.sampled_from(list(known)[-3:]))} - {"x", "h"})
    integers = {"starts": [1], "stops": [3], "halves": [1, 1]}
    weights = [onnx.numpy_helper.from_array(np.array(value), name) for name, value in integers.items()]
    weights.append(onnx.numpy_helper.from_array(np.array([[True, False], [False, True]]), "mask"))
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "g",
            [onnx.helper.make_tensor_value_info(name, known[name], [2, 2]) for name in ("x", "h")],
            [onnx.helper.make_tensor_value_info(name, known[name], [2, 2]) for name in outs],
            weights,
        ),
        ir_version=8,
        opset_imports=[onnx.helper.make_opsetid("", 17)],
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


@settings(max_examples=examples(150))
@given(models())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_graph_keeps_its_values_under_strict_and_is_done_after_one_run(proto: onnx.ModelProto) -> None:
    result, report = cleaned(proto, strict=True)
    assert report.casts_after <= report.casts_before
    feeds = {"x": np.array([[0.1, -2.5], [70000.0, 1e-9]], np.float32), "h": np.array([[1, 2], [-3, 0.3]], np.float16)}
    for before, after in zip(outputs_of(proto, feeds), outputs_of(result, feeds), strict=True):
        np.testing.assert_array_equal(after, before)
    for strict in (True, False):
        once, _ = cleaned(proto, strict)
        again, report = cleaned(once, strict)
        assert report.rules == {}
        assert again.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)
        assert cleaned(proto, strict)[0].SerializeToString(deterministic=True) == once.SerializeToString(
            deterministic=True
        )


def outputs_of(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(value) for value in ReferenceEvaluator(proto).run(None, feeds)]
