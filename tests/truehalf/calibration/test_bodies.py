"""Bodies of Loop and Scan are measured over all turns; what cannot be run by itself is said to be unmeasured."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings

from tests.messages import expect
from tests.tiers import examples
from tests.truehalf.random_graphs import models
from truehalf import Precision, convert
from truehalf.calibration import bodies
from truehalf.calibration.calibrate import calibrate
from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import PREPARE

HEAD = '<ir_version: 8, opset_import: ["": 17]> '
X = np.array([[1, -2, 3], [0.5, 4, -1]], np.float32)
W = "<float[2,3] w = {1, 2, 3, 4, 5, 6}>"
BODY = "<body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t, float[2,3] z) { d = Identity(c) %s }>"
SCAN = "g (float[2,3] x) => (float[2] y, float[%s] ys) <float[2] zero = {0, 0}> { y, ys = Scan(zero, x) <%s body = "
SCAN += "b (float[2] s, float[%s] r) => (float[2] t, float[%s] z) { %s }> }"

# Model, feeds, and the extremes of the tensors inside by hand: over all turns of all samples.
CASES: dict[str, tuple[str, list[dict[str, np.ndarray]], dict[str, tuple[float, float]]]] = {
    "a state that grows": (
        f"g (float[2,3] x, int64 m) => (float[2,3] y, float[k,2,3] ys) {W} {{ y, ys = Loop(m, , x) "
        + BODY % "t = Add(s, s) z = Neg(t)"
        + " }",
        [{"x": X, "m": np.array(4)}, {"x": 2 * X, "m": np.array(1)}],
        {"s": (-16.0, 32.0), "t": (-32.0, 64.0), "z": (-64.0, 32.0)},
    ),
    "values and weights of the graph around": (
        f"g (float[2,3] x, int64 m) => (float[2,3] y, float[k,2,3] ys) {W} {{ h = Neg(x) y, ys = Loop(m, , x) "
        + BODY % "a = Mul(h, w) t = Identity(s) z = Add(a, s)"
        + " }",
        [{"x": X, "m": np.array(2)}],
        {"a": (-20.0, 6.0), "z": (-16.0, 5.0)},
    ),
    "a condition that ends it": (
        "g (float[2,3] x, bool go) => (float[2,3] y, float[k,2,3] ys) <float ten = {10}> { y, ys = Loop(, go, x) "
        "<body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t, float[2,3] z) { t = Add(s, s) "
        "top = ReduceMax<keepdims = 0>(t) d = Less(top, ten) z = Neg(t) }> }",
        [{"x": X, "go": np.array(True)}],
        {"s": (-4.0, 8.0), "t": (-8.0, 16.0), "top": (8.0, 16.0)},
    ),
    "a Scan over the last axis, backwards": (
        SCAN
        % (
            "3,2",
            "num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],",
            "2",
            "2",
            "t = Add(s, r) z = Mul(t, r)",
        ),
        [{"x": X}],
        {"r": (-2.0, 4.0), "t": (-1.0, 3.5), "z": (-2.0, 12.0)},
    ),
    "a Scan over rows": (
        SCAN % ("2,3", "num_scan_inputs = 1,", "3", "3", "z = Neg(r) q = ReduceSum<keepdims = 1>(r) t = Add(s, q)"),
        [{"x": X}, {"x": 3 * X}],
        {"r": (-6.0, 12.0), "z": (-12.0, 6.0), "q": (2.0, 10.5), "t": (2.0, 16.5)},
    ),
    "a Loop in the branch of an If": (
        "g (float[2,3] x, bool c0, int64 m) => (float[2,3] y) { y = If(c0) <then_branch = a () => (float[2,3] ya) "
        "{ ya, no = Loop(m, , x) " + BODY % "t = Add(s, s) z = Neg(t)" + " }, else_branch = e () => (float[2,3] ye) "
        "{ ye = Neg(x) }> }",
        [{"x": X, "c0": np.array(True), "m": np.array(3)}, {"x": 9 * X, "c0": np.array(False), "m": np.array(3)}],
        {"s": (-8.0, 16.0), "t": (-16.0, 32.0), "ye": (-36.0, 18.0), "ya": (-16.0, 32.0)},
    ),
    "a sequence as state, empty at first": (
        "g (float[2,3] x, int64 m) => (float[k,3] y) { e = SequenceEmpty<dtype = 1>() q, r = Loop(m, , e, x) <body = b "
        "(int64 i, bool c, seq(float[2,3]) p, float[2,3] s) => (bool d, seq(float[2,3]) n, float[2,3] t) "
        "{ d = Identity(c) t = Add(s, s) z = Neg(t) n = SequenceInsert(p, z) }> y = ConcatFromSequence<axis = 0>(q) }",
        [{"x": X, "m": np.array(2)}, {"x": X, "m": np.array(3)}],
        {"s": (-8.0, 16.0), "t": (-16.0, 32.0), "z": (-32.0, 16.0)},
    ),
    "a sequence of the graph around": (
        "g (float[2,3] x, int64 m) => (float[1,3] y) <float[1,3] o = {0, 0, 0}> { h = Neg(x) "
        "e = SplitToSequence<axis = 0>(h) y = Loop(m, , o) <body = b (int64 i, bool c, float[1,3] s) => "
        "(bool d, float[1,3] t) { d = Identity(c) r = SequenceAt(e, i) t = Add(s, r) }> }",
        [{"x": X, "m": np.array(2)}],
        {"s": (-3.0, 2.0), "t": (-3.0, 2.0)},
    ),
    "a sequence of integers, in a Loop in a Loop": (
        "g (float[2,3] x, int64 m) => (float[2,3] y) { e = SequenceEmpty<dtype = 7>() q, y = Loop(m, , e, x) <body = b "
        "(int64 i, bool c, seq(int64) p, float[2,3] s) => (bool d, seq(int64) n, float[2,3] t) { d = Identity(c) "
        "t = Add(s, s) n = Loop(m, , p) <body = l (int64 j, bool a, seq(int64) u) => (bool k, seq(int64) w) "
        "{ k = Identity(a) w = SequenceInsert(u, j) }> }> }",
        [{"x": X, "m": np.array(2)}],
        {"s": (-4.0, 8.0), "t": (-8.0, 16.0)},
    ),
    "an optional of the graph around": (
        "g (float[2,3] x, int64 m) => (float[2,3] y) { h = Neg(x) e = Optional(h) y = Loop(m, , x) <body = b "
        "(int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) { d = Identity(c) r = OptionalGetElement(e) "
        "t = Sub(s, r) }> }",
        [{"x": X, "m": np.array(2)}],
        {"s": (-4.0, 8.0), "t": (-6.0, 12.0)},
    ),
}


def loaded(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    PREPARE(model)
    return model


@pytest.mark.parametrize("case", CASES)
def test_a_body_is_measured_over_all_turns(case: str) -> None:
    text, feeds, expected = CASES[case]
    found = calibrate(loaded(text), feeds)
    assert {name: (found["tensors"][name]["min"], found["tensors"][name]["max"]) for name in expected} == expected
    assert not found["warnings"]


@pytest.mark.parametrize("case", CASES)
def test_its_nodes_are_judged_by_what_was_measured(case: str) -> None:
    text, feeds, _ = CASES[case]

    def rules(limit: float) -> set[str]:
        options: dict[str, Any] = {"placement": "eager", "data_max": limit}
        model = onnx.parser.parse_model(HEAD + text)
        made = convert(model, samples=feeds, skip=("slim", "check"), precision=Precision(**options))
        return {row["rule"] for row in made.decisions if row["rule"] == "unmeasured" or row["rule"] == "data_max"}

    assert rules(100.0) == set() and rules(3.0) == {"data_max"}


def test_the_turn_of_the_largest_is_named() -> None:
    text, feeds, _ = CASES["a state that grows"]
    expect(str(calibrate(loaded(text), feeds)["tensors"]["t"]["sample"]), None, "0", "3")


def test_elements_are_those_of_a_turn() -> None:
    text, feeds, _ = CASES["a Scan over rows"]
    assert calibrate(loaded(text), feeds)["tensors"]["z"]["elements"] == len(feeds) * 3


def test_a_body_that_never_runs_is_unmeasured() -> None:
    text, feeds, _ = CASES["a state that grows"]
    assert "t" not in calibrate(loaded(text), [feeds[0] | {"m": np.array(0)}])["tensors"]


def test_what_is_not_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_MOST_TURNS", 3)
    text, feeds, _ = CASES["a state that grows"]
    found = calibrate(loaded(text), feeds)
    (warning,) = found["warnings"]
    expect(warning, "not-measured", "Loop", 3)
    assert "t" not in found["tensors"]


@settings(max_examples=examples(30))
@given(models())
def test_all_that_runs_in_a_generated_model_is_measured(proto: onnx.ModelProto) -> None:
    """Branches and loops inside each other: what a node inside writes is measured, where its body runs."""
    model = ir.from_proto(proto)
    PREPARE(model)
    feeds = {
        str(value.name): np.ones([side if isinstance(side, int) else 2 for side in value.shape], value.dtype.numpy())
        for value in model.graph.inputs
        if value.shape is not None and value.dtype is not None
    }
    found = calibrate(model, [feeds], nonfinite_outputs="warn")
    assert not [warning for warning in found["warnings"] if "not-measured" in warning]
    loops = [node for node in model.graph if node.op_type == "Loop" and node.domain == ""]
    for node in all_nodes(model):
        if node.graph in [graph for loop in loops for graph in [loop.attributes["body"].as_graph()]]:
            inside = {str(v.name) for v in node.outputs if v.dtype == ir.DataType.FLOAT}
            assert inside <= set(found["tensors"]), "every Loop of these models runs"
