"""Conversion invariants on small graphs of each tricky kind."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.measuring.converted import only
from tests.truehalf.conversion.conversion import (
    FLOAT,
    FLOAT16,
    X,
    convert_in_memory,
    converted,
    ops,
    parsed,
    run,
    same,
    types,
)
from truehalf.ir.selectors import Lists


def test_value_info_says_what_inference_says() -> None:
    result, _ = converted("(float[2,2] x) => (float[2,2] y) { [a] u = Relu(x) [pin] v = Exp(u) [c] y = Softmax(v) }")
    stated = {value.name: value.type.tensor_type.elem_type for value in result.graph.value_info}
    assert stated == {name: types(result)[name] for name in stated}
    assert stated["u"] == FLOAT16
    assert stated["v"] == FLOAT


def test_one_cast_for_all_consumers_of_a_direction() -> None:
    """The case in which ONNX Runtime's converter writes one node several times."""
    body = "{ a = Relu(x) [pin1] b = MatMul(a, a) [pin2] c = Softmax(a) [pin3] d = Exp(a) e = Add(b, c) y = Add(e, d) }"
    result = same("(float[2,2] x) => (float[2,2] y) " + body, X)
    assert ops(result).count("Cast") == 6  # x, a, b, c, d, y
    assert [node.input[0] for node in result.graph.node if node.name.startswith("pin")] == ["a_fp32"] * 3


def test_duplicate_and_empty_names_become_unique() -> None:
    converted(
        "(float[2] x) => (float[2] y) { [n] a = Relu(x) [n] x_fp16 = Neg(a) b = Exp(x_fp16) [x_to_fp16] y = Relu(b) }"
    )


def test_outputs_keep_their_name_and_type_when_read_inside() -> None:
    result = same("(float[2,2] x) => (float[2,2] y, float[2,2] z) { y = Relu(x) [pin] a = Exp(y) z = Add(a, y) }", X)
    assert types(result)["y_fp16"] == FLOAT16
    assert {node.op_type: list(node.input) for node in result.graph.node}["Exp"] == ["y"]


def test_without_keep_io_types_inputs_and_outputs_are_float16() -> None:
    text = "(float[2,2] x, int64[1] i) => (float[a,2] y, float[2,2] z) { y = Gather(x, i) [pin] z = Exp(x) }"
    result = same(text, X, [1], keep_io_types=False)
    assert types(result)["z_fp32"] == FLOAT
    assert ops(result).count("Cast") == 2


def test_an_input_that_is_an_output() -> None:
    for keep in (True, False):
        converted("(float[2] x) => (float[2] x, float[2] y) { y = Relu(x) }", keep_io_types=keep)


def test_an_input_that_only_pinned_nodes_read_needs_no_cast() -> None:
    result, report = converted("(float[2] x) => (float[2] y) { [pin] y = Relu(x) }")
    assert ops(result) == ["Relu"]
    assert report.counts["casts_to_fp16"] == report.counts["casts_to_fp32"] == 0


def test_weights_are_stored_in_the_types_they_are_read_in() -> None:
    text = """(float[2,2] x) => (float[2,2] y)
        <float[2,2] w = {1.0, 2.0, 3.0, 4.0}, float[2] b = {0.5, 0.25}, float[2] k = {1.0, 2.0}>
        { a = MatMul(x, w) c = Add(a, b) [pin] d = MatMul(c, w) [pin2] y = Add(d, k) }"""
    result = same(text, X)
    stored = {tensor.name: tensor.data_type for tensor in result.graph.initializer}
    assert stored == {"w": FLOAT, "w_fp16": FLOAT16, "b": FLOAT16, "k": FLOAT}


def test_rounding_keeps_signs() -> None:
    text = "(float[6] x) => (float[6] y) <float[6] w = {-1e-9, 1e-9, 70000.0, -70000.0, 0.1, 0.0}> { y = Add(x, w) }"
    result, _ = converted(text)
    stored = onnx.numpy_helper.to_array(result.graph.initializer[0])
    np.testing.assert_array_equal(stored, np.array([-0.0, 0.0, 65504, -65504, 0.1, 0.0], np.float16))
    assert np.signbit(stored).tolist() == [True, False, False, True, False, False]


def test_infinite_and_nan_weights_are_no_overflow() -> None:
    proto = parsed("(float[3] x) => (float[3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add(x, w) }")
    proto.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array([np.inf, -np.inf, np.nan], np.float32), "w")
    )
    result, _ = converted(proto)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(result.graph.initializer[0]), [np.inf, -np.inf, np.nan])


def test_a_weight_that_is_an_output() -> None:
    text = "(float[2] x) => (float[2] y, float[2] w) <float[2] w = {1.5, 2.5}> { y = Add(x, w) }"
    kept, _ = converted(text)
    assert {t.name: t.data_type for t in kept.graph.initializer} == {"w": FLOAT, "w_fp16": FLOAT16}
    half, _ = converted(text, keep_io_types=False)
    assert {t.name: t.data_type for t in half.graph.initializer} == {"w": FLOAT16}


def test_an_initializer_that_the_caller_may_override_stays_an_input() -> None:
    text = "(float[2] x, float[2] w = {1.5, 2.5}) => (float[2] y) { y = Add(x, w) }"
    kept, _ = converted(text)
    assert types(kept)["w"] == FLOAT
    assert ops(kept) == ["Cast", "Cast", "Add", "Cast"]
    half, _ = converted(text, keep_io_types=False)
    assert half.graph.initializer[0].data_type == FLOAT16
    assert ops(half) == ["Add"]


@pytest.mark.parametrize("value", ["value = float[2] {0.5, 3.0}", "value_floats = [0.5, 3.0]", "value_float = 2.0"])
def test_float_constants(value: str) -> None:
    result = same(
        f"(float[2,2] x) => (float[2,2] y) {{ c = Constant<{value}>() a = Add(x, c) [pin] y = Mul(a, c) }}", X
    )
    assert {t.name: t.data_type for t in result.graph.initializer} == {"c": FLOAT, "c_fp16": FLOAT16}


def test_a_float_constant_that_is_an_output() -> None:
    same("(float[2,2] x) => (float[2,2] y, float[2] c) { c = Constant<value_floats = [0.5, 3.0]>() y = Add(x, c) }", X)


def test_integer_constants_stay_nodes() -> None:
    result = same("(float[2,2] x) => (float[4] y) { s = Constant<value_ints = [-1]>() y = Reshape(x, s) }", X)
    assert "Constant" in ops(result)


def test_constant_of_shape_with_and_without_a_value() -> None:
    text = """(float[2,2] x) => (float[a,b] y) { s = Shape(x) u = ConstantOfShape<value = float[1] {0.25}>(s)
        z = ConstantOfShape(s) [pin] v = ConstantOfShape<value = float[1] {0.5}>(s) a = Add(x, u)
        b = Add(a, z) y = Add(b, v) }"""
    result = same(text, X)
    assert (types(result)["u"], types(result)["z"], types(result)["v"]) == (FLOAT16, FLOAT16, FLOAT)


def test_shape_reads_what_is_there() -> None:
    result = same("(float[2,2] x) => (int64[2] s, float[2,2] y) { [pin] a = Exp(x) s = Shape(a) y = Relu(a) }", X)
    assert {node.op_type: list(node.input) for node in result.graph.node}["Shape"] == ["a"]


def test_casts_inside_fp16_regions() -> None:
    text = """(float[2,2] x) => (float[2,2] y, int64[2,2] n) { a = Relu(x) n = Cast<to = 7>(a) b = Cast<to = 1>(n)
        c = Cast<to = 11>(a) d = Cast<to = 1>(c) e = Cast<to = 1>(a) [pin] f = Cast<to = 1>(n) g = Add(b, d)
        h = Add(g, e) y = Add(h, f) }"""
    found = types(same(text, X))
    assert [found[name] for name in "abdef"] == [FLOAT16, FLOAT16, FLOAT16, FLOAT16, FLOAT]


def test_float16_parts_that_are_there_already() -> None:
    text = "(float[2,2] x) => (float[2,2] y) { a = Cast<to = 10>(x) b = Relu(a) c = Cast<to = 1>(b) y = Add(c, x) }"
    assert types(same(text, X))["c"] == FLOAT16


def test_doubles_stay_doubles() -> None:
    text = "(float[2,2] x) => (double[2,2] y) { a = Relu(x) b = Cast<to = 11>(a) y = Exp(b) }"
    assert types(same(text, X))["b"] == onnx.TensorProto.DOUBLE


def test_resize_scales_and_roi_stay_float32() -> None:
    text = """(float[1,1,2,2] x) => (float[1,1,4,4] y)
        <float[8] roi = {0.0,0.0,0.0,0.0,1.0,1.0,1.0,1.0}, float[4] scales = {1.0,1.0,2.0,2.0}>
        { a = Relu(x) y = Resize<mode = "linear">(a, roi, scales) }"""
    found = types(same(text, X[None, None]))
    assert (found["roi"], found["scales"], found["a"]) == (FLOAT, FLOAT, FLOAT16)


def test_omitted_inputs_and_outputs() -> None:
    text = """(float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] scales = {1.0,1.0,2.0,2.0}, float hi = {2.5}>
        { a = Clip(x, , hi) y = Resize<mode = "nearest">(a, , scales) }"""
    same(text, X[None, None])


def test_topk_where_and_comparisons() -> None:
    text = """(float[2,2] x) => (float[2,1] y, int64[2,1] i) <int64[1] k = {1}, float z = {0.75}>
        { c = Greater(x, z) w = Where(c, x, z) y, i = TopK(w, k) }"""
    assert types(same(text, X))["w"] == FLOAT16


def test_argmax_and_split() -> None:
    text = """(float[2,2] x) => (float[2,1] a, float[2,1] d, int64[1,2] i)
        { a, b = Split<axis = 1>(x) [pin] d = Exp(b) i = ArgMax(x) }"""
    same(text, X)


def test_layer_normalization_statistics_stay_float32() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x) => (float[2,2] y, float[2,1] m)
        <float[2] s = {1.0, 2.0}> { y, m, i = LayerNormalization(x, s) }"""
    found = types(same(text, X))
    assert (found["m"], found["i"], found["y_fp16"]) == (FLOAT, FLOAT, FLOAT16)


def test_batch_normalization_and_convolution() -> None:
    text = """(float[1,1,2,2] x) => (float[1,1,2,2] y)
        <float[1,1,1,1] w = {2.0}, float[1] b = {0.5}, float[1] v = {1.5}>
        { a = Conv(x, w, b) y = BatchNormalization(a, b, b, v, v) }"""
    same(text, X[None, None])


def test_non_max_suppression_stays_float32() -> None:
    text = """(float[1,2,4] x) => (int64[n,3] y) <float[1,1,2] s = {0.9, 0.8}, float t = {0.5}, int64 m = {5}>
        { a = Relu(x) y = NonMaxSuppression(a, s, m, t, t) }"""
    result = same(text, [[[0, 0, 1, 1], [0, 0, 1, 2]]])
    assert {t.name: t.data_type for t in result.graph.initializer}["s"] == FLOAT


def test_range_stays_float32() -> None:
    result = same(
        "(float x) => (float[n] y) <float z = {0.0}, float d = {1.0}> { r = Range(z, x, d) y = Relu(r) }", 5.0
    )
    assert types(result)["r"] == FLOAT


def test_generators_stay_float32() -> None:
    text = """(float[2,2] x) => (float[2,2] y) { r = RandomUniform<shape = [2,2], high = 1e-6>()
        l = RandomUniformLike<high = 1e-6>(x) i = Cast<to = 7>(x) e = EyeLike<dtype = 1, k = 1>(i)
        a = Add(r, l) b = Add(a, e) y = Add(b, x) }"""
    found = types(same(text, X))
    assert [found[name] for name in "rleb"] == [FLOAT, FLOAT, FLOAT, FLOAT16]


def test_cast_like_and_pow_and_one_hot() -> None:
    text = """(float[2,2] x, int64[2] i) => (float[2,2] y) <float[2] v = {0.0, 1.0}, float e = {2.0}, int64 d = {2}>
        { o = OneHot(i, d, v) p = Pow(x, e) c = CastLike(i, x) a = Add(o, p) y = Add(a, c) }"""
    same(text, X, [1, 0])


def test_one_hot_depth_is_a_size_and_stays_float32() -> None:
    text = """(float[1] i) => (float[1,n] y) <float[2] v = {0.0, 1.0}, float d = {2051.0}> { y = OneHot(i, d, v) }"""
    (hot,) = run(same(text, [2050.0]), [2050.0])
    assert hot.shape == (1, 2051)
    assert hot.argmax() == 2050


def test_unknown_operators_get_float32() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2,2] x) => (float[2,2] y)
        { a = Relu(x) b = com.microsoft.Gelu(a) y = Neg(b) }"""
    result, _ = converted(onnx.parser.parse_model(text))
    assert ops(result) == ["Cast", "Relu", "Cast", "Gelu", "Neg"]


def test_sequences_get_float32() -> None:
    text = """(float[2,2] x) => (float[2,2] y) <int64 i = {0}>
        { a = Relu(x) s = SequenceConstruct(a, a) b = SequenceAt(s, i) y = Neg(b) }"""
    same(text, X)


def test_dynamic_dimensions_stay() -> None:
    result, _ = converted('(float["batch", 3] x) => (float["batch", 3] y) { a = Relu(x) y = Neg(a) }')
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in result.graph.value_info
    }
    assert set(map(tuple, shapes.values())) == {("batch", 3)}


def test_two_conversions_give_identical_bytes() -> None:
    text = """(float[2,2] x) => (float[2,2] y) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}>
        { a = MatMul(x, w) [pin] b = Exp(a) c = Add(b, w) [pin2] d = Mul(c, w) y = Relu(d) }"""
    assert len({converted(text)[0].SerializeToString() for _ in range(2)}) == 1


def test_metadata_stays() -> None:
    proto = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.metadata_props.add(key="k", value="v")
    proto.graph.node[0].metadata_props.add(key="scope", value="decoder")
    result, _ = converted(proto)
    assert [(entry.key, entry.value) for entry in result.metadata_props] == [("k", "v")]
    assert next(node for node in result.graph.node if node.op_type == "Relu").metadata_props[0].value == "decoder"


def test_a_model_without_the_default_domain_gets_it_for_its_casts() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["ai.onnx.ml": 3]> g (float[2] x) => (float[2] y)
        { y = ai.onnx.ml.Binarizer<threshold = 1.0>(x) }"""
    )
    result, _ = converted(proto, keep_io_types=False)
    assert ops(result) == ["Cast", "Binarizer", "Cast"]


def test_bits_are_not_values() -> None:
    text = """<ir_version: 10, opset_import: ["": 26]> g (float[2] x) => (int32[2] y)
        { a = Relu(x) y = BitCast<to = 6>(a) }"""
    result, _ = convert_in_memory(parsed(text), only())
    assert [decision.rule for decision in result.decisions.nodes.values()] == ["none", "no_fp16_kernel"]


def test_io_types_are_kept_by_name() -> None:
    text = "(float[2,2] x, float[2,2] z) => (float[2,2] y, float[2,2] v) { y = Add(x, z) v = Relu(y) }"
    _, result = convert_in_memory(parsed(text), only(), keep_io_types=["x", "v"])
    onnx.checker.check_model(result, full_check=True)
    found = types(result)
    assert (found["x"], found["z"], found["y"], found["v"]) == (FLOAT, FLOAT16, FLOAT16, FLOAT)


def test_large_weights_can_stay_float32_and_be_cast_at_run_time() -> None:
    text = """(float[2,2] x) => (float[2,2] y) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}, float[2] b = {0.5, 0.25}>
        { a = MatMul(x, w) y = Add(a, b) }"""
    _, result = convert_in_memory(parsed(text), only(), init_conversion_max_bytes=8)
    onnx.checker.check_model(result, full_check=True)
    assert {t.name: t.data_type for t in result.graph.initializer} == {"w": FLOAT, "b": FLOAT16}
    assert ["w"] in [list(node.input) for node in result.graph.node if node.op_type == "Cast"]
    np.testing.assert_allclose(run(result, X)[0], run(parsed(text), X)[0], rtol=2e-3)


def test_one_tensor_that_is_two_outputs() -> None:
    """The checker lets it pass, ONNX Runtime does not; it must not become two tensors here."""
    proto = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.graph.output.append(proto.graph.output[0])
    _, result = convert_in_memory(proto, only())
    assert [value.name for value in result.graph.output] == ["y", "y"]
    assert ops(result) == ["Cast", "Relu", "Cast"]


@pytest.mark.parametrize("name", ["a/b", "a b", "ä→\"'", "x_fp16", "x_to_fp16", "cast", ".", "0", "a" * 300])
def test_hostile_names(name: str) -> None:
    proto = parsed("(float[2] x) => (float[2] y) { [n] h = Relu(x) [pin] k = Exp(h) y = Neg(k) }")
    for node in proto.graph.node:
        node.name = node.name if node.name == "pin" else name
        for names in (node.input, node.output):
            renamed = [name if one == "h" else one for one in names]
            del names[:]
            names.extend(renamed)
    converted(proto)


def test_bfloat16_parts_stay() -> None:
    text = """(float[2,2] x) => (float[2,2] y) { a = Relu(x) b = Cast<to = 16>(a) c = Add(b, b)
        d = Cast<to = 1>(c) y = Neg(d) }"""
    _, result = convert_in_memory(parsed(text), only())
    onnx.checker.check_model(result, full_check=True)
    bfloat16 = onnx.TensorProto.BFLOAT16
    assert [types(result)[name] for name in "abcd"] == [FLOAT16, bfloat16, bfloat16, FLOAT16]


def test_quantized_parts_are_left_alone() -> None:
    text = """(float[2,2] x) => (float[2,2] y) <float s = {0.1}, int8 z = {0}>
        { a = Relu(x) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) y = Neg(d) }"""
    result = same(text, X)
    assert {t.name: t.data_type for t in result.graph.initializer}["s"] == FLOAT
    assert types(result)["d"] == FLOAT


def test_a_custom_operator_moves_when_it_is_told() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[2] x) => (float[2] y)
        { a = Relu(x) b = acme.Magic(a) y = Neg(b) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("b", FLOAT, [2]))
    _, result = convert_in_memory(proto, only(include=Lists(op=("acme::Magic",))))
    assert ops(result) == ["Cast", "Relu", "Magic", "Neg", "Cast"]
    _, result = convert_in_memory(proto, only())
    assert ops(result) == ["Cast", "Relu", "Cast", "Magic", "Cast", "Neg", "Cast"]


def test_optionals_stay_float32() -> None:
    text = """(float[2,2] x) => (float[2,2] y) { a = Relu(x) o = Optional(a) b = OptionalGetElement(o) y = Neg(b) }"""
    _, result = convert_in_memory(parsed(text), only())
    onnx.checker.check_model(result, full_check=True)
    assert types(result)["b"] == FLOAT
