"""The copy of a model with reductions: only what is needed runs, and in the order of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from truehalf.calibration.instrument import Instrumented
from truehalf.files import read_json


def model_of(text: str, imports: str = '"": 17') -> ir.Model:
    return ir.from_onnx_text(f"<ir_version: 8, opset_import: [{imports}]> g {text}")


def test_only_what_the_outputs_need_is_left() -> None:
    model = model_of(
        """(float[2] x, float[2] unused, float[2] z) => (float[2] y, float[2] q)
        <float[2] w = {1.0, 2.0}, float[2] v = {1.0, 2.0}> { y = Add(x, w)  q = Mul(z, v) }"""
    )
    graph = Instrumented(model)
    session = graph.open(["y", "y"])
    assert [value.name for value in graph.graph.inputs] == ["x"]
    assert (list(graph.graph.initializers), len(graph.graph)) == (["w"], 1)
    x = np.float32([3, 4])
    outputs, reports = session.run({"x": x, "unused": x, "z": x})
    assert (outputs["y"].tolist(), reports) == ([4, 6], {})


def test_reports_come_as_one_vector_each_in_their_order() -> None:
    model = model_of("(float[N] x) => (float[N] y) { y = Neg(x) }")
    graph = Instrumented(model)
    for name in ("y", "x"):
        place = graph.after(name)
        place.report("high", "ReduceMax", graph.value(name))
        place.report("low", "ReduceMin", graph.value(name))
    outputs, reports = graph.open([]).run({"x": np.float32([1, 2, -3])})
    assert outputs == {}
    assert (reports["high"].tolist(), reports["low"].tolist()) == ([3, 2], [-2, -3])


@pytest.mark.parametrize("opset", [11, 13, 17, 18])
@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceMax"])
def test_axes_are_attributes_or_inputs_as_the_opset_has_them(op_type: str, opset: int) -> None:
    graph = Instrumented(model_of("(float[2,3] x) => (float[2,3] y) { y = Neg(x) }", f'"": {opset}'))
    place = graph.after("y")
    place.report("found", "ReduceMax", place.flat(place.reduced(op_type, graph.value("x"), (1,))))
    place.report("found", "ReduceMax", place.flat(place.reduced(op_type, graph.value("x"), None)))
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    reduce = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max}[op_type]
    _, reports = graph.open([]).run({"x": x})
    assert reports["found"].tolist() == [reduce(x, axis=1).max(), reduce(x)]


def test_a_model_of_other_domains_alone() -> None:
    model = model_of("(float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }", '"com.microsoft": 1')
    graph = Instrumented(model)
    graph.after("x").report("low", "ReduceMin", graph.value("x"))
    outputs, reports = graph.open(["y"]).run({"x": np.float32([0, 100])})
    assert (outputs["y"].tolist(), reports["low"].tolist()) == ([0, 100], [0])
    assert "" not in model.graph.opset_imports


def test_each_report_runs_right_behind_its_tensor(tmp_path: Path) -> None:
    """An optimised graph has no Transpose but one behind `relu`, made anew, which runs last, and the report with it."""
    model = model_of(
        """(float[1,2,3,4] x) => (float[1,2,3,4] y) {
            [turn] a = Transpose<perm = [0, 2, 3, 1]>(x)  [relu] b = Relu(a)
            [back] c = Transpose<perm = [0, 3, 1, 2]>(b)  [exp] d = Exp(x)  [neg] e = Neg(d)  [add] y = Add(e, c)
        }"""
    )
    graph = Instrumented(model)
    for name in ("b", "y"):
        place = graph.after(name)
        place.report("high", "ReduceMax", place.flat(graph.value(name)))
    in_order = [str(node.name) for node in graph.graph]
    with_profile = {"enable_profiling": True, "profile_file_prefix": str(tmp_path / "run")}
    session = graph.open(["y"], **with_profile)
    session.run({"x": np.ones((1, 2, 3, 4), np.float32)})
    del session  # writes the profile
    (profile,) = tmp_path.iterdir()
    ran = [event["name"].removesuffix("_kernel_time") for event in read_json(profile) if event["cat"] == "Node"]
    assert [name for name in ran if name in in_order] == in_order
