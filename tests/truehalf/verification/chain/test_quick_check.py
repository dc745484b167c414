"""The quick check of a conversion: warns of what is beyond the tolerance, names pins that help, and of nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import expect
from truehalf import Precision, compare, convert
from truehalf.data.fitting import feed_in_range
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside

RNG = np.random.default_rng(0)
EAGER: dict[str, Any] = {"rules": "autocast", "data_max": None, "placement": "eager"}  # what the rules would keep FP32
Weights = dict[str, Any]


def model(body: str, weights: Weights | None = None, inputs: str = "float[N,256] x") -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> g ({inputs}) => (float[A,B] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    for name, value in (weights or {}).items():
        array = np.asarray(value, np.int64 if name == "axes" else np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def normal(mean: float = 0.0, std: float = 1.0, seed: int = 0, rows: int = 2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": (mean + std * rng.standard_normal((rows, 256))).astype(np.float32)} for _ in range(4)]


WEIGHT = RNG.standard_normal((256, 64)) / 16
VARIANCE = """["m"] m = ReduceMean<axes = [1]>({0}) ["sq"] s = Mul({0}, {0}) ["ms"] q = ReduceMean<axes = [1]>(s)
    ["mm"] p = Mul(m, m) ["sub"] y = Sub(q, p)"""
EXP = """["mul"] a = Mul(x, k) ["exp"] e = Exp(a) ["sum"] s = ReduceSum<keepdims = 1>(e, axes) ["div"] y = Div(e, s)"""
DISTANCE = """["a"] a = ReduceSumSquare<axes = [1]>(x) ["b"] b = ReduceSumSquare<axes = [0], keepdims = 1>(w)
    ["c"] c = MatMul(x, w) ["t"] t = Mul(c, two) ["s"] s = Add(a, b) ["y"] y = Sub(s, t)"""
SHIFTED = '["add"] a = Add(x, k) ["sub"] b = Sub(a, l) ["norm"] y = ReduceL2<axes = [1]>(b)'
WRONG = {
    "variance of offset data": (model(VARIANCE.format("x")), normal(30)),
    "Exp without the largest": (model(EXP, {"k": 8, "axes": [1]}), normal()),
    "a large sum": (model('["m"] a = Mul(x, k) ["s"] y = ReduceSum(a, axes)', {"k": 100, "axes": [1]}), normal(5)),
    "distances": (model(DISTANCE, {"w": 20 + WEIGHT, "two": 2}), normal(20, 0.06)),
}
GOOD = {
    "a product": (model("h = MatMul(x, w) y = Relu(h)", {"w": WEIGHT}), normal()),
    "normalised": (model("y = LayerNormalization(x, s)", {"s": np.ones(256)}), normal(2)),
    "a mask": (
        model("h = MatMul(x, w) a = Add(h, m) y = Softmax(a)", {"w": WEIGHT, "m": [0.0] * 60 + [-3e38] * 4}),
        normal(),
    ),
}


def converted(proto: onnx.ModelProto, samples: Any, **options: Any) -> Any:
    return convert(proto, samples=samples, precision=Precision(**options))


def held(proto: onnx.ModelProto, samples: list[dict[str, np.ndarray]]) -> None:
    """What fails in `compare` is found, and with the pins that are named it passes there."""
    found = converted(proto, samples[:2], **EAGER)
    assert compare(proto, found.model, samples[2:], locate=False).verdict == "failed"
    check = found.report.check
    assert check.state == "failed" and not check.is_drawn and check.node_block_list
    expect(check.reason, "not-finite" if "nonfinite" in check.reason else "outputs-differ")
    assert f"^{check.first_bad_node}$" in check.node_block_list
    pinned = converted(proto, samples[:2], **EAGER, node_block_list=check.node_block_list)
    assert pinned.report.check.state == "verified"
    assert compare(proto, pinned.model, samples[2:], locate=False).verdict == "passed"
    assert json.loads(json.dumps(found.report.to_json()))["check"]["state"] == "failed"


@pytest.mark.parametrize("name", WRONG)
def test_what_is_beyond_the_tolerance_is_said_with_pins_that_help(name: str) -> None:
    held(*WRONG[name])


def moments(p: str, x: str = "x", axis: int = 1) -> str:
    means = f"{p}q = ReduceMean<axes = [{axis}]>({p}s) {p}m = ReduceMean<axes = [{axis}]>({x})"
    return f"{p}s = Mul({x}, {x}) {means} {p}p = Mul({p}m, {p}m)"


POSITIVE = "c = ReduceSum<keepdims = 0>(x) b = Cast<to = 9>(c)"
BODIES = {
    "operands of an If": f"""{POSITIVE}
        ["if"] u, v = If(b) <then_branch = t () => (float[N,1] tq, float[N,1] tp) {{ {moments("t")} }},
            else_branch = e () => (float[N,1] eq, float[N,1] ep) {{ {moments("e")} }}>
        ["sub"] y = Sub(u, v)""",
    "a variance in an If": f"""{POSITIVE}
        ["if"] y = If(b) <then_branch = t () => (float[N,1] ty) {{ {moments("t")} ty = Sub(tq, tp) }},
            else_branch = e () => (float[N,1] ey) {{ {moments("e")} ey = Sub(eq, ep) }}>""",
}


@pytest.mark.parametrize("name", BODIES)
def test_pins_of_what_goes_wrong_in_bodies(name: str) -> None:
    proto, samples = model(BODIES[name], {"z": np.zeros((2, 1))}), normal(30)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "n"))
    found = converted(proto, samples[:2], **EAGER)
    assert compare(proto, found.model, samples[2:], locate=False).verdict == "failed"
    check = found.report.check
    assert check.state == "failed" and check.node_block_list and not check.remedy
    pinned = converted(proto, samples[:2], **EAGER, node_block_list=check.node_block_list)
    assert compare(proto, pinned.model, samples[2:], locate=False).verdict == "passed"


def test_the_search_takes_old_opsets_and_recurrences() -> None:
    """As in captcha readers of opset 12: an LSTM, whose optional inputs and outputs are left out."""
    rng = np.random.default_rng(0)
    text = """<ir_version: 7, opset_import: ["" : 12]>
        g (float[4,2,8] x, float[1,32,8] w, float[1,32,8] r) => (float[4,2,8] y) <float k = {900}> {
        [lstm] h = LSTM<hidden_size = 8>(x, w, r)
        [flat] f = Squeeze<axes = [1]>(h) [up] u = Add(f, k) [down] d = Sub(u, k) [wide] e = Unsqueeze<axes = [0]>(d)
        [end] y = Squeeze<axes = [0]>(e) }"""
    proto = onnx.parser.parse_model(text)
    for name in ("w", "r"):
        proto.graph.input.remove(next(value for value in proto.graph.input if value.name == name))
        array = rng.normal(size=(1, 32, 8)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feeds = [{"x": rng.normal(size=(4, 2, 8)).astype(np.float32)} for _ in range(4)]
    check = converted(proto, feeds[:2], **EAGER).report.check
    assert check.state == "failed" and {"^up$", "^down$"} <= {*check.node_block_list} and not check.remedy
    pinned = converted(proto, feeds[:2], **EAGER, node_block_list=check.node_block_list)
    assert compare(proto, pinned.model, feeds[2:], locate=False).verdict == "passed"


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("options", [{}, {"placement": "eager"}], ids=["default", "eager"])
def test_of_a_good_file_nothing_is_said(name: str, options: dict[str, Any]) -> None:
    proto, samples = GOOD[name]
    for given in (samples[:2], None):
        found = converted(proto, given, **options)
        assert found.report.check.state == "verified" and not found.report.check.node_block_list
        assert found.report.check.is_drawn is (given is None)


@pytest.mark.parametrize(
    ("output", "node"),
    [
        ("float[2] w", "w = Identity(pair)"),
        ("float[M,0] w", "w = Compress<axis = 1>(x, none)"),
        ("seq(float[2]) w", "w = SequenceEmpty<dtype = 1>()"),
    ],
)
def test_pins_are_found_beside_outputs_that_no_input_moves(output: str, node: str) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N,256] x) => (float[A,B] y, {output})
        <float k = {{900}}, float l = {{899}}, float[2] pair = {{1, 2}}, bool[1] none = {{0}}> {{ {SHIFTED} {node} }}"""
    )
    check = converted(proto, normal(), **EAGER).report.check
    assert check.state == "failed" and check.node_block_list


def test_it_is_left_out_where_that_is_asked_for_or_nothing_was_converted() -> None:
    proto, samples = WRONG["a large sum"]
    assert convert(proto, samples=samples, skip=["check"]).report.check is None
    assert convert(proto, precision=Precision(dtype="fp32")).report.check is None


@pytest.mark.parametrize("late", [1, 2, 3, 7])
def test_of_a_small_network_several_samples_are_looked_at(late: int) -> None:
    """Squares of one sample alone are beyond FP16."""
    proto = model('["s"] s = Mul(x, x) ["d"] y = Mul(s, k)', {"k": 1e-4})
    feeds = [{"x": RNG.standard_normal((2, 256)).astype(np.float32)} for _ in range(9)]
    feeds[late] = {"x": feeds[late]["x"] * 300}
    check = converted(proto, feeds, **EAGER).report.check
    assert check.state == "failed" and "^s$" in check.node_block_list
    feeds[late], feeds[8] = feeds[8], feeds[late]
    assert converted(proto, feeds, **EAGER).report.check.state != "failed", "eight at most"


def test_of_a_large_network_one_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    proto, samples = WRONG["a large sum"]
    assert converted(proto, samples, **EAGER).report.check.sample != "feed[0]"
    monkeypatch.setattr("truehalf.verification.chain.quick_check.ARITHMETIC", 1.0)
    assert converted(proto, samples, **EAGER).report.check.sample == "feed[0]"


# --- errors of many nodes ---------------------------------------------------------------------------------------------


def deep(layers: int, large: bool) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Layers and a steep head, each with its share of the error; beside them, where `large`, most of the arithmetic,
    with hardly any. The input holds whole numbers, as tokens are, which half a step moves nowhere.
    """
    rng, width = np.random.default_rng(0), 32
    weights = {"w": rng.standard_normal((256, width)) / 64, "k": 1000.0}
    body = '["in"] v0 = MatMul(x, w) '
    for i in range(layers):
        weights[f"w{i}"] = 2.2 * rng.standard_normal((width, width)) / width**0.5
        body += f'["m{i}"] m{i} = MatMul(v{i}, w{i}) ["a{i}"] v{i + 1} = Tanh(m{i}) '
    if large:
        weights |= {"p": rng.standard_normal((256, 1024)) / 64, "q": rng.standard_normal((1024, width)) / 3200}
        body += '["p"] p0 = MatMul(x, p) ["q"] q0 = MatMul(p0, q) '
    body += f'["sum"] z = Add(v{layers}, {"q0" if large else "v0"}) ["steep"] s = Mul(z, k) ["head"] y = Sigmoid(s)'
    return model(body, weights), [{"x": np.rint(4 * each["x"])} for each in normal(0, 1, 0, 32)]


def test_errors_of_many_nodes_are_answered_with_many_pins() -> None:
    proto, samples = deep(12, large=True)
    unpinned = converted(proto, samples[:2], measured=False)
    before = compare(proto, unpinned.model, samples[2:], locate=False)
    assert unpinned.report.check.state == before.verdict == "failed"
    pinned = converted(proto, samples[:2])
    check = pinned.report.check
    assert check.state == "verified" and len(check.pinned) > 8 and not check.remedy
    assert compare(proto, pinned.model, samples[:2], locate=False).verdict == "passed"
    after = compare(proto, pinned.model, samples[2:], locate=False)
    assert after.outputs["y"].rms < before.outputs["y"].rms / 3, "on another draw, too"
    assert pinned.report.fp16.fp16_arithmetic > 0.5


def test_a_model_that_pins_do_not_help_is_to_stay_fp32() -> None:
    proto, samples = deep(40, large=False)
    check = converted(proto, samples[:2]).report.check
    assert check.state == "failed" and not check.node_block_list and not check.pinned
    expect(check.remedy, "fp16-not-enough")


# --- without samples --------------------------------------------------------------------------------------------------

IMAGE = "float[N,3,8,8] x"
FLAT = "f = Flatten(c) y = MatMul(f, v)"
BEYOND = {
    "MatMul": (
        model('["a"] h = MatMul(x, w) ["b"] y = MatMul(h, v)', {"w": np.full((256, 8), 90), "v": np.full((8, 2), 9)}),
        "b",
    ),
    "Exp": (model('["a"] h = MatMul(x, w) ["e"] y = Exp(h)', {"w": np.full((256, 8), 0.1)}), "e"),
    "Conv": (
        model(f'["c"] c = Conv(x, w) {FLAT}', {"w": np.full((4, 3, 3, 3), 9e3), "v": np.ones((144, 1))}, IMAGE),
        "c",
    ),
}


def overflows(proto: onnx.ModelProto, node: str) -> None:
    found = converted(proto, None, **EAGER)
    check = found.report.check
    assert check.state == "failed" and check.is_drawn and check.first_bad_node == node and check.node_block_list
    expect(check.reason, "not-finite")
    again = converted(proto, None, **EAGER, node_block_list=check.node_block_list)
    assert again.report.check.state != "failed"


@pytest.mark.parametrize("name", BEYOND)
def test_without_samples_what_is_not_finite_on_a_drawn_input_is_said(name: str) -> None:
    overflows(*BEYOND[name])


def test_without_samples_a_finite_error_is_no_failure() -> None:
    assert converted(WRONG["variance of offset data"][0], None, **EAGER).report.check.state != "failed"


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("float[N,4] x", "y = mine.Own(x)"),
        ("string[N,4] x, float[N,4] z", "y = MatMul(z, z)"),
        ("float[N,K] x", "y = MatMul(x, w)"),
        ("float[N,3,H,W] x", "c = Conv<kernel_shape = [5, 5]>(x, w) y = Flatten(c)"),
    ],
)
def test_what_does_not_run_on_a_drawn_input_is_converted_and_not_checked(inputs: str, body: str) -> None:
    weights = {"w": np.ones((4, 3, 5, 5)) if "Conv" in body else np.ones((7, 4))}
    check = convert(model(body, weights, inputs), skip=["slim"]).report.check
    assert check is None or (check.state == "not verified" and check.reason)


# --- what is drawn ----------------------------------------------------------------------------------------------------


def with_spec(proto: onnx.ModelProto, **entry: Any) -> onnx.ModelProto:
    declared = {"inputs": [{"name": "x", "kind": "images", **entry}], "outputs": [{"name": "y"}]}
    onnx.helper.set_model_props(proto, {SPEC_KEY: json.dumps(declared)})
    return proto


def drawn(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    loaded = ir.from_proto(proto)
    return feed_in_range(loaded, spec_inside(loaded))


@pytest.mark.parametrize(
    ("entry", "low", "high"),
    [
        ({"range": [0, 255]}, 0, 255),
        ({"range": [0, 1]}, 0, 1),
        ({"range": [0, 1], "normalization": {"mean": [0.5] * 3, "std": [0.25] * 3}}, -2, 2),
        (
            {"range": [0, 255], "normalization": {"mean": [0.5] * 3, "std": [1.0] * 3, "where": "inside the graph"}},
            0,
            255,
        ),
        ({"range": [0, 255], "channels": "BGR"}, 0, 255),
    ],
)
def test_images_are_drawn_in_the_declared_range(entry: dict[str, Any], low: float, high: float) -> None:
    body = "f = Flatten(x) y = Relu(f)"
    values = drawn(with_spec(model(body, inputs="float[N,3,H,W] x"), size=[64, 32], layout="NCHW", **entry))["x"]
    assert values.shape == (1, 3, 64, 32) and values.dtype == np.float32
    assert low <= values.min() < low + (high - low) / 50 and high - (high - low) / 50 < values.max() <= high


def test_other_inputs_are_drawn_from_0_to_1() -> None:
    inputs = "float[N,64] x, int64[N,64] ids, bool[64] mask, uint8[64] u, float16[64] h"
    found = drawn(model("y = Relu(x)", inputs=inputs))
    assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
        "x": ((1, 64), "float32"),
        "ids": ((1, 64), "int64"),
        "mask": ((64,), "bool"),
        "u": ((64,), "uint8"),
        "h": ((64,), "float16"),
    }
    assert set(np.unique(found["ids"])) == set(np.unique(found["u"])) == {0, 1} and found["mask"].all()
    assert 0 <= found["x"].min() < 0.1 and 0.9 < found["x"].max() < 1
