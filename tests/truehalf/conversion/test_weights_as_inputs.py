"""Weights that are listed among the inputs, as torch 1.x writes them: weights by default, inputs on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from onnx import helper, numpy_helper

from tests.messages import expect, raises
from tests.tiers import examples
from tests.truehalf.random_graphs import models
from truehalf import Precision, calibrate, clean_casts, compare, convert
from truehalf.ir.facts import fixed_batch
from truehalf.ir.inlining import WeightsApart, weights_taken_out
from truehalf.ir.model_forms import ModelFile

HEAD = '<ir_version: 7, opset_import: ["" : 17]> '
BODIES = {
    "Conv": (
        "float[n,3,8,8] x",
        "float[n,4,8,8] y",
        "y = Conv<pads = [1,1,1,1]>(x, w, b)",
        {"w": (4, 3, 3, 3), "b": (4,)},
    ),
    "BatchNormalization": (
        "float[n,3,8,8] x",
        "float[n,4,8,8] y",
        "h = Conv<pads = [1,1,1,1]>(x, w) y = BatchNormalization(h, s, b, m, v)",
        {"w": (4, 3, 3, 3)} | dict.fromkeys("sbmv", (4,)),
    ),
    "Gemm": ("float[n,8] x", "float[n,4] y", "y = Gemm<transB = 1>(x, w, b)", {"w": (4, 8), "b": (4,)}),
    "MatMul": ("float[2,n,8] x", "float[2,n,4] y", "h = MatMul(x, w) y = Softmax(h)", {"w": (8, 4)}),
    "Gather": ("int64[n,5] x", "float[n,5,8] y", "y = Gather(w, x)", {"w": (9, 8)}),
    "LayerNormalization": ("float[n,8] x", "float[n,8] y", "y = LayerNormalization(x, s, b)", {"s": (8,), "b": (8,)}),
    "If": (
        "float[n,8] x, bool c",
        "float[n,8] y",
        "y = If(c) <then_branch = g1 () => (float[n,8] t) { t = MatMul(x, w) },"
        " else_branch = g2 () => (float[n,8] e) { e = Add(x, b) }>",
        {"w": (8, 8), "b": (8,)},
    ),
    "Reshape": ("float[n,8] x", "float[n,2,4] y", "y = Reshape(x, shape)", {"shape": (3,)}),
}


def listing(case: str, ir_version: int = 7, listed: bool = True) -> onnx.ModelProto:
    inputs, outputs, nodes, weights = BODIES[case]
    model = onnx.parser.parse_model(f"{HEAD} g ({inputs}) => ({outputs}) {{ {nodes} }}")
    model.ir_version = ir_version
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        of_sizes = np.array([0, 2, 4]) if name == "shape" else None
        array = of_sizes if of_sizes is not None else rng.random(shape, np.float32) + np.float32(0.5)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return listed_in(model) if listed else model


def listed_in(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all its weights among its inputs."""
    for each in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    return model


def feed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng, weights, arrays = np.random.default_rng(1), {each.name for each in model.graph.initializer}, {}
    for value in model.graph.input:
        if value.name not in weights:
            shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
            kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            arrays[value.name] = (rng.random(shape) * 2).astype(kind)
    return arrays


def inputs(model: ir.Model) -> list[str]:
    return [str(value.name) for value in model.graph.inputs]


def facts(result: Any) -> Any:
    """What two conversions have in common that come to the same."""
    stored = {name: value.dtype for name, value in result.model.graph.initializers.items()}
    return inputs(result.model), stored, [(row["op"], row["precision"]) for row in result.decisions]


@pytest.mark.parametrize("skip", [(), ("slim",)])
@pytest.mark.parametrize("case", BODIES)
def test_they_are_weights(case: str, skip: tuple[str, ...]) -> None:
    model = listing(case)
    found = convert(model, samples=feed(model), skip=skip)
    assert facts(found) == facts(convert(listing(case, listed=False), samples=feed(model), skip=skip))
    assert inputs(found.model) == list(feed(model))
    (line,) = [line for line in found.report.fp16.warnings if "weights_as_inputs" in line]
    expect(line, None, len(BODIES[case][3]), *BODIES[case][3])
    assert compare(model, found.model, feed(model)).verdict != "failed"


@pytest.mark.parametrize("case", BODIES)
def test_those_that_had_to_be_listed_are_weights_slimmed_or_not(case: str) -> None:
    """A weight that onnxslim folds away may not become an input without a value."""
    model = listing(case, ir_version=3)
    found = convert(model)
    assert inputs(found.model) == list(feed(model))
    assert not any("weights_as_inputs" in line for line in found.report.fp16.warnings)


@pytest.mark.parametrize("case", BODIES)
def test_they_stay_inputs_on_request(case: str, tmp_path: Path) -> None:
    model, option = listing(case), Precision(weights_as_inputs=True)
    found = convert(model, tmp_path / "out.onnx", samples=feed(model), precision=option)
    assert inputs(found.model) == [*feed(model), *BODIES[case][3]]
    assert found.report.slim is None
    assert not any("weights_as_inputs" in line for line in found.report.fp16.warnings)
    assert compare(model, tmp_path / "out.onnx", feed(model)).verdict != "failed"


def test_samples_that_give_a_weight_are_refused_with_the_option() -> None:
    model = listing("Gemm")
    given = feed(model) | {"b": np.zeros(4, np.float32)}
    for skip in ([], ["slim"]):
        with raises("in-conflict", "'b'", "precision.weights_as_inputs=true"):
            convert(model, samples=given, skip=skip)
    assert inputs(convert(model, samples=given, precision=Precision(weights_as_inputs=True)).model) == ["x", "w", "b"]
    assert calibrate(model, given)["samples"] == 1


@settings(max_examples=examples(20))
@given(models())
def test_of_generated_models(model: onnx.ModelProto) -> None:
    apart, listed = onnx.ModelProto(), listed_in(model)
    apart.CopyFrom(listed)
    del apart.graph.input[len(apart.graph.input) - len(apart.graph.initializer) :]
    found, expected = (convert(each, skip=("slim", "check")) for each in (listed, apart))
    assert facts(found) == facts(expected)


def test_an_input_with_a_value_stays_where_nothing_else_goes_in() -> None:
    model = onnx.parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] y) <float[2] x = {{1, 2}}> {{ y = Relu(x) }}")
    found = ir.from_proto(model)
    WeightsApart()(found)
    assert (inputs(found), weights_taken_out(found)) == (["x"], [])
    assert inputs(convert(model).model) == ["x"]


def test_tools_that_convert_nothing_leave_them() -> None:
    assert inputs(clean_casts(listing("Gemm")).model) == ["x", "w", "b"]


@pytest.mark.parametrize("case", ["Conv", "Gemm", "MatMul", "LayerNormalization", "Reshape"])
def test_their_first_axis_is_no_batch(case: str, tmp_path: Path) -> None:
    onnx.save(listing(case), tmp_path / "m.onnx")
    file = ModelFile(tmp_path / "m.onnx")
    assert file.fixed_batch == (2 if case == "MatMul" else None)
    assert fixed_batch(file.model) == (2 if case == "MatMul" else None)
