"""The graph that emulation makes: movement, constants, casts, subgraphs, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import raises
from tests.truehalf.emulation.emulation import HALF_BITS, assert_same_bits, op_count, parsed, run
from truehalf.emulation.emulate import emulate
from truehalf.runtime.ort import Session


def test_movement_is_not_rounded() -> None:
    model = parsed(
        """g (float[2,3] x) => (float16[3,4] y)
        <int64[2] shape = {3, 2}, int64[4] pads = {0, 1, 0, 1}, float16 fill = {15360}>
        {
            h = Cast<to = 10>(x)
            t = Transpose(h)
            r = Reshape(t, shape)
            n = Neg(r)
            c = Concat<axis = 1>(n, r)
            p, q = Split<axis = 1>(c)
            m = Max(p, q)
            y = Pad(m, pads, fill)
        }"""
    )
    assert op_count(emulate(model), "Cast") == 2  # of x alone
    x = np.array([[1, -2, 3], [4.0001, -5, 70000]], np.float32)
    y = run(model, x=x)["y"]
    with np.errstate(over="ignore"):
        expected = np.pad(np.abs(x.astype(np.float16).T), ((0, 0), (1, 1)), constant_values=1)
    assert_same_bits(y, expected)


def test_constants_keep_their_numbers() -> None:
    model = parsed(
        """g (float16[4] x) => (float16[4] y, float16[2] z)
        <float16[4] w = {1, 1023, 31743, 64512}, int64[1] two = {2}>
        {
            k = Constant<value = float16[4] {1, 32768, 15360, 31744}>()
            z = ConstantOfShape<value = float16[1] {12345}>(two)
            s = Add(x, w)
            y = Add(s, k)
        }"""
    )
    bits = {"w": [1, 1023, 31743, 64512], "k": [1, 32768, 15360, 31744]}
    w, k = (np.array(value, np.uint16).view(np.float16) for value in bits.values())
    result = run(model, x=np.zeros(4, np.float16))
    with np.errstate(invalid="ignore"):
        assert_same_bits(result["y"], w + k)
    assert_same_bits(result["z"], np.full(2, 12345, np.uint16).view(np.float16))
    assert emulate(model).graph.initializers["w"].const_value.dtype == ir.DataType.FLOAT
    assert model.graph.initializers["w"].const_value.dtype == ir.DataType.FLOAT16


def test_float_attributes_are_rounded() -> None:
    model = parsed("g (float16[1] x) => (float16[1] y) { y = Clip<max = 0.1>(x) }", opset=6)
    assert run(model, x=np.ones(1, np.float16))["y"].item() == np.float16(0.1)


def test_resize_scales_stay_float32() -> None:
    model = parsed(
        """g (float16[1,1,2,2] x) => (float16[1,1,3,3] y)
        <float[4] scales = {1.0, 1.0, 1.5, 1.5}> { y = Resize<mode = "linear">(x, , scales) }"""
    )
    emulated = emulate(model)
    np.testing.assert_array_equal(emulated.graph.initializers["scales"].const_value.numpy(), [1, 1, 1.5, 1.5])
    assert run(model, x=np.ones((1, 1, 2, 2), np.float16))["y"].shape == (1, 1, 3, 3)


def test_type_attributes_are_widened() -> None:
    model = parsed(
        """g (float16[2,2] x) => (float16[2,2] y)
        { e = EyeLike<dtype = 10>(x)  n = RandomNormalLike<dtype = 10, seed = 1.0>(x)  z = Mul(n, e)  y = Add(z, x) }"""
    )
    y = run(model, x=np.zeros((2, 2), np.float16))["y"]
    assert y[0, 0] != 0
    assert y[0, 1] == y[1, 0] == 0


def test_sequences() -> None:
    model = parsed(
        """g (float16[2] x) => (float16[4] y)
        { a = Add(x, x)  s = SequenceConstruct(x, a)  y = ConcatFromSequence<axis = 0>(s) }"""
    )
    assert run(model, x=np.array([1, 40000], np.float16))["y"].tolist() == [1, 40000, 2, np.inf]


# --- casts ------------------------------------------------------------------------------------------------------------


def test_cast_to_half_rounds() -> None:
    model = parsed("g (float[N] x) => (float[N] y) { h = Cast<to = 10>(x)  y = Cast<to = 1>(h) }")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, HALF_BITS.astype(np.float32), np.float32([65519.99, 65520, 2**-25, 2**-25 * 1.001, 1e-30])])
    with np.errstate(all="ignore"):
        assert_same_bits(run(model, x=x)["y"], x.astype(np.float16))


@pytest.mark.parametrize(("onnx_type", "number", "dtype"), [("int64", 7, np.int64), ("int32", 6, np.int32)])
def test_cast_between_half_and_integers(onnx_type: str, number: int, dtype: type) -> None:
    model = parsed(
        f"""g ({onnx_type}[N] x) => (float16[N] h, {onnx_type}[N] y)
        {{ h = Cast<to = 10>(x)  y = Cast<to = {number}>(h) }}"""
    )
    x = np.array([0, 1, -1, 2047, 2049, 2051, 65504, -65519], dtype)
    result = run(model, x=x)
    assert_same_bits(result["h"], x.astype(np.float16))
    np.testing.assert_array_equal(result["y"], x.astype(np.float16).astype(dtype))
    assert run(parsed("g (int64[1] x) => (float16[1] y) { y = Cast<to = 10>(x) }"), x=np.array([65520]))["y"] == np.inf


def test_cast_to_bool_and_double() -> None:
    model = parsed("g (float16[N] x) => (bool[N] b, double[N] d) { b = Cast<to = 9>(x)  d = Cast<to = 11>(x) }")
    x = np.array([0, 1e-7, 0.1], np.float16)
    result = run(model, x=x)
    assert result["b"].tolist() == [False, True, True]
    np.testing.assert_array_equal(result["d"], x.astype(np.float64))


def test_cast_of_half_to_half_or_float_is_an_identity() -> None:
    model = parsed(
        """g (float16[N] x, float[N] f) => (float16[N] y, float[N] z, float16[N] l)
        { a = Add(x, x)  h = Cast<to = 10>(a)  y = Cast<to = 10>(h)  z = CastLike(h, f)  l = CastLike(f, x) }"""
    )
    emulated = emulate(model)
    assert op_count(emulated, "Identity") == 3
    assert op_count(emulated, "Cast") == 2 * 3  # x, a and l
    result = run(model, x=np.float16([1]), f=np.float32([0.1]))
    assert [result[name].item() for name in "yzl"] == [2, 2, np.float16(0.1)]


def test_float32_bfloat16_and_double_parts_are_untouched() -> None:
    model = parsed(
        """g (float[1] x, double[1] d) => (float[1] y, double[1] e, float[1] z)
        <float[1] tiny = {0.0001}>
        {
            y = Add(x, tiny)
            e = Mul(d, d)
            b = Cast<to = 16>(x)
            h = Cast<to = 10>(b)
            z = Cast<to = 1>(h)
        }"""
    )
    emulated = emulate(model)
    assert [node.op_type for node in emulated.graph] == ["Add", "Mul", "Cast", "Cast", "Cast", "Identity"]
    session = Session(emulated)
    result = session.run({"x": np.float32([1]), "d": np.float64([1 + 1e-9])})
    assert result["y"] == np.float32(1) + np.float32(0.0001)
    assert result["e"] == (1 + 1e-9) ** 2


# --- subgraphs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [True, False])
def test_if_captures_rounded_values(condition: bool) -> None:
    model = parsed(
        """g (float16[1] x, bool c) => (float16[1] y) {
            a = Add(x, x)
            y = If(c) <
                then_branch = t () => (float16[1] o1) { p = Add(a, x)  o1 = Sub(p, x) },
                else_branch = e () => (float16[1] o2) { o2 = Mul(a, x) }
            >
        }"""
    )
    x = np.float16([1025])
    with np.errstate(over="ignore"):
        expected = ((x + x) + x) - x if condition else (x + x) * x
        assert_same_bits(run(model, x=x, c=np.array(condition))["y"], np.float16(expected))


def test_loop_carries_rounded_values() -> None:
    model = parsed(
        """g (float16[1] x, int64 n, bool go) => (float16[1] last, float16[K,1] all) {
            last, all = Loop(n, go, x) <
                body = b (int64 i, bool c, float16[1] s) => (bool c2, float16[1] s2, float16[1] o) {
                    c2 = Identity(c)
                    s2 = Mul(s, x)
                    o = Add(s2, x)
                }
            >
        }"""
    )
    x = np.float16([1.1])
    state, seen = x, []
    for _ in range(5):
        state = state * x
        seen.append(state + x)
    result = run(model, x=x, n=np.array(5), go=np.array(True))
    assert_same_bits(result["last"], state)
    assert_same_bits(result["all"], np.stack(seen))


def test_scan() -> None:
    model = parsed(
        """g (float16[1] x, float16[4,1] xs) => (float16[1] last, float16[4,1] all) {
            last, all = Scan<
                num_scan_inputs = 1,
                body = b (float16[1] s, float16[1] e) => (float16[1] s2, float16[1] o) {
                    s2 = Add(s, e)
                    o = Identity(s2)
                }
            >(x, xs)
        }"""
    )
    xs = np.float16([[1], [1], [1], [1]])
    assert run(model, x=np.float16([2048]), xs=xs)["last"].item() == 2048


# --- inputs, outputs, names -------------------------------------------------------------------------------------------


def test_inputs_and_outputs_keep_name_order_and_shape() -> None:
    model = parsed("g (float16[N,2] x, int64[1] i) => (float16[N,2] y, int64[1] i2) { y = Mul(x, x)  i2 = Neg(i) }")
    model.metadata_props["truehalf.io_spec"] = "{}"
    emulated = emulate(model)
    for before, after in ((model.graph.inputs, emulated.graph.inputs), (model.graph.outputs, emulated.graph.outputs)):
        assert [(value.name, value.shape) for value in before] == [(value.name, value.shape) for value in after]
    assert [value.dtype for value in emulated.graph.inputs] == [ir.DataType.FLOAT, ir.DataType.INT64]
    assert [value.dtype for value in emulated.graph.outputs] == [ir.DataType.FLOAT, ir.DataType.INT64]
    assert emulated.metadata_props == {"truehalf.io_spec": "{}"}
    assert [value.dtype for value in model.graph.outputs] == [ir.DataType.FLOAT16, ir.DataType.INT64]
    assert [node.op_type for node in model.graph] == ["Mul", "Neg"]


def test_half_inputs_are_rounded() -> None:
    model = parsed("g (float16[1] x) => (float16[1] y) { y = Mul(x, x) }")
    assert Session(emulate(model)).run({"x": np.float32([1.0001])})["y"] == 1


def test_output_that_is_read_inside() -> None:
    model = parsed("g (float16[1] x) => (float16[1] a, float16[1] y) { a = Add(x, x)  y = Sub(a, x) }")
    result = run(model, x=np.float16([40000]))
    assert result["a"] == np.inf
    assert result["y"] == np.inf


def test_all_outputs_of_a_node_are_rounded() -> None:
    model = parsed(
        """g (float16[1,4] x, float16[4] w) => (float16[1,4] y, float[1,1] mean)
        { y, mean = LayerNormalization(x, w)  }"""
    )
    result = run(model, x=np.float16([[1, 2, 3, 4.5]]), w=np.ones(4, np.float16))
    assert result["mean"].item() == 2.625


def test_names_that_are_taken() -> None:
    model = parsed(
        """g (float16[1] x) => (float16[1] y)
        { "a/unrounded" = Add(x, x)  a = Mul("a/unrounded", x)  "a/half" = Mul(a, x)  y = Add("a/half", x) }"""
    )
    assert run(model, x=np.float16([2]))["y"].item() == 18


def test_names_of_nodes_that_are_taken() -> None:
    model = parsed("""g (float16[1] x) => (float16[1] y) { ["a/to_half"] a = Mul(x, x)  ["a/to_float"] y = Neg(a) }""")
    names = [node.name for node in emulate(model).graph]
    assert len(set(names)) == len(names) and {"a/to_half", "a/to_float"} <= set(names)


def test_an_initializer_without_a_type_has_that_of_its_tensor() -> None:
    model = parsed("g (float16[1] x) => (float16[1] y) <float16[1] w = {16384}> { y = Mul(x, w) }")  # the bits of 2
    model.graph.initializers["w"].type = None
    emulated = emulate(model)
    assert emulated.graph.initializers["w"].dtype == ir.DataType.FLOAT
    assert run(model, x=np.float16([3]))["y"].item() == 6


def group_normalized(opset: int, axes: int, groups: int, after: str) -> onnx.ModelProto:
    """A FP16 GroupNormalization, whose type onnx does not infer, and what follows; no type is stated."""
    sides = ",".join(["2", "6", *["5"] * (axes - 2)])
    out = ",".join(f"d{i}" for i in range(axes))
    weights = 6 if opset >= 21 else groups
    return onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : {opset}]> g (float[{sides}] x) => (float[{out}] y)
        <float[{weights}] one = {{{", ".join(["1"] * weights)}}}> {{
            h = Cast<to = 10>(x)  s = Cast<to = 10>(one)  b = Sub(s, s)
            z = GroupNormalization<num_groups = {groups}>(h, s, b)  {after}  y = Cast<to = 1>(k) }}"""
    )


GROUPS = [
    (21, 4, 2, "k = Abs(z)"),
    (21, 3, 3, "m = Cast<to = 1>(z) n = Cast<to = 10>(m) k = Mul(n, z)"),
    (22, 4, 6, "t = Transpose(z) v = Transpose(t) k = Relu(v)"),
    *((21 + seed % 2, 3 + seed % 3, (1, 2, 3, 6)[seed % 4], "k = Max(z, h)") for seed in range(5)),
]


@pytest.mark.parametrize(("opset", "axes", "groups", "after"), GROUPS)
def test_types_that_onnx_does_not_infer_are_those_of_the_schema(opset: int, axes: int, groups: int, after: str) -> None:
    proto = group_normalized(opset, axes, groups, after)
    x = np.random.default_rng(axes).normal(size=(2, 6, *[5] * (axes - 2))).astype(np.float32)
    y = run(ir.from_proto(proto), x=x)["y"]
    assert y.shape == x.shape and (y == y.astype(np.float16)).all()
    rows = x.reshape(2, groups, -1).astype(np.float64)
    z = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    expected: dict[str, Any] = {"Abs": np.abs, "Relu": lambda v: v.clip(0), "Mul": np.square}
    made = next((of for name, of in expected.items() if f"{name}(" in after), lambda v: np.maximum(v, rows))
    np.testing.assert_allclose(y.reshape(rows.shape), made(z), atol=0.02)


def test_values_of_unknown_type_are_refused() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "custom" : 1]>
        g (float16[1] x) => (float16[1] y) { a = custom.Odd(x)  y = Neg(a) }"""
    )
    with raises("sizes-unknown", "'a'", "custom:Odd", "value_info"):
        emulate(ir.from_proto(proto))


def test_an_fp32_model_stays_as_it_is() -> None:
    model = parsed("g (float[1] x) => (float[1] y) { a = Mul(x, x)  y = Neg(a) }")
    assert list(ir.to_proto(emulate(model)).graph.node) == list(ir.to_proto(model).graph.node)
