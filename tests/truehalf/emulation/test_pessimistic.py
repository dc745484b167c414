"""Which sums are made explicit and which are listed; whole graphs of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.messages import expect
from tests.onnx_backend import SAMPLE_AND_WHOLE, cases
from tests.truehalf.conversion.test_backend_nodes import converted
from tests.truehalf.emulation.emulation import assert_same_bits, op_count, parsed, run
from tests.truehalf.emulation.splitting import feeds_of, pessimistic
from truehalf.codes import codes_in
from truehalf.emulation.emulate import emulate
from truehalf.emulation.half_nodes import BLOCK, NOT_SPLIT
from truehalf.emulation.pessimistic import _RULES, split_sums
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import StageError
from truehalf.ir.ops import Trait, with_trait

ROW = 300  # two blocks and a part of one


def blockwise(terms: np.ndarray) -> np.ndarray:
    """The sum over the last axis as split_sums states it, in numpy alone."""
    total = None
    for start in range(0, terms.shape[-1], BLOCK):
        part = terms[..., start : start + BLOCK].astype(np.float32).sum(-1).astype(np.float16)
        total = part if total is None else total + part
    assert total is not None
    return total


def test_the_bits_are_those_of_blocks_of_128() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, ROW)).astype(np.float16), rng.standard_normal((ROW, 5)).astype(np.float16)
    products = (x[:, None, :].astype(np.float64) * w.T.astype(np.float64)).astype(np.float32)
    y = pessimistic(parsed("g (float16[4,300] x, float16[300,5] w) => (float16[4,5] y) { y = MatMul(x, w) }"), x=x, w=w)
    # FP32 sums of a block may differ in their last bit, so a rounding may fall to the other side, rarely
    differing = y["y"].view(np.uint16) != blockwise(products).view(np.uint16)
    assert differing.mean() <= 0.1
    softmax = pessimistic(parsed("g (float16[4,300] x) => (float16[4,300] y) { y = Softmax(x) }"), x=x)["y"]
    powers = np.exp((x - x.max(-1, keepdims=True)).astype(np.float32)).astype(np.float16)
    assert_same_bits(softmax, powers / blockwise(powers)[:, None])


def test_bodies_are_split_and_short_sums_stay() -> None:
    model = parsed(
        """g (float16[2,300] x, float16[300,4] w, bool c) => (float16[2,4] y) {
            y = If(c) <
                then_branch = t () => (float16[2,4] p) { p = MatMul(x, w) },
                else_branch = e () => (float16[2,4] q) { q = MatMul(x, w) }
            >
        }"""
    )
    split = split_sums(model)
    assert op_count(split, "MatMul") == 2 * 3
    feeds = feeds_of(parsed("g (float16[2,300] x, float16[300,4] w) => (float16[2,4] y) { y = MatMul(x, w) }"))
    y = run(split, c=np.array(True), **feeds)["y"]
    np.testing.assert_allclose(y, run(model, c=np.array(True), **feeds)["y"], atol=0.1)
    short = parsed("g (float16[2,128] x, float16[128,4] w) => (float16[2,4] y) { y = MatMul(x, w) }")
    assert [node.op_type for node in split_sums(short).graph] == ["MatMul"]


def test_float32_nodes_stay() -> None:
    model = parsed(
        "g (float[2,300] x, float16[2,300] h) => (float[2,300] y, float16[2,300] z) { y = Softmax(x)  z = Neg(h) }"
    )
    assert list(ir.to_proto(split_sums(model)).graph.node) == list(ir.to_proto(model).graph.node)


def assert_not_split(left: Mapping[str, str], expected: Mapping[str, list[Any]]) -> None:
    """These nodes, in this order, each with a code (None: with none) and facts in its reason."""
    assert list(left) == list(expected)
    for name, (code, *facts) in expected.items():
        assert codes_in(left[name]) == ([] if code is None else [code])
        expect(left[name], code, *facts)


def test_what_is_left_is_listed() -> None:
    text = """g (float16[N,K] x, float16[K,M] w, float16[1,8,4,4] p, int64 n) =>
        (float16[N,M] a, float16[N] b, float16[1,8,3,3] d, float16[1,8,4,4] e) {
            a = Gemm(x, w)
            [sum] b = Einsum<equation = "...k->...">(x)
            d = AveragePool<kernel_shape = [2, 2], ceil_mode = 1>(p)
            e = CumSum(p, n)
        }"""
    split = split_sums(parsed(text))
    assert_not_split(
        split.meta[NOT_SPLIT],
        {
            "Gemm -> a": ["sizes-unknown", "axis"],
            "sum": [None, "Einsum"],
            "AveragePool -> d": [None, "AveragePool", "ceil_mode"],
            "CumSum -> e": [None, "axis"],
        },
    )


def test_sums_of_a_model_that_onnx_cannot_raise_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnx.version_converter, "convert_version", refused)
    old = split_sums(parsed("g (float16[N,4] x) => (float16[N,4] y) { y = Softmax<axis = 1>(x) }", opset=12))
    assert_not_split(old.meta[NOT_SPLIT], {"Softmax -> y": [None, "Softmax"]})


def test_only_operators_that_accumulate_have_a_rule() -> None:
    assert set(_RULES) <= with_trait(Trait.ACCUMULATES)


# Text of the node, opset, and whether it adds up; x is [1, 2, 4, 4], h [8], both FP16.
INSIDE = {
    "Resize, linear": ('y = Resize<mode = "linear">(x, , s)', 18, True),
    "Resize, cubic": ('y = Resize<mode = "cubic">(x, , s)', 18, True),
    "Resize": ("y = Resize(x, , s)", 18, False),
    "GridSample": ("y = GridSample(x, g)", 20, True),
    "GridSample, nearest": ('y = GridSample<mode = "nearest">(x, g)', 20, False),
    "ScatterND, add": ('y = ScatterND<reduction = "add">(h, i, h)', 18, True),
    "ScatterND": ("y = ScatterND(h, i, h)", 18, False),
    "ScatterElements, mul": ('y = ScatterElements<reduction = "mul">(h, e, h)', 18, True),
    "LRN": ("y = LRN<size = 3>(x)", 18, True),
    "GlobalLpPool": ("y = GlobalLpPool(x)", 18, True),
    "ScatterElements": ("y = ScatterElements(h, e, h)", 18, False),
    "Col2Im": ("y = Col2Im(x, p, q)", 18, True),
    "ReduceProd": ("y = ReduceProd(x)", 18, True),
    "Max": ("y = Max(h, h, h)", 18, False),
}


@pytest.mark.parametrize("case", INSIDE)
def test_what_adds_up_inside_is_listed(case: str) -> None:
    node, opset, listed = INSIDE[case]
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : {opset}]>
        g (float16[1,2,4,4] x, float16[8] h, float16[1,4,4,2] g, int64[8,1] i, int64[8] e) => (float16 y)
        <float[4] s = {{1, 1, 2, 2}}, int64[2] p = {{2, 2}}, int64[2] q = {{1, 1}}> {{ {node} }}"""
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    op_type = case.split(",")[0]
    assert_not_split(
        split_sums(ir.from_proto(proto)).meta[NOT_SPLIT], {f"{op_type} -> y": [None, op_type]} if listed else {}
    )


def test_an_unknown_operator_is_listed_whichever_of_its_inputs_is_half() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        g (int64[2] i, float16[2] x) => (float16[2] y, float16[2] z) { y = own.Embed(i, x)  z = Novel(i, x) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    for value in model.graph.outputs:
        value.type = ir.TensorType(ir.DataType.FLOAT16)
    assert_not_split(
        split_sums(model).meta[NOT_SPLIT], {"Embed -> y": [None, "own:Embed"], "Novel -> z": [None, "Novel"]}
    )


def test_sums_over_lengths_that_only_a_run_knows_are_listed() -> None:
    text = """g (float16[2,rows,inner] x, float16[2,inner,3] w) =>
        (float16[2,rows,3] a, float16[2,rows,1] b, float16[2,rows,inner] c)
        { [m] a = MatMul(x, w)  [r] b = ReduceMean<axes = [2]>(x)  [s] c = Softmax(x) }"""
    length = ["sizes-unknown", "length"]
    assert_not_split(split_sums(parsed(text)).meta[NOT_SPLIT], {"m": length, "r": length, "s/ReduceSum": length})


@pytest.mark.parametrize("whole", SAMPLE_AND_WHOLE)
def test_backend_tests_keep_their_function(whole: bool) -> None:
    """Every operator test that has a sum: a valid graph, and the same within the roundings of a few steps."""
    compared, wrong = 0, []
    for name, proto, inputs in cases(whole):
        if any(word in name for word in ("bernoulli", "training", "dropout", "random")):
            continue
        model = ir.from_proto(converted(proto, keep_io_types=False)[0])
        split = split_sums(model)
        if [node.op_type for node in split.graph] == [node.op_type for node in model.graph]:
            continue
        onnx.checker.check_model(ir.to_proto(split), full_check=True)
        arrays = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in inputs]
        feeds = dict(zip([str(value.name) for value in model.graph.inputs], arrays, strict=True))
        try:
            once = EmulatedSession(model).run(feeds)
        except StageError:  # no kernel for it in FP32 either
            continue
        result = EmulatedSession(model, pessimistic=True).run(feeds)
        compared += 1
        if not all(np.allclose(result[key], once[key], rtol=2e-2, atol=2e-2, equal_nan=True) for key in once):
            wrong.append(name)
    assert wrong == []
    assert compared > (100 if whole else 30)


def test_two_runs_give_the_same_bytes() -> None:
    text = "g (float16[2,80,6,6] x, float16[4,80,3,3] w) => (float16[2,4,4,4] y) { y = Conv(x, w) }"
    first, second = (ir.to_proto(emulate(split_sums(parsed(text)))) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_the_session_says_what_it_did() -> None:
    model = parsed("g (float16[N,K] x, float16[K,2] w) => (float16[N,2] y) { [m] y = Gemm(x, w) }")
    session = EmulatedSession(model, pessimistic=True)
    assert_not_split(session.not_split, {"m": ["sizes-unknown", "axis"]})
    assert EmulatedSession(model).not_split == {}
    assert session.run({"x": np.ones((1, 3), np.float32), "w": np.ones((3, 2), np.float32)})["y"].tolist() == [[3, 3]]
