"""Branches of If: the one that all samples take is measured as if it stood in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings

from tests.tiers import examples
from tests.truehalf.random_graphs import models
from truehalf import Precision, convert
from truehalf.calibration.calibrate import calibrate
from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import PREPARE

HEAD = '<ir_version: 8, opset_import: ["": 17]> '
SIDES = "<then_branch = t () => (float[n,8] ty) {{ {then} }}, else_branch = e () => (float[n,8] ey) {{ {other} }}>"
TEXT = (
    "g (float[n,8] x, bool c) => (float[n,8] y) <float[8,8] w = {{"
    + ", ".join(["0.25"] * 64)
    + "}}, float k = {{100}}>"
    " {{ h = Relu(x) y = If(c) " + SIDES + " }}"
)
BODIES = {
    "MatMul": 'a = MatMul(h, w) ["last"] ty = Relu(a)',
    "Softmax": 'a = Softmax(h) ["last"] ty = Neg(a)',
    "LayerNormalization": 's = ConstantOfShape<value = float[1] {1}>(e8) ["n"] a = LayerNormalization(h, s)'
    ' ["last"] ty = Abs(a)',
    "large": 'a = Mul(h, k) ["last"] ty = Mul(a, k)',
    "captured": '["last"] ty = Add(x, h)',
    "nested": "a = Tanh(h) ty = If(c) <then_branch = t2 () => (float[n,8] ty2) { b = Exp(a) ty2 = Neg(b) },"
    " else_branch = e2 () => (float[n,8] ey2) { ey2 = Abs(a) }>",
}
OTHER = "q = Exp(x) ey = Neg(q)"


def model(then: str, other: str = OTHER) -> onnx.ModelProto:
    found = onnx.parser.parse_model(HEAD + TEXT.format(then=then, other=other))
    found.graph.initializer.append(onnx.numpy_helper.from_array(np.array([8]), "e8"))
    return found


def feed(condition: bool = True, scale: float = 1.0) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).random((3, 8), np.float32) * np.float32(scale)
    return {"x": x, "c": np.array(condition)}


def rules(proto: onnx.ModelProto, samples: list[dict[str, np.ndarray]], **options: Any) -> dict[str, str]:
    made = convert(proto, samples=samples, skip=("slim", "check"), precision=Precision(placement="eager", **options))
    return {row["node"]: row["rule"] for row in made.decisions}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("case", BODIES)
def test_the_branch_that_is_taken_is_measured(case: str, swapped: bool) -> None:
    proto = model(BODIES[case])
    if swapped:
        then, other = (node for node in proto.graph.node[-1].attribute)
        then.name, other.name = other.name, then.name
    loaded = ir.from_proto(proto)
    PREPARE(loaded)
    ranges = calibrate(loaded, [feed(not swapped), feed(not swapped, 2.0)])["tensors"]
    written = {node.outputs[0].name for node in all_nodes(loaded)}
    not_taken = ("ey", "q", *(("b", "ty2") if swapped else ()))
    taken = {name for name in written if not str(name).startswith(not_taken)}
    assert taken <= {name for name, entry in ranges.items() if entry["absmax"] is not None}
    assert not {"q", "ey", "b" if swapped else "ey2"} & set(ranges)


@pytest.mark.parametrize("case", ["MatMul", "Softmax", "LayerNormalization", "captured"])
def test_its_nodes_are_converted(case: str) -> None:
    found = rules(model(BODIES[case]), [feed()])
    assert "unmeasured" not in {rule for name, rule in found.items() if name in ("last", "MatMul_a", "Softmax_a")}
    assert found["Neg_ey"] == "unmeasured"


@pytest.mark.parametrize(("scale", "rule"), [(0.9, "none"), (60.0, "overflow")])
def test_its_ranges_decide(scale: float, rule: str) -> None:
    assert rules(model(BODIES["large"]), [feed(scale=scale)])["last"] == rule


@pytest.mark.parametrize(("scale", "rule"), [(1.0, "none"), (200.0, "inner")])
def test_sums_inside_its_nodes_are_measured(scale: float, rule: str) -> None:
    """The L2 norm of eight elements around 100: 326, of a sum of squares of 106,000."""
    norm = '["n"] a = ReduceL2<axes = [1]>(h) ["last"] ty = Add(h, a)'
    assert rules(model(norm), [feed(scale=scale)])["n"] == rule


@pytest.mark.parametrize("case", BODIES)
def test_where_samples_differ_branches_are_unmeasured_and_stay_float32(case: str) -> None:
    loaded = ir.from_proto(model(BODIES[case]))
    PREPARE(loaded)
    samples = [feed(True), feed(False, 3.0)]
    assert set(calibrate(loaded, samples)["tensors"]) == {"x", "h", "y"}
    judged = rules(model(BODIES[case]), samples)
    assert judged["Neg_ey"] == judged["last" if case != "nested" else "Tanh_a"] == "unmeasured"


def test_the_range_of_a_branch_is_that_of_its_run() -> None:
    loaded = ir.from_proto(model(BODIES["MatMul"]))
    PREPARE(loaded)
    x = feed()["x"]
    found = calibrate(loaded, [feed()])["tensors"]
    assert found["a"]["absmax"] == pytest.approx(float(np.abs(x @ np.full((8, 8), 0.25, np.float32)).max()))
    assert found["y"]["absmax"] == found["ty"]["absmax"]


@settings(max_examples=examples(20))
@given(models())
def test_generated_models_are_measured_as_before(proto: onnx.ModelProto) -> None:
    """Random branches and loops: what the graph itself computes has the range that a run without the If would show."""
    loaded = ir.from_proto(proto)
    PREPARE(loaded)
    feeds = {
        str(value.name): np.ones([side if isinstance(side, int) else 2 for side in value.shape], value.dtype.numpy())
        for value in loaded.graph.inputs
        if value.shape is not None and value.dtype is not None
    }
    found = calibrate(loaded, [feeds], nonfinite_outputs="warn")["tensors"]
    main = {str(v.name) for node in loaded.graph for v in node.outputs if v.dtype == ir.DataType.FLOAT}
    assert main <= set(found)
