"""Models in bfloat16 are refused, with bfloat16 as the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

import truehalf
from tests.messages import raises

IMAGE = "[1,2,4,4]"
MODELS = {
    "wholly": ("(bfloat16[2,4] x) => (bfloat16[2,4] y)", "a = Mul(x, x) y = Add(a, x)", ["'x'", "Mul"]),
    "inside": (
        "(float[2,4] x) => (float[2,4] y)",
        "c = Cast<to = 16>(x) a = Mul(c, c) y = Cast<to = 1>(a)",
        ["Cast", "Mul"],
    ),
    "a convolution": (
        f"(float{IMAGE} x) => (float{IMAGE} y)",
        "c = Cast<to = 16>(x) w = ConstantOfShape<value = bfloat16[1] {1}>(k) a = Conv(c, w) y = Cast<to = 1>(a)",
        ["Conv"],
    ),
    "a normalization": (
        "(float[2,4] x) => (float[2,4] y)",
        "c = Cast<to = 16>(x) a = Softmax(c) y = Cast<to = 1>(a)",
        ["Softmax"],
    ),
    "in a branch": (
        "(float[2,4] x) => (float[2,4] y)",
        """n = ReduceSum<keepdims = 0>(x) z = Sub(n, n) b = Less(z, n)
        y = If(b) <then_branch = t () => (float[2,4] u) { c = Cast<to = 16>(x) a = Mul(c, c) u = Cast<to = 1>(a) },
                   else_branch = e () => (float[2,4] v) { v = Neg(x) }>""",
        ["Mul"],
    ),
}


def saved(folder: Path, ends: str, nodes: str) -> Path:
    text = f'<ir_version: 9, opset_import: ["" : 17]> g {ends} <int64[4] k = {{2, 2, 1, 1}}> {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return folder / "model.onnx"


def sample(path: Path) -> dict[str, np.ndarray]:
    shape = [side.dim_value for side in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize("name", MODELS)
def test_a_conversion_says_so(name: str, tmp_path: Path) -> None:
    ends, nodes, facts = MODELS[name]
    path = saved(tmp_path, ends, nodes)
    with raises("not-supported", "bfloat16", "float32", *facts):
        truehalf.convert(path)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "wholly"])
@pytest.mark.parametrize("is_candidate", [True, False])
def test_a_comparison_says_so(name: str, is_candidate: bool, tmp_path: Path) -> None:
    ends, nodes, facts = MODELS[name]
    path = saved(tmp_path, ends, nodes)
    (tmp_path / "other").mkdir()
    other = saved(tmp_path / "other", ends, "y = Neg(x)")
    with raises("not-supported", "bfloat16", *facts):
        truehalf.compare(*((other, path) if is_candidate else (path, other)), [sample(path)])


@pytest.mark.parametrize("call", [lambda path, feed: truehalf.convert(path, samples=feed), truehalf.calibrate])
def test_inputs_of_it_cannot_be_fed(call: Callable[[Path, Any], Any], tmp_path: Path) -> None:
    path = saved(tmp_path, "(bfloat16[2,4] x) => (float[2,4] y)", "c = Cast<to = 1>(x) y = Neg(c)")
    with raises("not-supported", "'x'", "bfloat16", "float32"):
        call(path, [{"x": np.ones((2, 4)).astype(ml_dtypes.bfloat16)}])


def test_outputs_of_it_cannot_be_read(tmp_path: Path) -> None:
    path = saved(tmp_path, "(float[2,4] x) => (bfloat16[2,4] y)", "a = Neg(x) y = Cast<to = 16>(a)")
    with raises("not-supported", "bfloat16", "float32"):
        truehalf.calibrate(path, [sample(path)])
