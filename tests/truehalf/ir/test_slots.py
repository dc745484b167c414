"""What stays float32 because nothing runs it in float16, against the kernels that runtimes have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.float16_kernels import runs_in_float16
from tests.onnx_backend import cases, operators_of
from truehalf.config.precision import Precision
from truehalf.conversion.convert import convert_model
from truehalf.ir.normalize import PREPARE
from truehalf.ir.ops import TABLE, Trait, with_trait
from truehalf.patterns.support import OPSET_MAX, builds

# What its own page of operators gives TensorRT in float32 alone, and what is float32 by its meaning.
ELSE = {"STFT", "BitCast", "MeanVarianceNormalization"}
# Runtimes put what ONNX defines it by in its place, of operators that have float16.
DEFINED = {"CenterCropPad"}
EVERYWHERE = Precision(fp16_ops=tuple(TABLE), data_max=None, epsilons=False)


def _states_its_type(schema: onnx.defs.OpSchema) -> bool:
    return not {"dtype", "output_datatype"}.isdisjoint(schema.attributes)


def test_what_nothing_runs_in_float16_stays_float32(tmp_path: Path) -> None:
    built = {name for name in TABLE if builds(name, max(OPSET_MAX))}
    cast = {name for name, runs in runs_in_float16(tmp_path).items() if not runs}
    stated = {name for name in cast if _states_its_type(onnx.defs.get_schema(name))}
    nowhere = cast - built - stated - with_trait(Trait.QUANTIZED) - DEFINED
    assert nowhere == with_trait(Trait.FLOAT32_ONLY) - ELSE


BACKEND = [model for _, model, _ in cases(whole=False)]
IMAGE = "float[1,2,8,8] x"
WRITTEN = {  # of which ONNX has no backend test in float32
    "CumProd": (
        26,
        f"g ({IMAGE}) => (float y) <int64 axis = {{2}}> {{ z = CumProd(x, axis) y = ReduceMax<keepdims = 0>(z) }}",
    ),
    "MaxRoiPool": (
        22,
        f"g ({IMAGE}, float[3,5] r) => (float[3,2,2,2] y) {{ y = MaxRoiPool<pooled_shape = [2, 2]>(x, r) }}",
    ),
    "MeanVarianceNormalization": (13, f"g ({IMAGE}) => (float[1,2,8,8] y) {{ y = MeanVarianceNormalization(x) }}"),
}


@pytest.mark.parametrize("operator", sorted(with_trait(Trait.FLOAT32_ONLY) - {"BitCast"}))
def test_its_nodes_are_not_converted(operator: str) -> None:
    found = [ir.from_proto(model) for model in BACKEND if ("", operator) in operators_of(model)]
    if operator in WRITTEN:
        opset, text = WRITTEN[operator]
        found.append(ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}'))
    assert found
    for model in found:
        PREPARE(model)
        rules = {row["rule"] for row in convert_model(model, EVERYWHERE).decisions if row["op"] == operator}
        assert rules <= {"no_fp16_kernel"}


@pytest.mark.parametrize("seed", range(3))
def test_grids_that_a_generator_draws(seed: int) -> None:
    """A spatial transformer: positions from a product, then samples of an image there."""
    random = np.random.default_rng(seed)
    channels, height, width, sizes = (int(random.integers(2, 9)) for _ in range(4))
    corners = seed % 2
    model = ir.from_onnx_text(
        f"""<ir_version: 9, opset_import: ["" : 20]> g (float[1,{sizes}] z, float[1,{channels},{height},{width}] image)
        => (float[1,{channels},{height},{width}] y)
        <int64[3] matrix = {{1, 2, 3}}, int64[4] size = {{1, {channels}, {height}, {width}}},
        int64[2] shape = {{{sizes}, 6}}> {{
            w = ConstantOfShape<value = float[1] {{0.2}}>(shape) t = MatMul(z, w) theta = Reshape(t, matrix)
            grid = AffineGrid<align_corners = {corners}>(theta, size) y = GridSample(image, grid) }}"""
    )
    PREPARE(model)
    rules = {row["op"]: row for row in convert_model(model, EVERYWHERE).decisions}
    assert (rules["AffineGrid"]["precision"], rules["AffineGrid"]["rule"]) == ("fp32", "no_fp16_kernel")
    assert rules["GridSample"]["precision"] == rules["MatMul"]["precision"] == "fp16"


FORMS = {
    "GridSample of volumes": (20, "float[1,2,3,4,5] x, float[1,2,2,2,3] g", "y = GridSample(x, g)", False),
    "cubic": (20, "float[1,2,3,4,5] x, float[1,2,2,2,3] g", 'y = GridSample<mode = "nearest">(x, g)', False),
    "GridSample of images": (20, "float[1,2,4,5] x, float[1,2,2,2] g", "y = GridSample(x, g)", True),
    "of a rank that is not known": (
        20,
        "float x1, float[1,2,2,2] g",
        "x = Reshape(x1, free) y = GridSample(x, g)",
        True,
    ),
    "LpPool, dilated": (22, "float[1,2,8,8] x", "y = LpPool<kernel_shape = [2, 2], dilations = [2, 2]>(x)", False),
    "LpPool": (22, "float[1,2,8,8] x", "y = LpPool<kernel_shape = [2, 2], dilations = [1, 1]>(x)", True),
    "DeformConv of volumes": (
        22,
        "float[1,1,3,3,3] x, float[1,1,2,2,2] w, float[1,24,2,2,2] o",
        "y = DeformConv<kernel_shape = [2, 2, 2]>(x, w, o)",
        False,
    ),
    "DeformConv of images": (
        22,
        "float[1,1,3,3] x, float[1,1,2,2] w, float[1,8,2,2] o",
        "y = DeformConv<kernel_shape = [2, 2]>(x, w, o)",
        True,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_an_operator(name: str) -> None:
    opset, inputs, nodes, converted = FORMS[name]
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({inputs}, int64[N] free) => (float y) {{ {nodes} }}'
    )
    PREPARE(model)
    made = convert_model(model, EVERYWHERE)
    row = next(row for row in made.decisions if row["op"] in name or row["op"] == "GridSample")
    assert (row["precision"] == "fp16") == converted
