"""Sums made explicit: the same function, but for rounding, and the rounding and the overflow of an FP16 accumulator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from stages.graph.emulate import emulate
from stages.graph.half_nodes import BLOCK
from stages.graph.pessimistic import _MOVES_WITH, _NO_SUMS, _OTHER_SUMS, _RULES, NOT_SPLIT, split_sums
from stages.io import StageError
from stages.ort.emulated import EmulatedSession
from tests.stages.graph.emulation import assert_same_bits, op_count, parsed, run
from tests.stages.graph.test_backend_nodes import cases, converted

ROW = 300  # two blocks and a part of one


def feeds_of(model: ir.Model, scale: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        str(value.name): (rng.standard_normal([int(d) for d in value.shape]) * scale).astype(np.float16)  # type: ignore[arg-type]
        for value in model.graph.inputs
    }


def pessimistic(model: ir.Model, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    split = split_sums(model)
    onnx.checker.check_model(ir.to_proto(split), full_check=True)
    assert split.meta[NOT_SPLIT] == {}
    return run(split, **feeds)


def blockwise(terms: np.ndarray) -> np.ndarray:
    """The sum over the last axis as split_sums states it, in numpy alone."""
    total = None
    for start in range(0, terms.shape[-1], BLOCK):
        part = terms[..., start : start + BLOCK].astype(np.float32).sum(-1).astype(np.float16)
        total = part if total is None else total + part
    assert total is not None
    return total


# One node each, with sums over more than a block: text of the graph's ends and of the node, opset.
SAME_FUNCTION = {
    "ReduceSum": ("float16[3,300] x", "float16[3,1] y", "<int64[1] a = {1}> { y = ReduceSum(x, a) }", 17),
    "ReduceMean": ("float16[3,300,7] x", "float16[3] y", "{ y = ReduceMean<axes = [1, -1], keepdims = 0>(x) }", 17),
    "ReduceMean, all": ("float16[3,300,7] x", "float16 y", "{ y = ReduceMean<keepdims = 0>(x) }", 18),
    "ReduceL1": ("float16[3,300] x", "float16[3,1] y", "{ y = ReduceL1<axes = [1]>(x) }", 17),
    "ReduceL2": ("float16[3,300] x", "float16[3,1] y", "<int64[1] a = {-1}> { y = ReduceL2(x, a) }", 18),
    "ReduceSumSquare": ("float16[3,300] x", "float16[3,1] y", "{ y = ReduceSumSquare<axes = [1]>(x) }", 17),
    "ReduceLogSumExp": ("float16[3,300] x", "float16[3,1] y", "{ y = ReduceLogSumExp<axes = [1]>(x) }", 17),
    "GlobalAveragePool": ("float16[2,3,20,15] x", "float16[2,3,1,1] y", "{ y = GlobalAveragePool(x) }", 17),
    "AveragePool": (
        "float16[2,3,9,9] x",
        "float16[2,3,5,5] y",
        "{ y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x) }",
        17,
    ),
    "AveragePool, padding counts": (
        "float16[2,3,9,9] x",
        "float16[2,3,9,9] y",
        '{ y = AveragePool<kernel_shape = [3, 3], auto_pad = "SAME_UPPER", count_include_pad = 1>(x) }',
        17,
    ),
    "CumSum": ("float16[3,300] x", "float16[3,300] y", "<int64 a = {1}> { y = CumSum(x, a) }", 17),
    "CumSum, back": (
        "float16[3,300] x",
        "float16[3,300] y",
        "<int64 a = {-1}> { y = CumSum<exclusive = 1, reverse = 1>(x, a) }",
        18,
    ),
    "Softmax": ("float16[3,300] x", "float16[3,300] y", "{ y = Softmax(x) }", 17),
    "Softmax, axis 0": ("float16[300,3] x", "float16[300,3] y", "{ y = Softmax<axis = 0>(x) }", 18),
    "LogSoftmax": ("float16[3,300] x", "float16[3,300] y", "{ y = LogSoftmax(x) }", 17),
    "LayerNormalization": (
        "float16[3,300] x, float16[300] s, float16[300] b",
        "float16[3,300] y",
        "{ y = LayerNormalization(x, s, b) }",
        17,
    ),
    "LayerNormalization, no bias, two axes": (
        "float16[2,3,20,15] x, float16[20,15] s",
        "float16[2,3,20,15] y",
        "{ y = LayerNormalization<axis = 2>(x, s) }",
        17,
    ),
    "RMSNormalization": (
        "float16[3,300] x, float16[300] s",
        "float16[3,300] y",
        "{ y = RMSNormalization(x, s) }",
        23,
    ),
    "InstanceNormalization": (
        "float16[2,3,20,15] x, float16[3] s, float16[3] b",
        "float16[2,3,20,15] y",
        "{ y = InstanceNormalization(x, s, b) }",
        17,
    ),
    "GroupNormalization": (
        "float16[2,6,10,10] x, float16[6] s, float16[6] b",
        "float16[2,6,10,10] y",
        "{ y = GroupNormalization<num_groups = 2>(x, s, b) }",
        21,
    ),
    "MatMul": ("float16[2,4,300] x, float16[300,5] w", "float16[2,4,5] y", "{ y = MatMul(x, w) }", 17),
    "MatMul, vectors": ("float16[300] x, float16[300] w", "float16 y", "{ y = MatMul(x, w) }", 17),
    "Gemm": (
        "float16[300,4] x, float16[5,300] w, float16[5] b",
        "float16[4,5] y",
        "{ y = Gemm<transA = 1, transB = 1, alpha = 0.5, beta = 2.0>(x, w, b) }",
        17,
    ),
    "Conv": (
        "float16[2,40,6,6] x, float16[4,40,3,3] w, float16[4] b",
        "float16[2,4,3,3] y",
        "{ y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w, b) }",
        17,
    ),
    "Conv, groups": (
        "float16[2,80,6,6] x, float16[4,40,3,3] w",
        "float16[2,4,4,4] y",
        "{ y = Conv<group = 2>(x, w) }",
        17,
    ),
    "ConvTranspose": (
        "float16[2,40,4,4] x, float16[40,3,3,3] w, float16[3] b",
        "float16[2,3,9,9] y",
        "{ y = ConvTranspose<strides = [2, 2]>(x, w, b) }",
        17,
    ),
    "ConvTranspose, groups": (
        "float16[2,80,4,4] x, float16[80,3,3,3] w",
        "float16[2,6,6,6] y",
        "{ y = ConvTranspose<group = 2>(x, w) }",
        17,
    ),
    "Einsum": (
        "float16[2,4,300] x, float16[2,300,5] w",
        "float16[2,4,5] y",
        '{ y = Einsum<equation = "bik,bkj->bij">(x, w) }',
        17,
    ),
    "Einsum, two letters": (
        "float16[2,40,30] x, float16[40,30,5] w",
        "float16[2,5] y",
        '{ y = Einsum<equation = "bik, ikj">(x, w) }',
        17,
    ),
}
# fmt: off
# Largest difference to one rounding, as a part of the largest output; a unit of FP16 is 2^-11 to 2^-10 of its number.
PARTS = {
    "CumSum": 2**-7, "CumSum, back": 2**-7,  # 299 roundings one after the other
    "MatMul, vectors": 2**-7, "ReduceSum": 2**-7, "ReduceMean, all": 2**-6,  # terms of both signs cancel
}
# fmt: on


@pytest.mark.parametrize("case", SAME_FUNCTION)
def test_the_function_stays_but_for_rounding(case: str) -> None:
    inputs, outputs, body, opset = SAME_FUNCTION[case]
    model = parsed(f"g ({inputs}) => ({outputs}) {body}", opset=opset)
    feeds = feeds_of(model)
    before = list(ir.to_proto(model).graph.node)
    once, split = run(model, **feeds), pessimistic(model, **feeds)
    assert list(ir.to_proto(model).graph.node) == before
    assert [n.op_type for n in split_sums(model).graph] != [n.op_type for n in model.graph]
    for name, expected in once.items():
        assert split[name].shape == expected.shape
        error = np.abs(split[name].astype(np.float64) - expected).max()
        assert error <= PARTS.get(case, 2**-8) * np.abs(expected).max()


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


def test_a_running_sum_of_ones_stops_at_2048() -> None:
    model = parsed("g (float16[3000] x) => (float16[3000] y) <int64 a = {0}> { y = CumSum(x, a) }")
    ones = np.ones(3000, np.float16)
    assert pessimistic(model, x=ones)["y"][-1] == 2048
    assert run(model, x=ones)["y"][-1] == 3000


def test_sums_overflow_where_means_do_not() -> None:
    model = parsed("g (float16[1,512] x) => (float16[1,1] y) { y = ReduceMean<axes = [1]>(x) }")
    x = np.full((1, 512), 200, np.float16)
    assert run(model, x=x)["y"].item() == 200
    assert pessimistic(model, x=x)["y"].item() == np.inf


@pytest.mark.parametrize("terms", [300, 3000, 9000])
def test_roundings_move_a_sum_without_negative_terms_by_no_more_than_stated(terms: int) -> None:
    model = parsed(f"g (float16[50,{terms}] x) => (float16[50,1] y) {{ y = ReduceL1<axes = [1]>(x) }}")
    x = np.random.default_rng(terms).exponential(50000 / terms, (50, terms)).astype(np.float16)
    exact = x.astype(np.float64).sum(1, keepdims=True)
    assert np.abs(pessimistic(model, x=x)["y"] - exact).max() <= terms / 8 + 32


def test_squares_in_a_normalisation_overflow() -> None:
    model = parsed(
        """g (float16[1,256] x, float16[256] s, float16[256] b) => (float16[1,256] y)
        { y = LayerNormalization(x, s, b) }"""
    )
    x = np.tile(np.float16([300, -300]), 128)[None]  # 300^2 is beyond 65504, so 1 / deviation is 0
    s, b = np.ones(256, np.float16), np.zeros(256, np.float16)
    np.testing.assert_array_equal(run(model, x=x, s=s, b=b)["y"], np.sign(x))
    np.testing.assert_array_equal(pessimistic(model, x=x, s=s, b=b)["y"], np.zeros_like(x))


def test_mean_and_deviation_of_a_layer_normalization() -> None:
    model = parsed(
        """g (float16[3,300] x, float16[300] s) => (float16[3,300] y, float[3,1] m, float[3,1] d)
        { y, m, d = LayerNormalization(x, s) }"""
    )
    feeds = feeds_of(model)
    session = EmulatedSession(model, pessimistic=True)
    result, wide = session.run(feeds), feeds["x"].astype(np.float64)
    np.testing.assert_allclose(result["m"], wide.mean(-1, keepdims=True), atol=2e-4)
    np.testing.assert_allclose(result["d"], 1 / wide.std(-1, keepdims=True), rtol=2e-3)
    np.testing.assert_array_equal(result["m"], result["m"].astype(np.float16))


def test_mean_variance_normalization() -> None:
    """The checker refuses the FP16 node itself: its own definition of the operator mixes types."""
    node = onnx.helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, [2, 3, 10, 10]) for name in "xy"]
    graph, opsets = onnx.helper.make_graph([node], "g", ends[:1], ends[1:]), [onnx.helper.make_opsetid("", 17)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    x = feeds_of(ir.from_proto(proto))["x"]
    wide = x.astype(np.float64)
    expected = (wide - wide.mean((0, 2, 3), keepdims=True)) / wide.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(pessimistic(ir.from_proto(proto), x=x)["y"], expected, atol=0.01)


def test_partial_products_overflow() -> None:
    """256 terms of 300, then 256 of -300: the sum is 0, the first partial sum 76800."""
    model = parsed("g (float16[1,512] x, float16[512,1] w) => (float16[1,1] y) { y = MatMul(x, w) }")
    x = np.where(np.arange(512) < 256, 300, -300).astype(np.float16)[None]
    w = np.ones((512, 1), np.float16)
    assert run(model, x=x, w=w)["y"].item() == 0
    assert np.isinf(pessimistic(model, x=x, w=w)["y"].item())


def test_a_count_that_half_does_not_hold_divides_exactly() -> None:
    model = parsed("g (float16[1,70001] x) => (float16[1,1] y) { y = ReduceMean<axes = [1]>(x) }")
    x = np.zeros((1, 70001), np.float16)
    x[0, :2] = 7000.0
    assert pessimistic(model, x=x)["y"].item() == np.float16(14000 / 70001)


@pytest.mark.parametrize(
    ("shapes", "equation", "blocks"),
    [
        (("2,20,30,10", "20,30,10,3"), "nabc,abco->no", 2 * 30),  # 10 whole, 20 by 12, 30 by 1
        (("4,40,40", "4,40,40"), "nab,nba->n", 14),  # 40 whole, 40 by 3
        (("4,200,300", "300"), "nab,b->n", 2 * 300),
        (("16,40,24", "16,40,24"), "abc,abc->", 3 * 40),
    ],
)
def test_every_summed_letter_of_an_einsum_is_cut(shapes: tuple[str, str], equation: str, blocks: int) -> None:
    model = parsed(
        f"""g (float16[{shapes[0]}] x, float16[{shapes[1]}] w) => (float16 y)
        {{ z = Einsum<equation = "{equation}">(x, w)  y = ReduceMax<keepdims = 0>(z) }}"""
    )
    feeds = {name: np.abs(array) for name, array in feeds_of(model, 0.1).items()}
    split = split_sums(model)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(split), data_prop=True)
    shape = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*proto.graph.value_info, *proto.graph.input)
    }
    left, right = equation.split("->")
    parts = [node for node in proto.graph.node if node.op_type == "Einsum"]
    assert len(parts) == blocks
    for node in parts:
        lengths = dict(zip(left.replace(",", ""), [n for name in node.input for n in shape[name]], strict=True))
        assert np.prod([length for letter, length in lengths.items() if letter not in right]) <= BLOCK
    np.testing.assert_allclose(pessimistic(model, **feeds)["y"], run(model, **feeds)["y"], rtol=2e-2)


def test_an_einsum_of_too_many_blocks_is_listed() -> None:
    text = (
        """g (float16[1024,1024] x, float16[1024,1024] w) => (float16 y) { y = Einsum<equation = "ab,ab->">(x, w) }"""
    )
    why = "an Einsum that adds up 1048576 terms: 8192 blocks; at most 4096 are made"
    assert split_sums(parsed(text)).meta[NOT_SPLIT] == {"Einsum -> y": why}


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


def test_what_is_left_is_listed() -> None:
    text = """g (float16[N,K] x, float16[K,M] w, float16[1,8,4,4] p, float16[8] c, float[8] v) =>
        (float16[N,M] a, float16[N] b, float16[1,8,3,3] d, float16[1,8,4,4] e, float16[1,8,4,4] f) {
            a = Gemm(x, w)
            [sum] b = Einsum<equation = "...k->...">(x)
            d = AveragePool<kernel_shape = [2, 2], ceil_mode = 1>(p)
            e = LRN<size = 3>(p)
            f = BatchNormalization(p, c, c, v, v)
        }"""
    split = split_sums(parsed(text))
    assert split.meta[NOT_SPLIT] == {
        "Gemm -> a": "the length of its inner axis is unknown",
        "sum": "an Einsum with an ellipsis",
        "AveragePool -> d": "AveragePool with ceil_mode",
        "LRN -> e": "LRN: there is no rule for it",
        "BatchNormalization -> f": "BatchNormalization with parameters that are not FLOAT16",
    }
    old = split_sums(parsed("g (float16[N,4] x) => (float16[N,4] y) { y = Softmax<axis = 1>(x) }", opset=12))
    assert old.meta[NOT_SPLIT] == {"Softmax -> y": "opset 12: expected 13 or more; raise it first"}


def test_every_standard_operator_is_judged() -> None:
    """An operator of a newer ONNX fails this: give it a rule, or say that it adds up, or that it does not."""
    lists = [set(_RULES), set(_OTHER_SUMS), set(_NO_SUMS)]
    operators = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    assert set.union(*lists) ^ operators == set()
    assert sum(map(len, lists)) == len(set.union(*lists)), "in one list only"
    assert set(_MOVES_WITH) <= set(_OTHER_SUMS)


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
    expected = {f"{op_type} -> y": f"{op_type}: there is no rule for it"} if listed else {}
    assert split_sums(ir.from_proto(proto)).meta[NOT_SPLIT] == expected


def test_an_unknown_operator_is_listed_whichever_of_its_inputs_is_half() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        g (int64[2] i, float16[2] x) => (float16[2] y, float16[2] z) { y = own.Embed(i, x)  z = Novel(i, x) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    for value in model.graph.outputs:
        value.type = ir.TensorType(ir.DataType.FLOAT16)
    assert split_sums(model).meta[NOT_SPLIT] == {
        "Embed -> y": "own:Embed is no standard operator: what it adds up is unknown",
        "Novel -> z": "Novel: there is no rule for it",
    }


def test_sums_of_many_tensors_round_after_each() -> None:
    """2048 + 1 is 2048 in FP16: a sum rounded once gives 2050. 60000 + 6000 is Inf."""
    model = parsed(
        """g (float16[2] a, float16 b, float16[1,2] c, float16[2] m) => (float16[1,2] y, float16[1,2] z, float16[2] n)
        { y = Sum(a, b, c)  z = Mean(a, b, c, m)  n = Sum(m) }"""
    )
    half = np.float16
    feeds = {"a": half([2048, 60000]), "b": np.array(1, half), "c": half([[1, 6000]]), "m": half([0, -60000])}
    assert run(model, **feeds)["y"].tolist() == [[2050, np.inf]]
    assert run(model, **feeds)["z"].tolist() == [[512.5, 1500]]
    result = pessimistic(model, **feeds)
    assert result["y"].tolist() == [[2048, np.inf]] and result["z"].tolist() == [[512, np.inf]]
    assert result["n"].tolist() == [0, -60000]


@pytest.mark.parametrize("length", [1, 127, 128, 300])
@pytest.mark.parametrize("opset", [17, 20])
def test_lengths_that_only_a_run_knows(length: int, opset: int) -> None:
    """The bits of the graph that knows its lengths."""
    mean = "ReduceMean<axes = [1]>(x)" if opset < 18 else "ReduceMean(x, one)"
    text = f"""g (float16[2,rows,inner] x, float16[2,inner,columns] w, float16[inner] v) =>
        (float16[2,rows,columns] a, float16[2,rows] b, float16[2,1,inner] c, float16[2,rows,inner] d, float16[2] e)
        <int64[1] one = {{1}}, int64[2] both = {{1, 2}}>
        {{ a = MatMul(x, w)  b = MatMul(x, v)  c = {mean}  d = Softmax(x)  e = ReduceSum<keepdims = 0>(a, both) }}"""
    sizes = {"rows": "200", "inner": str(length), "columns": "3"}
    known_text = text
    for symbol, size in sizes.items():
        known_text = known_text.replace(symbol, size)
    known_model = parsed(known_text, opset=opset)
    feeds = feeds_of(known_model)
    expected = pessimistic(known_model, **feeds)
    actual = pessimistic(parsed(text, opset=opset), **feeds)
    for name in "abcd":
        assert_same_bits(actual[name], expected[name])
    # known axes are summed 128 terms at once, unknown ones axis by axis
    np.testing.assert_allclose(actual["e"].astype(np.float64), expected["e"], rtol=2e-2, atol=1)


@pytest.mark.slow
def test_backend_tests_keep_their_function() -> None:
    """Every operator test that has a sum: a valid graph, and the same within the roundings of a few steps."""
    compared, wrong = 0, []
    for name, proto, inputs in cases():
        if any(word in name for word in ("bernoulli", "training", "dropout", "random")):
            continue
        model = ir.from_proto(converted(proto, keep_io_types=False))
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
    assert compared > 100


def test_two_runs_give_the_same_bytes() -> None:
    inputs, outputs, body, opset = SAME_FUNCTION["Conv, groups"]
    text = f"g ({inputs}) => ({outputs}) {body}"
    first, second = (ir.to_proto(emulate(split_sums(parsed(text, opset=opset)))) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_the_session_says_what_it_did() -> None:
    model = parsed("g (float16[N,K] x, float16[K,2] w) => (float16[N,2] y) { [m] y = Gemm(x, w) }")
    session = EmulatedSession(model, pessimistic=True)
    assert session.evaluation == "emulated-fp16-pessimistic"
    assert session.not_split == {"m": "the length of its inner axis is unknown"}
    assert EmulatedSession(model).evaluation == "emulated-fp16"
    assert EmulatedSession(model).not_split == {}
    assert session.run({"x": np.ones((1, 3), np.float32), "w": np.ones((3, 2), np.float32)})["y"].tolist() == [[3, 3]]
