"""Costs as they are paid: at measured sizes, and for each copy of a weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.measuring.converted import only
from tests.messages import expect
from truehalf import Precision, convert
from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges_form import read_ranges
from truehalf.conversion import partition
from truehalf.conversion.decide import decide
from truehalf.conversion.partition import Assignment, Problem, Weight, cost, min_cut
from truehalf.conversion.ports import FP16, FP32, ports
from truehalf.ir.normalize import PREPARE, concrete_shapes

HEAD = '<ir_version: 8, opset_import: ["": 17]> '
F32 = np.float32


def parsed(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    PREPARE(model)
    return model


def measured(model: ir.Model, feed: dict[str, np.ndarray] | None) -> dict[str, float]:
    return {} if feed is None else read_ranges(calibrate(model, [feed])).sizes()


X = {"x": np.ones((2, 4), F32)}


# --- sizes ------------------------------------------------------------------------------------------------------------


def generated(seed: int) -> tuple[str, dict[str, np.ndarray]]:
    """Rows that a random condition leaves, through a chain of operators."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.integers(2, 30, 2))
    chain, last = [], "c"
    for i in range(int(rng.integers(1, 5))):
        chain.append(f"t{i} = {rng.choice(['Relu', 'Neg', 'Exp', 'Tanh', 'Sigmoid'])}({last})")
        last = f"t{i}"
    nodes = " ".join(["c = Compress<axis = 0>(x, k)", *chain, f"y = Abs({last})"])
    text = f"(float[n,m] x, bool[n] k) => (float[r,m] y) {{ {nodes} }}"
    keep = rng.random(rows) < 0.6
    keep[0] = True
    return text, {"x": rng.random((rows, columns)).astype(F32), "k": keep}


SIZES: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "Compress": (
        "(float[6,3] x, bool[6] k) => (float[r,3] y) { c = Compress<axis = 0>(x, k) y = Relu(c) }",
        {"x": np.ones((6, 3), F32), "k": np.array([1, 0, 1, 1, 0, 1], bool)},
    ),
    "NonZero": (
        "(float[4,5] x) => (float[r] y) { z = NonZero(x) t = Transpose(z) g = GatherND(x, t) y = Relu(g) }",
        {"x": np.eye(4, 5, dtype=F32)},
    ),
    "Expand": (
        "(float[1,5] x, int64[2] s) => (float[a,b] y) { e = Expand(x, s) y = Relu(e) }",
        {"x": np.ones((1, 5), F32), "s": np.array([70, 5])},
    ),
    "Range": (
        "(float a, float b, float d) => (float[r] y) { g = Range(a, b, d) y = Relu(g) }",
        {"a": np.array(0, F32), "b": np.array(41, F32), "d": np.array(1, F32)},
    ),
    "TopK": (
        "(float[2,50] x, int64[1] k) => (float[2,r] y) { v, i = TopK(x, k) y = Relu(v) }",
        {"x": np.ones((2, 50), F32), "k": np.array([17])},
    ),
    "Reshape": (
        "(float[n,6] x, int64[r] s) => (float[?,?] y) { g = Reshape(x, s) y = Relu(g) }".replace("?", "p"),
        {"x": np.ones((4, 6), F32), "s": np.array([2, 12])},
    ),
} | {f"generated {seed}": generated(seed) for seed in range(4)}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_are_those_of_calibration_where_inference_has_none(case: str) -> None:
    text, feed = SIZES[case]
    model = parsed(f"g {text}")
    sizes = measured(model, feed)
    shapes = concrete_shapes(model, {name: array.shape for name, array in feed.items()}, sizes)
    floats = [value for node in model.graph for value in node.outputs if value.dtype == ir.DataType.FLOAT]
    assert floats and {value.name: int(np.prod(shapes[value])) for value in floats} == {
        value.name: sizes[str(value.name)] for value in floats
    }


def test_the_report_has_the_bytes_of_a_size_that_was_measured() -> None:
    text, feed = SIZES["Expand"]
    proto = onnx.parser.parse_model(f"{HEAD} g {text}")
    bytes_ = [
        convert(
            proto, samples=[given], skip=("slim", "check"), precision=Precision(placement="eager")
        ).report.fp16.costs["naive"]["cast_bytes"]
        for given in (feed, feed | {"s": np.array([140, 5])})
    ]
    assert bytes_[1] - bytes_[0] == 6 * 70 * 5


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [1, 16, 1000, 2**20])
@pytest.mark.parametrize("types", [(FP32, FP16), (FP16, FP32), (FP16, FP32, FP16)], ids=str)
def test_a_weight_that_is_stored_in_both_types_costs_its_copy(elements: int, types: tuple[ir.DataType, ...]) -> None:
    nodes = [ir.node("Relu", [None], name=f"n{i}") for i in range(len(types))]
    fixed: Assignment = dict(zip(nodes, types, strict=True))
    found = cost(Problem(fixed, {}, (), (Weight(tuple(nodes), 2 * elements),)), fixed)
    assert (found.bytes, found.casts, found.cast_bytes) == (2 * elements, 0, 0)
    same = dict.fromkeys(nodes, types[0])
    assert cost(Problem(same, {}, (), (Weight(tuple(nodes), 2 * elements),)), same).bytes == 0


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div", "Max", "Pow"])
def test_a_weight_decides_where_nothing_else_does(op: str) -> None:
    """Two nodes that read one weight of 4 MB each, one of them pinned: the other one would cost 2 MB more in FP32."""
    text = f"""g (float16[1] a, float[1] b) => (float16[1048576] y, float[1048576] z)
        {{ x = Cast<to = 1>(a) f = {op}(x, w) y = Cast<to = 10>(f) ["pin"] z = {op}(b, w) }}"""
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    value = ir.Value(
        name="w",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape([2**20]),
        const_value=ir.tensor(np.ones(2**20, F32), name="w"),
    )
    for node in model.graph:
        for index, each in enumerate(node.inputs):
            if each is not None and each.name == "w":
                node.replace_input_with(index, value)
    model.graph.register_initializer(value)
    PREPARE(model)
    decisions = decide(model, None, only(node_block_list=["pin"]))
    movable = [node for node, found in decisions.nodes.items() if found.verdict.value != "fp32"]
    found = partition.problem(ports(model, movable), decisions.nodes, concrete_shapes(model))
    (weight,) = found.weights
    assert weight.cost == 2 * 2**20
    assignment = min_cut(found)
    apart = Problem(found.fixed, found.fp32, found.links)
    assert cost(found, min_cut(apart)).bytes >= cost(found, assignment).bytes
    assert cost(found, assignment).bytes - cost(apart, assignment).bytes in (0, weight.cost)


SMALL: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {  # shapes of x and of the weight, attributes
    "MatMul": ([2, 4], [4, 4], {}),
    "Gemm": ([2, 4], [4, 4], {"alpha": 0.5}),
    "Conv": ([1, 2, 4, 4], [3, 2, 1, 1], {}),
    "ConvTranspose": ([1, 2, 4, 4], [2, 3, 1, 1], {}),
    "Einsum": ([2, 4], [4, 4], {"equation": "ij,jk->ik"}),
}


def two_products(op: str, *, with_large: bool) -> onnx.ModelProto:
    """A small product between float32 ends; beside it one that is worth its casts."""
    shape, weight, attributes = SMALL[op]
    nodes = [onnx.helper.make_node(op, ["x", "w"], ["y"], name="small", **attributes)]
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * len(shape))]
    weights = [onnx.numpy_helper.from_array(np.full(weight, 0.5, np.float32), "w")]
    if with_large:
        nodes.append(onnx.helper.make_node("MatMul", ["a", "v"], ["b"], name="large"))
        inputs.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [64, 1024]))
        outputs.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [64, 1024]))
        weights.append(onnx.numpy_helper.from_array(np.full((1024, 1024), 0.01, np.float32), "v"))
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("op", SMALL)
def test_products_are_fp16_whatever_their_casts_cost_unless_the_user_says_otherwise(op: str) -> None:
    def precisions(with_large: bool, **options: Any) -> dict[str, str]:
        model = two_products(op, with_large=with_large)
        made = convert(model, skip=("slim", "check"), precision=Precision(**options))
        return {row["node"]: row["precision"] for row in made.decisions}

    assert precisions(True) == {"small": "fp16", "large": "fp16"}
    assert precisions(True, fp16_ops=[]) == {"small": "fp32", "large": "fp16"}
    assert precisions(True, op_block_list=[op])["small"] == "fp32"
    assert precisions(False, fp16_ops=[]) == {"small": "fp32"}


# --- nothing was converted --------------------------------------------------------------------------------------------

PLAIN = (
    HEAD
    + "g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {"
    + ", ".join(["1"] * 16)
    + '}> { ["m"] h = MatMul(x, w) ["s"] y = Softmax(h) }'
)


@pytest.mark.parametrize(
    "options",
    [
        {"op_block_list": ["MatMul", "Softmax"]},
        {"node_block_list": ["."]},
        {"fp16_ops": []},
        {"data_max": 0.5},
        {"safety_factor": 60000.0},
        {"pattern_block_list": ["MatMul -> Softmax", "Softmax <- MatMul"]},
        {"init_max": 0.5, "op_block_list": ["Softmax"]},
    ],
    ids=str,
)
def test_where_nothing_was_converted_a_warning_says_so(options: Any) -> None:
    feed = {"x": np.full((2, 4), 2, F32)}
    found = convert(onnx.parser.parse_model(PLAIN), samples=feed, precision=Precision(**options)).report.fp16
    assert found.fp16_fraction == 0
    (line,) = [line for line in found.warnings if "nothing-in-fp16" in line]
    expect(line, "nothing-in-fp16", 2)


def test_a_model_without_floats_is_not_converted() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (int64[N,4] x) => (int64[N,4] y) { y = Add(x, x) }'
    (line,) = convert(onnx.parser.parse_model(text)).report.fp16.warnings
    expect(line, "nothing-in-fp16", "no float32 node")


@pytest.mark.parametrize("options", [{}, {"op_block_list": ["Softmax"]}, {"dtype": "fp32"}], ids=str)
def test_where_something_was_or_nothing_was_asked_for_there_is_none(options: Any) -> None:
    found = convert(onnx.parser.parse_model(PLAIN), precision=Precision(**options)).report.fp16
    assert not any("nothing-in-fp16" in line for line in found.warnings)
