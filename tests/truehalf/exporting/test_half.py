"""FP16 by tracing: half and autocast, on the CPU."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.configurations import composed
from tests.conftest import ROOT
from tests.measuring.converted import to_fp16
from tests.messages import expect, raises
from tests.tiers import first_of
from tests.tracing import half_tracing, trace_config
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import typed_text
from truehalf.exporting.export import export
from truehalf.exporting.half import half_configured, trace_in_fp16
from truehalf.io_spec.spec import InputSpec, IoSpec, OutputSpec
from truehalf.ir.model_file import PRECISION_KEY, load_model
from truehalf.models.calling import calling
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import dynamic_axes_of, open_model
from truehalf.models.source import spec_of as spec_of_model
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim

FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
TRACED = ("half", "autocast")
PICTURES = {"images": np.random.default_rng(0).random((2, 3, 64, 48), np.float32)}
AXES = {"images": {0: "batch", 2: "height", 3: "width"}, "y": {0: "batch"}}
EDGES = [[[[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]]]


class Edges(torch.nn.Module):
    """A float32 constant inside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.mix(images)
        kernel = torch.tensor(EDGES, dtype=torch.float32).expand(3, 1, 3, 3)
        edges = torch.nn.functional.conv2d(mixed, kernel, padding=1, groups=3)  # the line that fails
        pooled: torch.Tensor = edges.mean((2, 3))
        return pooled


class Determinant(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> Any:
        return torch.linalg.det(images[:, :, :3, :3])


class Norms(torch.nn.Module):
    """A Conv with BatchNorm, a BatchNorm without one, and a LayerNorm behind a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.after = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.alone, self.linear, self.layer = torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
        generator = torch.Generator().manual_seed(1)
        for norm in (self.after, self.alone):
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                assert tensor is not None
                tensor.data.copy_(torch.rand(8, generator=generator) + 0.1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.alone(torch.relu(self.after(self.conv(images))))
        result: torch.Tensor = self.layer(self.linear(seen.mean((2, 3))))
        return result


def resnet() -> torch.nn.Module:
    """ResNet-50's kinds of layers, smaller."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(  # type: ignore[call-arg]
        embedding_size=32, hidden_sizes=[128, 512], depths=[2, 2], layer_type="bottleneck", num_labels=10
    )
    return calling(ResNetForImageClassification(config), ("logits",))


def model_of(module: torch.nn.Module, **more: Any) -> Model:
    return Model(module.eval(), [InputSpec("images")], [OutputSpec("y")], [], trained=False, **more)


def spec_of(outputs: int = 10) -> IoSpec:
    images = InputSpec("images", shape=("batch", 3, "height", "width"))
    return IoSpec((images,), (OutputSpec("y", shape=("batch", outputs)),), trained=False)


def traced(
    module: torch.nn.Module, out: Path, method: str, exporter: str = "torchscript", outputs: int = 10, **options: Any
) -> dict[str, Any]:
    opset = 17 if exporter == "torchscript" else 18
    how = half_tracing(method, AXES, exporter, opset, **options)
    return trace_in_fp16(model_of(module), PICTURES, out, how, spec=spec_of(outputs))[0]


def fp32(module: torch.nn.Module, folder: Path) -> Path:
    """The reference: traced in FP32, slimmed."""
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["y"]}
    tensors = [torch.from_numpy(PICTURES["images"])]
    export(module, tensors, folder / "traced.onnx", trace_config("torchscript", 17, AXES), **names)
    slim(folder / "traced.onnx", folder / "fp32.onnx")
    return folder / "fp32.onnx"


def types_of_ends(path: Path) -> list[int]:
    graph = onnx.load(path).graph
    return [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)]


def error_of(path: Path, module: torch.nn.Module, size: tuple[int, int] = (64, 48)) -> float:
    """Largest error under honest FP16 rounding, relative to the largest output."""
    images = np.random.default_rng(1).random((3, 3, *size), np.float32)
    with torch.no_grad():
        returned = module(torch.from_numpy(images))
    expected = (returned[0] if isinstance(returned, tuple) else returned).numpy()
    (got,) = EmulatedSession(path).run({"images": images}).values()
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def test_a_resnet_with_dynamic_height_and_width_by_all_three_routes(tmp_path: Path) -> None:
    module = resnet()
    reference = fp32(module, tmp_path)
    size = reference.stat().st_size
    to_fp16(reference, tmp_path / "convert.onnx", calibration=PICTURES)
    for method in TRACED:
        report = traced(module, tmp_path / f"{method}.onnx", method)
        assert (report.status, report.method, report.warnings) == ("done", method, [])
        assert report.fp16_arithmetic > 0.9
    for method in ("convert", *TRACED):
        path = tmp_path / f"{method}.onnx"
        assert path.stat().st_size == pytest.approx(size / 2, rel=0.06), method  # names and shapes do not shrink
        assert types_of_ends(path) == [FLOAT, FLOAT], method
        for sides in ((64, 48), (96, 32)):  # the second was not traced
            assert error_of(path, module, sides) < 5e-3, method  # some units in the last place of float16, 1e-3


@pytest.mark.parametrize("method", TRACED)
def test_the_module_is_left_as_it_was(method: str, tmp_path: Path) -> None:
    module = resnet()
    module.get_submodule("network").train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    model = Model(module, [InputSpec("images")], [OutputSpec("y")], [], trained=False)
    trace_in_fp16(model, PICTURES, tmp_path / "m.onnx", half_tracing(method, AXES), spec=spec_of())
    assert [part.training for part in module.modules()] == modes
    assert not module._forward_hooks and not module._forward_pre_hooks
    for name, tensor in module.state_dict().items():
        assert tensor.dtype == before[name].dtype and torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("method", TRACED)
def test_what_a_source_prepares_is_there_while_tracing_and_undone(method: str, tmp_path: Path) -> None:
    module = Edges()
    seen: list[str] = []

    @contextlib.contextmanager
    def prepared() -> Iterator[None]:
        seen.append("in")
        module.forward = lambda images: images.mean((2, 3)) * 3.0  # type: ignore[method-assign]
        yield
        del module.forward
        seen.append("out")

    model = model_of(module, prepared=prepared)
    trace_in_fp16(model, PICTURES, tmp_path / "m.onnx", half_tracing(method, AXES), spec=spec_of(3))
    assert seen == ["in", "out"]
    assert "Conv" not in {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}


@pytest.mark.parametrize("method", first_of(TRACED))
def test_inputs_and_outputs_are_float16_on_request(method: str, tmp_path: Path) -> None:
    report = traced(resnet(), tmp_path / "m.onnx", method, keep_io_types=False)
    assert types_of_ends(tmp_path / "m.onnx") == [FLOAT16, FLOAT16]
    spec = json.loads(load_model(tmp_path / "m.onnx").metadata_props["truehalf.io_spec"])
    assert [entry["dtype"] for entry in [*spec["inputs"], *spec["outputs"]]] == ["float16", "float16"]
    assert report.model["fp16_fraction"] > 0.5
    traced(resnet(), tmp_path / "named.onnx", method, keep_io_types=["y"])
    assert types_of_ends(tmp_path / "named.onnx") == [FLOAT16, FLOAT]
    with raises("wrong-name", "precision.keep_io_types:", "z", "images, y"):
        traced(resnet(), tmp_path / "m.onnx", method, keep_io_types=["z"])


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_half_names_the_line_of_a_constant_with_its_own_type(exporter: str, tmp_path: Path) -> None:
    line = next(
        i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the line that fails" in text
    )
    with raises("half-trace-fails", "dtype=x.dtype", "precision.method=autocast") as caught:
        traced(Edges(), tmp_path / "m.onnx", "half", exporter, outputs=3)
    said = str(caught.value)
    assert said.startswith(
        f"precision.method=half on CPU: tests/truehalf/exporting/test_half.py:{line}: edges = torch.nn.functional"
    )
    assert any(part in said for part in ("Input type", "expected scalar type")), "torch's words depend on the CPU"
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("exporter", first_of(["torchscript", "dynamo"]))
def test_autocast_and_convert_take_a_constant_with_its_own_type(exporter: str, tmp_path: Path) -> None:
    module = Edges().eval()
    report = traced(module, tmp_path / "autocast.onnx", "autocast", exporter, outputs=3)
    assert report.model["ops"]["Conv"] == 2 and report.fp16_arithmetic > 0.9
    to_fp16(fp32(module, tmp_path), tmp_path / "convert.onnx", calibration=PICTURES)
    for method in ("convert", "autocast"):
        assert error_of(tmp_path / f"{method}.onnx", module) < 2e-2, method  # differences of neighbours: digits cancel


def test_an_operation_without_fp16_is_named(tmp_path: Path) -> None:
    with raises("half-trace-fails", "precision.method=half", "lu_cpu", "CPU", "precision.method=autocast"):
        traced(Determinant(), tmp_path / "m.onnx", "half", outputs=3)


@pytest.mark.parametrize("method", TRACED)
def test_norms_are_folded_into_convolutions_and_valid_elsewhere(method: str, tmp_path: Path) -> None:
    module = Norms().eval()
    traced(module, tmp_path / "m.onnx", method, outputs=8)
    ops = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert ops.count("BatchNormalization") == 1 and ops.count("LayerNormalization") == 1
    assert error_of(tmp_path / "m.onnx", module) < 5e-3


def test_a_file_has_no_module_to_trace(tmp_path: Path) -> None:
    model = model_of(Edges(), file=tmp_path / "given.onnx")
    with raises("in-conflict", "precision.method:", "half", "given.onnx", "precision.method=convert"):
        trace_in_fp16(model, PICTURES, tmp_path / "m.onnx", half_tracing("half", AXES), spec=spec_of(3))


def test_a_module_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    module = Edges()
    module.kept = module.mix.weight * 2  # a tensor with a history
    with raises("half-trace-fails", "precision.method=convert") as caught:
        traced(module, tmp_path / "m.onnx", "half", outputs=3)
    with pytest.raises(RuntimeError) as refused:
        copy.deepcopy(module)
    expect(str(caught.value), None, typed_text(refused.value))


def test_rows_are_what_the_file_is(tmp_path: Path) -> None:
    report, rows = trace_in_fp16(
        model_of(resnet()), PICTURES, tmp_path / "m.onnx", half_tracing("autocast", AXES), spec=spec_of()
    )
    kinds = [row["precision"] for row in rows]
    assert (len(kinds), kinds.count("fp16")) == (report.model["float_nodes"], report.model["fp16_nodes"])
    assert report.fp32_nodes_total == kinds.count("fp32") and {row["rule"] for row in rows} == {"autocast"}
    casts = report.casts_to_fp16 + report.casts_to_fp32
    assert casts == report.model["casts"] > 0
    assert not report.costs and report.slim["parity"]["status"] == "not verified"
    expect(load_model(tmp_path / "m.onnx").metadata_props[PRECISION_KEY], None, "fp16", "truehalf", "autocast", "cpu")


def configured(
    out: Path, root: Path, example: dict[str, np.ndarray], *overrides: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Report and rows of a configuration, whose FP32 file was traced on this example."""
    config = validated(composed(*overrides))
    model = open_model(config, root)
    spec = spec_of_model(model, example, dynamic_axes_of(config, model))
    shapes = {name: array.shape for name, array in example.items()}
    return half_configured(config, root, out, spec, shapes)


@pytest.mark.slow
def test_the_configured_model_is_traced(tmp_path: Path) -> None:
    example = {"images": np.zeros((1, 3, 128, 128), np.float32)}
    report, rows = configured(tmp_path / "m.onnx", ROOT, example, "precision.method=half", "decoder=rtdetrv2")
    assert (report.method, report.device) == ("half", "cuda" if torch.cuda.is_available() else "cpu")
    assert len(rows) == report.model["float_nodes"] and report.model["fp16_fraction"] > 0.8
    assert types_of_ends(tmp_path / "m.onnx") == [FLOAT, FLOAT, FLOAT]


TWO_INPUTS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=8, padding=1)

    def forward(self, images, sizes):
        features = self.conv(images).abs()
        return {"y": features.flatten(2).mean(-1) * sizes[:, :1].to(features.dtype)}


def build():
    return Net()
"""


@pytest.mark.slow
def test_every_input_varies_as_it_does_in_trace(tmp_path: Path) -> None:
    (tmp_path / "two_inputs_for_fp16.py").write_text(TWO_INPUTS)
    sizes = "{name: sizes, kind: picture_size, dtype: int64}"
    overrides = ["model=torch", "data=random", "model.image_size=[64,64]", "precision.method=autocast"]
    overrides += ["model.options.factory=two_inputs_for_fp16:build", "trace.exporter=dynamo", "trace.opset=18"]
    overrides += [f"model.inputs=[{{name: images, kind: images}}, {sizes}]"]
    example = {"images": np.zeros((2, 3, 64, 64), np.float32), "sizes": np.ones((2, 2), np.int64)}
    configured(tmp_path / "m.onnx", tmp_path, example, *overrides)
    feeds = {"images": np.ones((3, 3, 64, 64), np.float32), "sizes": np.array([[1, 2], [3, 4], [5, 6]])}
    found = Session(tmp_path / "m.onnx").run(feeds)["y"]
    np.testing.assert_allclose(found[:, 0] / found[0, 0], [1, 3, 5], rtol=2e-3)
