"""Cast clean-up, one rule of the algebra after the other, then graphs that other tools wrote."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from stages.graph.casts import CastReport, clean, holds
from stages.io import StageError

F16, F32, F64, I8, I32, I64, BOOL, BF16 = 10, 1, 11, 3, 6, 7, 9, 16


def graph(body: str, inputs: str = "float[4] x", outputs: str = "float[4] y") -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => ({outputs}) {{ {body} }}')
    onnx.checker.check_model(model, full_check=True)
    return model


def cleaned(proto: onnx.ModelProto, strict: bool = False) -> tuple[onnx.ModelProto, CastReport]:
    model = ir.from_proto(proto)
    report = clean(model, strict=strict)
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    assert [(v.name, v.type) for v in result.graph.input] == [(v.name, v.type) for v in proto.graph.input]
    assert [(v.name, v.type) for v in result.graph.output] == [(v.name, v.type) for v in proto.graph.output]
    return result, report


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def chain(*types: int) -> str:
    """Casts of Relu(x) one after the other; the last is read by a Relu that writes y."""
    lines = ["h0 = Relu(x)"] + [f"h{i + 1} = Cast<to = {t}>(h{i})" for i, t in enumerate(types)]
    return "\n".join([*lines, f"y = Relu(h{len(types)})"])


def test_cast_to_the_type_that_is_there_goes() -> None:
    result, report = cleaned(graph(chain(F32)))
    assert ops(result) == ["Relu", "Relu"]
    assert report == CastReport(before=1, after=0, rules={"same_type": 1})


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
    assert report.after == 2
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


def test_nan_is_not_folded_into_an_integer() -> None:
    proto = graph(
        "w = Constant<value_floats = [0.5, 1e30, 3.0, 4.0]>()  h = Cast<to = 7>(w)  y = Add(x, h)",
        "int64[4] x",
        "int64[4] y",
    )
    result, _ = cleaned(proto)
    assert "Cast" in ops(result)


def test_output_of_a_removed_cast_keeps_its_name_by_renaming_the_producer() -> None:
    result, report = cleaned(graph("a = Relu(x)  b = Cast<to = 10>(a)  y = Cast<to = 1>(b)"))
    assert ops(result) == ["Relu"]
    assert "identity_for_output" not in report.rules


def test_output_that_is_an_input_gets_an_identity() -> None:
    result, report = cleaned(graph("y = Cast<to = 1>(x)"))
    assert ops(result) == ["Identity"]
    assert report.rules == {"identity_for_output": 1, "same_type": 1}


def test_two_outputs_of_one_tensor() -> None:
    result, _ = cleaned(
        graph(
            "a = Relu(x)  y = Cast<to = 1>(a)  z = Cast<to = 1>(a)  u = Neg(y)",
            outputs="float[4] y, float[4] z, float[4] u",
        )
    )
    assert sorted(ops(result)) == ["Identity", "Neg", "Relu"]


def test_two_outputs_of_duplicate_casts() -> None:
    result, _ = cleaned(graph("y = Cast<to = 10>(x)  z = Cast<to = 10>(x)", outputs="float16[4] y, float16[4] z"))
    assert sorted(ops(result)) == ["Cast", "Identity"]


def test_subgraphs_are_cleaned_and_keep_their_outputs() -> None:
    body = """y = If(c) <
        then_branch = t () => (float[4] ty) { a = Cast<to = 10>(x)  ty = Cast<to = 1>(a) },
        else_branch = e () => (float[4] ey) { b = Relu(x)  d = Cast<to = 10>(b)  ey = Cast<to = 1>(d) }>"""
    proto = graph(body, "float[4] x, bool c")
    result, report = cleaned(proto)
    assert (report.before, report.after) == (4, 0)
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


def test_a_cycle_is_an_error_that_names_a_node_on_it() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        { [before] s = Relu(x)  [left] a = Add(s, b)  [right] b = Cast<to = 1>(a)  [after] y = Relu(b) }"""
    )
    model = ir.from_proto(proto)
    with pytest.raises(StageError, match=r"cycle through node '(left|right)'"):
        clean(model)
    assert len(model.graph) == 4


def test_a_second_run_finds_nothing() -> None:
    first, _ = cleaned(graph(chain(F16, F32, I64, F32, F16, F32)))
    again, report = cleaned(first)
    assert report.rules == {}
    assert again.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("wide", "narrow", "answer"),
    [
        ("FLOAT", "FLOAT16", True),
        ("FLOAT16", "FLOAT", False),
        ("FLOAT", "BFLOAT16", True),
        ("FLOAT16", "BFLOAT16", False),
        ("DOUBLE", "INT32", True),
        ("FLOAT", "INT32", False),
        ("FLOAT16", "UINT8", True),
        ("INT16", "UINT8", True),
        ("INT8", "UINT8", False),
        ("UINT64", "INT8", False),
        ("BOOL", "INT8", False),
        ("INT8", "BOOL", True),
        ("INT64", "FLOAT16", False),
    ],
)
def test_which_types_hold_which(wide: str, narrow: str, answer: bool) -> None:
    assert holds(ir.DataType[wide], ir.DataType[narrow]) is answer


def run(model: onnx.ModelProto, x: np.ndarray, **feeds: np.ndarray) -> np.ndarray:
    (result,) = ReferenceEvaluator(model).run(None, {"x": x} | feeds)
    return np.asarray(result)
