"""What torch computes, held against a file that computes the same, or something else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from tests.messages import raises
from tests.truehalf.models.refusing import in_order
from tests.truehalf.models.small_modules import FEATURES, SCALED, SPEC, Baked, Head, Unread, feeds, sized
from truehalf.config.schema import TraceConfig
from truehalf.exporting.against_torch import (
    check_unread,
    compared_with_torch,
    tensors_of,
    torch_outputs,
)
from truehalf.io_spec.spec import IoSpec

ONES = SPEC | {"outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 4]}]}
MAPS = FEATURES | {"outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3, "height", "width"]}]}
MEANS = FEATURES | {"outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}]}


class Calling(torch.nn.Module):
    """A module that is one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def of_text(text: str) -> str:
    return f'<ir_version: 8, opset_import: ["": 17]> g {text}'


def saved(folder: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(of_text(text)), folder / "m.onnx")
    return folder / "m.onnx"


def file_of_rows(folder: Path, operator: str) -> Path:
    return saved(folder, f'(float["n", 4] x) => (float["n", 4] y) {{ y = {operator}(x) }}')


ABSOLUTE = Calling(torch.abs)
DIVIDED = Calling(lambda images: images / images.shape[3])  # torch itself takes any size
FIXED_AT_64 = """(float["batch", 3, "height", "width"] images) => (float["batch", 3, "height", "width"] y)
    <float width = {64.0}> { y = Div(images, width) }"""


def compared(
    module: torch.nn.Module,
    path: Path,
    declared: dict[str, Any],
    checked: Sequence[dict[str, np.ndarray]],
    example: dict[str, np.ndarray],
    atol: float = 1e-4,
) -> dict[str, Any]:
    spec = IoSpec.from_json(declared)
    pairs = [(feed, torch_outputs(module, spec, feed, example)) for feed in checked]
    return compared_with_torch(path, spec, pairs, example, TraceConfig(atol=atol))


def rows_compared(module: torch.nn.Module, path: Path, *checked: dict[str, np.ndarray], **changes: Any) -> Any:
    return compared(module, path, ONES | changes, checked, feeds(1, 2))


def test_outputs_that_numpy_does_not_take_are_read() -> None:
    weight, feed = torch.nn.Parameter(torch.ones(3, 4)), feeds(1, 2, 3)
    for module in (Calling(lambda x: weight), Calling(lambda x: torch.ones(3, 4, dtype=torch.bfloat16))):
        (found,) = torch_outputs(module, IoSpec.from_json(ONES), feed, feed).values()
        np.testing.assert_array_equal(found, np.ones((3, 4), np.float32))


def test_a_module_is_run_in_eval_mode_and_left_in_its_own() -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.Linear(4, 3, bias=False)).train()
    module[1].eval()
    outputs = torch_outputs(module, IoSpec.from_json(SPEC), feeds(1, 2), feeds(1, 2))
    np.testing.assert_allclose(outputs["y"], feeds(1, 2)["x"] @ module[1].weight.detach().numpy().T, rtol=1e-5)
    assert [part.training for part in module] == [True, False] and module.training and torch.is_grad_enabled()


def test_a_module_that_fails_on_what_it_is_compared_on_is_named() -> None:
    module = Calling(lambda x: x.reshape(2, -1, 4).flatten(0, 1))
    with raises("module-fails") as error:
        torch_outputs(module, IoSpec.from_json(ONES), feeds(5, 6, 7), feeds(1, 2))
    in_order(str(error.value), "RuntimeError", "x [3, 4]")


def test_inputs_go_in_the_order_of_the_spec() -> None:
    feed = feeds(1, 2) | {"scale": np.array([7])}
    assert list(feed) == ["x", "scale"]
    scale, x = tensors_of(IoSpec.from_json(SCALED), feed)
    assert scale.tolist() == [7] and scale.dtype is torch.int64
    assert x.tolist() == feed["x"].tolist() and x.dtype is torch.float32


@pytest.mark.parametrize("names", [("pixels",), ("x", "pixels"), ()])
def test_samples_of_other_inputs_are_refused(names: tuple[str, ...]) -> None:
    with raises("wrong-feeds") as error:
        tensors_of(IoSpec.from_json(SPEC), dict.fromkeys(names, feeds(1)["x"]))
    in_order(str(error.value), "x", ", ".join(names))
    with raises("wrong-feeds", "x", *names):
        torch_outputs(Calling(lambda x: x), IoSpec.from_json(SPEC), dict.fromkeys(names, np.zeros(1)), feeds(1, 2))


def reading_no_scale() -> ir.Model:
    return ir.from_onnx_text(of_text('(int64[1] scale, float["n", 4] x) => (float["n", 4] y) { y = Relu(x) }'))


def scaled(value: Any) -> dict[str, np.ndarray]:
    return {"scale": np.array([value]), **feeds(1, 2)}


def test_an_input_that_python_read_is_explained() -> None:
    with raises("input-unread", "'scale'", ".item(), int()", "lint --explain baked-item"):
        check_unread(reading_no_scale(), Baked(), IoSpec.from_json(SCALED), scaled(1))


def test_an_input_that_no_output_depends_on_is_let_be() -> None:
    check_unread(reading_no_scale(), Unread(), IoSpec.from_json(SCALED), scaled(8))


def test_rounding_is_no_dependence() -> None:
    example = scaled(np.float32(1))
    rounding, more = (Calling(lambda scale, x, by=by: x + by * scale) for by in (1e-6, 1e-3))  # of values from 1 to 3
    check_unread(reading_no_scale(), rounding, IoSpec.from_json(SCALED), example)
    with raises("input-unread", "'scale'"):
        check_unread(reading_no_scale(), more, IoSpec.from_json(SCALED), example)


@pytest.mark.parametrize(
    "body",
    [
        '(float["n", 4] y) { s = Cast<to = 1>(scale) y = Mul(x, s) }',
        '(float["n", 4] y, int64[1] scale) { y = Relu(x) }',
    ],
    ids=["a node", "an output"],
)
def test_inputs_that_are_read_are_not_asked_about(body: str) -> None:
    model = ir.from_onnx_text(of_text(f'(int64[1] scale, float["n", 4] x) => {body}'))
    check_unread(model, Baked(), IoSpec.from_json(SCALED), scaled(1))


def test_parity_says_what_was_compared(tmp_path: Path) -> None:
    parity = rows_compared(ABSOLUTE, file_of_rows(tmp_path, "Abs"), feeds(5, -6, 7), feeds(-8))
    assert parity == {
        "samples": 4,
        "batch_sizes": [1, 3],
        "provider": "CPUExecutionProvider",
        "status": "verified",
        "share": 1.0,
        "max_abs": {"y": 0.0},
    }


def test_a_file_that_lost_a_branch_is_refused(tmp_path: Path) -> None:
    path = file_of_rows(tmp_path, "Identity")
    assert rows_compared(ABSOLUTE, path, feeds(5, 6, 7))["status"] == "verified"
    with raises("outputs-differ") as error:
        rows_compared(ABSOLUTE, path, feeds(5, 6, 7), feeds(-8))
    numbers = ("93.75%", "99.9%", "atol 0.0001", "rtol 0.001", "y 16")
    in_order(str(error.value), "torch", "ONNX Runtime", *numbers, "trace.atol", "trace.rtol")
    parity = compared(ABSOLUTE, path, ONES, [feeds(-8)], feeds(1, 2), atol=17)
    assert (parity["status"], parity["max_abs"]) == ("verified", {"y": 16.0})


@pytest.mark.parametrize("trained", [True, False])
def test_outputs_of_torch_that_are_not_finite_are_refused(trained: bool, tmp_path: Path) -> None:
    module = Head()
    torch.nn.init.constant_(module.fc.weight, float("inf"))
    text = '(float["n", 4] x) => (float["n", 3] y) <float[4,3] w = {1,1,1,1,1,1,1,1,1,1,1,1}> { y = MatMul(x, w) }'
    with raises("not-finite", 3, "torch"):
        compared(module, saved(tmp_path, text), SPEC | {"trained": trained}, [feeds(8)], feeds(1, 2))


def test_each_other_size_is_compared_alone(tmp_path: Path) -> None:
    text = """(float["b", 3, "h", "w"] images) => (float["b", 3] y)
        { means = ReduceMean<axes = [2, 3], keepdims = 0>(images) y = Neg(means) }"""
    module = Calling(lambda images: -images.mean((2, 3)))
    example, *checked = sized((64, 64), (64, 64), (32, 96), (96, 32))
    parity = compared(module, saved(tmp_path, text), MEANS, checked, example)
    assert (parity["status"], parity["samples"], parity["batch_sizes"]) == ("verified", 6, [2])
    assert [entry["inputs"] for entry in parity["sizes"]] == [
        {"images": [2, 3, 32, 96]},
        {"images": [2, 3, 96, 32]},
    ]
    assert all(entry["status"] == "verified" and entry["share"] == 1.0 for entry in parity["sizes"])
    assert all(0 <= entry["max_abs"]["y"] < 1e-5 for entry in parity["sizes"])


def test_untrained_weights_that_differ_at_another_size_are_not_verified(tmp_path: Path) -> None:
    example, *checked = sized((64, 64), (64, 64), (32, 96), (96, 32))
    parity = compared(DIVIDED, saved(tmp_path, FIXED_AT_64), MAPS | {"trained": False}, checked, example)
    assert parity["status"] == "not verified" and parity["share"] == 1.0
    in_order(parity["reason"], {"images": [2, 3, 32, 96]}, "torch", "ONNX Runtime", "99.9%")
    assert [entry["status"] for entry in parity["sizes"]] == ["not verified"] * 2


def test_what_onnx_runtime_fails_on_is_said_once_and_in_short(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """(float["b", 3, "h", "w"] images) => (float["b", 3] y) <int64[2] sides = {16, 16}> {
        ones = ConstantOfShape <value = float[1] {1.0}> (sides)
        more = Add(images, ones)
        y = ReduceMean<axes = [2, 3], keepdims = 0>(more)
    }"""
    module = Calling(lambda images: (images + 1).mean((2, 3)))
    example, *checked = sized((16, 16), (16, 16), (8, 24))
    with raises("axis-fixed") as error:
        compared(module, saved(tmp_path, text), MEANS, checked, example)
    said = str(error.value)
    in_order(said, "axis 2", "'images'", "height", "axis 3", "'images'", "width", [2, 3, 8, 24], [2, 3, 16, 16])
    in_order(said, "Add", "16 by 24", "trace.dynamic_axes")
    assert "onnxruntime_src" not in said and "onnxruntime" not in "".join(capfd.readouterr())
