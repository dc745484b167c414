"""Both exporters: scoped names, axes that vary, a module left as it was, and refusals that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

from tests.messages import raises
from tests.tracing import trace_config
from tests.truehalf.models.refusing import in_order
from truehalf.exporting.export import evaluation_mode, export
from truehalf.ir.model_file import load_model
from truehalf.runtime.ort import Session

BATCH = {"x": {0: "batch"}, "y": {0: "batch"}}
EXPORTERS = [("torchscript", 17), ("dynamo", 18)]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.norm(self.fc(x)))


class Net(torch.nn.Module):
    """Scopes, a list of modules, dropout, and a buffer named as torch names an operation's result."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.drop = torch.nn.Dropout(0.5)
        self.register_buffer("mean", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - self.mean
        for block in self.blocks:
            x = block(self.drop(x))
        return x - x.mean(-1, keepdim=True)


class Guarded(torch.nn.Module):
    """What detectors of transformers do: a check of values, len() of a tensor, splits into unequal and equal parts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._check_tensor_all(x.isfinite())
        start = torch.zeros(1, 4).tile([len(x), 1])
        narrow, wide = (x + start).split([1, 3], dim=1)
        first, second = torch.cat([wide, narrow], dim=1).chunk(2, dim=-1)
        *_, rest = x.split(3, dim=1)
        return torch.cat([second, first + rest], dim=1)


def torch_int(size: Any) -> Any:
    """As in the files of detectors of transformers: the TorchScript exporter gets a tensor."""
    return size.to(torch.int64) if torch.jit.is_tracing() and isinstance(size, torch.Tensor) else int(size)


class Pyramid(torch.nn.Module):
    """Strides, an upsampled map beside its own size, one split into parts as long as maps are, and torch_int."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 4, stride=4)
        self.down = torch.nn.Conv2d(4, 4, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.stem(x)
        coarse = self.down(fine).relu()
        fine = fine + torch.nn.functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        height, width = coarse.shape[2:]
        rows = torch.arange(torch_int(height))[:, None] * torch.ones(torch_int(width))
        tokens = torch.cat([fine.flatten(2), (coarse + rows).flatten(2)], 2)
        first, second = tokens.split([fine.shape[2] * fine.shape[3], height * width], dim=2)
        return torch.cat([first.mean(2), second.reshape(-1, 4, height, width).amax((2, 3))], 1)


def exported(
    module: torch.nn.Module, path: Path, exporter: str, opset: int, axes: Any = BATCH, x: torch.Tensor | None = None
) -> ir.Model:
    export(
        module,
        [torch.rand(2, 4) if x is None else x],
        path,
        trace_config(exporter, opset, axes),
        input_names=["x"],
        output_names=["y"],
    )
    return load_model(path)


@pytest.mark.parametrize(("exporter", "opset"), EXPORTERS)
def test_names_carry_the_module_scope(exporter: str, opset: int, tmp_path: Path) -> None:
    model = exported(Net(), tmp_path / "m.onnx", exporter, opset)
    names = [node.name for node in model.graph]
    assert len(set(names)) == len(names)
    scopes = {name.rpartition("/")[0] for name in names if name}
    assert {"/blocks.0", "/blocks.0/norm", "/blocks.1", "/blocks.1/norm"} <= scopes
    norms = [node.name for node in model.graph if node.op_type == "LayerNormalization"]
    assert norms == ["/blocks.0/norm/LayerNormalization", "/blocks.1/norm/LayerNormalization"]
    assert not any(node.metadata_props for node in model.graph), "stack traces hold paths of this machine"


@pytest.mark.parametrize(
    ("module", "exporter", "opset"),
    [
        (Net(), "torchscript", 17),
        (Net(), "dynamo", 18),
        pytest.param(Guarded(), "dynamo", 18, marks=pytest.mark.slow),
    ],
)
def test_other_batch_sizes_run_and_agree(module: torch.nn.Module, exporter: str, opset: int, tmp_path: Path) -> None:
    model = exported(module, tmp_path / "m.onnx", exporter, opset)
    assert [str(shape[0]) for shape in (model.graph.inputs[0].shape, model.graph.outputs[0].shape)] == [
        "batch",
        "batch",
    ]
    assert not {"SplitToSequence", "SequenceAt", "CastLike"} & {node.op_type for node in model.graph}
    session = Session(tmp_path / "m.onnx")
    for batch in (1, 2, 5):
        x = torch.rand(batch, 4)
        with evaluation_mode(module), torch.no_grad():
            expected = module(x).numpy()
        np.testing.assert_allclose(session.run({"x": x.numpy()})["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("exporter", "opset"), [EXPORTERS[0], pytest.param(*EXPORTERS[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("axes", "traced", "sizes"),
    [
        ({0: "batch", 2: "height", 3: "width"}, (64, 96), [(32, 128), (96, 64), (160, 32)]),
        ({0: "batch", 2: "side", 3: "side"}, (64, 64), [(32, 32), (128, 128)]),
        ({2: "height"}, (24, 40), [(32, 40), (16, 40)]),
    ],
)
def test_other_heights_and_widths_run_and_agree(
    axes: dict[int, str],
    traced: tuple[int, int],
    sizes: list[tuple[int, int]],
    exporter: str,
    opset: int,
    tmp_path: Path,
) -> None:
    module = Pyramid().eval()
    example = torch.rand(2, 3, *traced)
    model = exported(module, tmp_path / "m.onnx", exporter, opset, {"x": axes}, example)
    shape = model.graph.inputs[0].shape
    assert shape is not None and [str(shape[axis]) for axis in axes] == list(axes.values())
    assert not {"SplitToSequence", "SequenceAt"} & {node.op_type for node in model.graph}
    session = Session(tmp_path / "m.onnx")
    for size in [traced, *sizes]:
        x = torch.rand(3 if 0 in axes else 2, 3, *size)
        with torch.no_grad():
            expected = module(x).numpy()
        np.testing.assert_allclose(session.run({"x": x.numpy()})["y"], expected, rtol=1e-5, atol=1e-5)
    assert torch_int("3") == 3, "the file's own again"


def test_sides_without_a_step_vary_by_dynamo(tmp_path: Path) -> None:
    module = torch.nn.Conv2d(3, 4, 3, stride=2)
    exported(module, tmp_path / "m.onnx", "dynamo", 18, {"x": {2: "height", 3: "width"}}, torch.rand(1, 3, 33, 47))
    for size in ((24, 61), (40, 35)):
        x = torch.rand(1, 3, *size)
        with torch.no_grad():
            expected = module(x).numpy()
        np.testing.assert_allclose(Session(tmp_path / "m.onnx").run({"x": x.numpy()})["y"], expected, atol=1e-6)


class FixedWidth(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((1, 2)) / int(x.shape[3])


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[2] > 30 else x * 3


@pytest.mark.parametrize(
    ("module", "size", "facts"),
    [
        (FixedWidth(), (64, 96), ["axis 3", "'x'", "width", 96]),
        (FixedWidth(), (33, 47), ["axis 3", "'x'", "width", 47]),
        (Branching(), (33, 47), ["axis 2", "'x'", "height", "31 <= height"]),
    ],
)
def test_dynamo_names_the_axis_that_cannot_vary(
    module: torch.nn.Module, size: tuple[int, int], facts: list[object], tmp_path: Path
) -> None:
    axes = {"x": {0: "batch", 2: "height", 3: "width"}}
    with raises("axis-fixed") as error:
        exported(module, tmp_path / "m.onnx", "dynamo", 18, axes, torch.rand(2, 3, *size))
    in_order(str(error.value), *facts, "trace.dynamic_axes")
    assert sum(f"axis {axis}" in str(error.value) for axis in axes["x"]) == 1


@pytest.mark.parametrize(("exporter", "opset"), EXPORTERS)
def test_module_is_left_as_it_was_and_nothing_is_printed(
    exporter: str, opset: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module = Net().train()
    module.blocks[1].eval()
    modes = [part.training for part in module.modules()]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = exported(module, tmp_path / "m.onnx", exporter, opset)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert "Dropout" not in {node.op_type for node in model.graph}, "traced in eval mode"
    assert capfd.readouterr().out == ""


def test_without_dynamic_axes_all_are_static(tmp_path: Path) -> None:
    for exporter, opset in EXPORTERS:
        model = exported(Net(), tmp_path / f"{exporter}.onnx", exporter, opset, axes={})
        assert list(model.graph.inputs[0].shape or ()) == [2, 4]


def test_dynamo_refuses_an_opset_that_it_cannot_write(tmp_path: Path) -> None:
    with raises("out-of-range", "dynamo", 18, 17, "trace.opset=18", "trace.exporter=torchscript"):
        exported(Net(), tmp_path / "m.onnx", "dynamo", 17)


@pytest.mark.parametrize(
    ("exporter", "opset", "remedy"),
    [("torchscript", 17, "trace.exporter=dynamo"), ("dynamo", 18, "trace.exporter=torchscript")],
)
def test_operation_without_translation_is_named_and_no_graph_is_printed(
    exporter: str, opset: int, remedy: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Bessel(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    with raises("not-supported", exporter, opset, remedy, "trace.opset") as error:
        exported(Bessel(), tmp_path / "m.onnx", exporter, opset)
    assert capfd.readouterr().out == ""
    assert "bessel_j0" in str(error.value)  # aten::special_bessel_j0, prims.bessel_j0.default


def test_axis_fixed_by_the_module_is_refused(tmp_path: Path) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, 2, 2).sum(2)

    with raises("axis-fixed", "axis 0", "'x'", "batch", "trace.dynamic_axes"):
        exported(Fixed(), tmp_path / "m.onnx", "dynamo", 18)


def test_failing_module_is_reported_with_its_own_words(tmp_path: Path) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no such head")

    module = Broken().train()
    with raises("export-fails", "torchscript", 17, "no such head", "trace.exporter=dynamo"):
        exported(module, tmp_path / "m.onnx", "torchscript", 17)
    assert module.training


@pytest.mark.parametrize("name", ["0", "12", "007", ""])
@pytest.mark.parametrize("place", ["x", "y"])
def test_torchscript_takes_no_numbers_for_names(name: str, place: str, tmp_path: Path) -> None:
    """It would go on with another input in its place, or with an error of its own."""
    names = {"x": "x", "y": "y"} | {place: name}
    with raises("bad-syntax", repr(name), "trace.exporter=dynamo"):
        export(
            Net().eval(),
            (torch.rand(2, 4),),
            tmp_path / "m.onnx",
            trace_config("torchscript", 17, {}),
            input_names=[names["x"]],
            output_names=[names["y"]],
        )


@pytest.mark.parametrize("name", ["1.0", "0a", "-1", "\u0661", "a b", "images:0", "file", "self", "/a/b", "x.1"])
def test_other_names_are_kept(name: str, tmp_path: Path) -> None:
    export(
        Net().eval(),
        (torch.rand(2, 4),),
        tmp_path / "m.onnx",
        trace_config("torchscript", 17, {}),
        input_names=[name],
        output_names=[f"{name}_o"],
    )
    graph = load_model(tmp_path / "m.onnx").graph
    assert [value.name for value in (*graph.inputs, *graph.outputs)] == [name, f"{name}_o"] and graph.inputs[0].uses()
