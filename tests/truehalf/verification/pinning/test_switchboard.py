"""The switchboard computes, to the bit, what the emulated session of the converted file computes.

Both sum in one order: ONNX Runtime fuses nothing and packs no weights here (see
    truehalf.verification.pinning.switchboard).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.embedded import embedded, scenes
from tests.measuring.converted import only, to_fp16
from tests.messages import raises
from tests.tiers import examples
from tests.truehalf.random_graphs import FEEDS, models
from truehalf.calibration.ranges_form import read_ranges
from truehalf.config.precision import Precision
from truehalf.conversion.convert import convert_to_fp16
from truehalf.emulation.sessions import EmulatedSession
from truehalf.files import read_json
from truehalf.ir.normalize import PREPARE
from truehalf.ir.selectors import Lists
from truehalf.models.architectures.ltdetr import DECODERS
from truehalf.runtime.ort import Session
from truehalf.verification.pinning.switchboard import Switchboard
from truehalf.verification.pinning.switched_graph import with_subgraphs

SAME_KERNELS: dict[str, Any] = {"optimize": False, "session.disable_prepacking": "1"}
Arrays = dict[str, np.ndarray]


def parsed(text: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    return proto


def emulated(proto: onnx.ModelProto, feeds: Arrays, rules: Precision, **options: Any) -> tuple[Arrays, list[str]]:
    """Outputs of the converted model, and the nodes that it keeps in FP32."""
    model = ir.from_proto(proto)
    PREPARE(model)
    ranges = options.pop("ranges", None)
    result = convert_to_fp16(model, read_ranges(ranges), replace(rules, **{"placement": "eager"} | options))
    kept = [str(node.name) for node in result.decisions.nodes if node not in result.fp16]
    return EmulatedSession(model, **SAME_KERNELS).run(feeds), kept


def assert_same_bits(actual: Arrays, expected: Arrays) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(actual[name], value)


def with_weights(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A model some of whose inputs are weights."""
    proto = parsed(text)
    for name, array in weights.items():
        proto.graph.input.remove(next(value for value in proto.graph.input if value.name == name))
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def check_every_assignment(source: str | onnx.ModelProto, feeds: Arrays, **options: Any) -> set[bytes]:
    """All assignments to the nodes of a small graph; returns the different results."""
    proto = parsed(source) if isinstance(source, str) else source
    board = Switchboard(ir.from_proto(proto), Precision(**options), **SAME_KERNELS)
    seen = set()
    for count in range(len(board.nodes) + 1):
        for pins in itertools.combinations(board.nodes, count):
            rules = only(block=Lists(node=tuple(f"^{pin}$" for pin in pins)), init_overflow="clamp", masks=True)
            expected, kept = emulated(proto, feeds, rules, **options)
            assert set(kept) & set(board.nodes) == set(pins)
            actual = board.run(feeds, kept)
            assert_same_bits(actual, expected)
            seen.add(b"".join(value.tobytes() for value in actual.values()))
    return seen


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_every_assignment_of_a_chain_with_a_fork() -> None:
    text = """g (float[2,8] x, float[8,4] w, float[4] b) => (float[2,4] y, float[2,8] a)
        { [n0] a = Sigmoid(x) [n1] m = MatMul(a, w) [n2] s = Add(m, b) [n3] t = Transpose<perm = [0, 1]>(s)
          [n4] e = Exp(t) [n5] y = Mul(e, s) }"""
    proto = with_weights(text, w=numbers(8, 4, seed=1), b=numbers(4, seed=2))
    assert len(check_every_assignment(proto, {"x": numbers(2, 8)})) > 16


def test_overflow_shows_only_between_two_nodes_of_which_one_is_fp16() -> None:
    text = """g (float[2] x) => (float[2] y) <float[1] k = {1000.0}, float[1] q = {0.001}>
        { [a] s = Mul(x, k) [b] y = Mul(s, q) }"""
    feeds = {"x": np.array([100, 0.1], np.float32)}
    check_every_assignment(text, feeds)
    board = Switchboard(ir.from_proto(parsed(text)))
    assert np.isinf(board.run(feeds, [])["y"][0])
    assert np.isinf(board.run(feeds, ["a"])["y"][0])
    assert np.isinf(board.run(feeds, ["b"])["y"][0])
    assert board.run(feeds, ["a", "b"])["y"][0] == pytest.approx(100, rel=1e-6)
    assert board.runs == 4


def test_weights_beyond_float16_and_weights_read_twice() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {0.1, 1e6}>
        { [a] y = Mul(x, w) [b] z = Add(x, w) }"""
    check_every_assignment(text, {"x": np.array([0.3, 0.7], np.float32)})
    check_every_assignment(text, {"x": np.array([0.3, 0.7], np.float32)}, init_conversion_max_bytes=1)


@pytest.mark.parametrize("keep", [True, False, ["x"], ["y"]])
def test_inputs_and_outputs(keep: bool | list[str]) -> None:
    text = "g (float[2] x) => (float[2] y, float[2] s) { [a] s = Mul(x, x) [b] y = Exp(s) }"
    proto, feeds = parsed(text), {"x": np.array([0.3, 1.7], np.float32)}
    board = Switchboard(ir.from_proto(proto), Precision(keep_io_types=keep))
    for pins in ((), ("a",), ("b",), ("a", "b")):
        fed = feeds if keep is True or keep == ["x"] else {"x": feeds["x"].astype(np.float16)}
        expected, kept = emulated(proto, fed, only(block=Lists(node=pins)), keep_io_types=keep)
        assert_same_bits(board.run(feeds, kept), expected)
        assert_same_bits(board.run(fed, kept), expected)


def test_a_mask_is_clamped_when_a_node_on_its_way_is_fp16() -> None:
    text = """g (float[2,4] x, bool[2,4] c, float[4,4] w) => (float[2,4] y) <float big = {-3e38}>
        { [s] s = MatMul(x, w) [t] t = Where(c, big, s) [u] u = Identity(t) [p] p = Softmax(u) [y] y = MatMul(p, w) }"""
    masked = np.array([[True] * 4, [True, False, False, True]])
    check_every_assignment(text, {"x": numbers(2, 4), "c": masked, "w": numbers(4, 4, seed=1)})


@pytest.mark.parametrize("taken", [True, False])
def test_branches_follow_their_node(taken: bool) -> None:
    text = """g (float[2] x, bool c) => (float[2] y) <float[2] w = {0.1, 0.7}> { [a] a = Exp(x)
        [i] r = If(c) <then_branch = t () => (float[2] p) { [t] q = Exp(a) [t2] p = Mul(q, w) },
        else_branch = e () => (float[2] q) { [e] q = Mul(a, w) }> [b] y = Add(r, a) }"""
    proto, feeds = parsed(text), {"x": np.array([0.3, 1.1], np.float32), "c": np.array(taken)}
    board = Switchboard(ir.from_proto(proto))
    for count in range(4):
        for pins in itertools.combinations(("a", "i", "b"), count):
            inner = ("t", "t2", "e") if "i" in pins else ()
            names = tuple(f"^{name}$" for name in (*pins, *inner))
            expected, kept = emulated(proto, feeds, only(block=Lists(node=names)))
            assert_same_bits(board.run(feeds, kept), expected)


def test_fp16_nodes_of_the_model_itself_round() -> None:
    text = """g (float[3] x) => (float[3] y, float[3] z)
        { [h] h = Cast<to = 10>(x) [n] n = Neg(h) [y] y = Cast<to = 1>(n) [z] z = Exp(x) }"""
    found = check_every_assignment(text, {"x": np.array([0.7, 0.38, -0.06], np.float32)})
    assert len(found) > 1


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck), derandomize=True)
@given(models(), st.sets(st.integers(0, 11)), st.booleans())
def test_random_models(proto: onnx.ModelProto, chosen: set[int], keep: bool) -> None:
    """Pins are nodes of the main graph, each with all that is in its bodies."""
    model = ir.from_proto(proto)
    PREPARE(model)
    pins: list[str] = []
    for position, node in enumerate(model.graph):
        if position in chosen:
            pins += [str(inner.name) for inner in with_subgraphs(node)]
    rules = only(block=Lists(node=tuple(f"^{pin}$" for pin in pins)))
    with np.errstate(all="ignore"):
        expected, kept = emulated(proto, FEEDS, rules, keep_io_types=keep)
        board = Switchboard(ir.from_proto(proto), Precision(keep_io_types=keep), **SAME_KERNELS)
    assert_same_bits(board.run(FEEDS, kept), expected)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.filterwarnings("ignore")
def test_a_detector_with_what_a_converted_file_keeps(decoder: str, tmp_path: Path) -> None:
    """By way of files: what decisions.json calls fp32 is what the switchboard is told."""
    choice = f"decoder={decoder}"
    source, feeds = embedded(tmp_path / "fp32.onnx", choice), scenes(2, choice)
    board = Switchboard(source)
    results = []
    for options in (
        {},
        {"op_block_list": ["Softmax", "LayerNormalization"]},
        {"op_block_list": ["MatMul", "Conv"], "placement": "eager"},
        {"scope_block_list": ["decoder.layers.0"], "init_max": 1.0},
    ):
        to_fp16(source, tmp_path / "fp16.onnx", decisions_path=tmp_path / "decisions.json", **options)
        rows = read_json(tmp_path / "decisions.json")
        actual = board.run(feeds, [row["node"] for row in rows if row["precision"] == "fp32"])
        assert_same_bits(actual, EmulatedSession(tmp_path / "fp16.onnx", **SAME_KERNELS).run(feeds))
        results.append(actual["logits"].tobytes())
    assert len(set(results)) == len(results)
    assert_same_bits(board.run(feeds, board.nodes), Session(source, **SAME_KERNELS).run(feeds))


def test_with_every_node_in_fp32_it_is_the_fp32_model_and_joins_lists_of_feeds() -> None:
    proto = parsed("g (float[n,2] x) => (float[n,2] y) <float[2] w = {0.1, 3.3}> { [a] s = Mul(x, w) [b] y = Exp(s) }")
    board = Switchboard(ir.from_proto(proto))
    x = numbers(3, 2)
    exact = np.exp((x * np.array([0.1, 3.3], np.float32)).astype(np.float64))
    one = board.run({"x": x}, board.nodes)["y"]
    np.testing.assert_allclose(one, exact, rtol=3e-7)
    parts = board.run([{"x": x[:1]}, {"x": x[1:]}], board.nodes)["y"]
    np.testing.assert_array_equal(parts, one)


def test_unknown_names_are_refused() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {0.1, 1.0}> { [a] y = Mul(x, w) }"
    with raises("wrong-name", "'b'") as caught:
        Switchboard(ir.from_proto(parsed(text))).run({"x": numbers(2)}, ["a", "b"])
    assert "'a'" not in str(caught.value)


def test_sets_of_one_effect_give_one_result() -> None:
    text = """g (float[4] x) => (float[4] y) <float[1] w = {0.1}> { [in] a = Exp(x) [b] b = Mul(a, w) [c] c = Sigmoid(b)
        [d] d = Relu(c) [out] y = Exp(d) }"""
    board, x = Switchboard(ir.from_proto(parsed(text))), numbers(4)
    results: dict[bytes, set[bytes]] = {}
    for count in range(6):
        for pins in itertools.combinations(board.nodes, count):
            results.setdefault(board.effect(pins), set()).add(board.run({"x": x}, pins)["y"].tobytes())
    assert all(len(values) == 1 for values in results.values())
    assert len(results) < 32
    assert (
        board.effect([]) == board.effect(["c"]) != board.effect(["b"])
    )  # b has a weight, in reads what is not rounded
