"""Modules that do what users' modules do, exported by `truehalf.export` as their owners would."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.cases.doors import loads, truehalf
from tests.messages import expect, raises
from truehalf import Precision, export
from truehalf.config.precision import Method
from truehalf.config.schema import Exporter, TraceConfig
from truehalf.errors import StageError
from truehalf.io_spec.spec import InputSpec, OutputSpec
from truehalf.models.calling import calling
from truehalf.models.model import Model
from truehalf.models.source import spec_of

IMAGES = np.random.default_rng(0).random((4, 3, 16, 16), dtype=np.float32)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)


class CountsRowsInPython(Convolution):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled = self.conv(images).flatten(2).mean(-1)
        return pooled.reshape(int(images.shape[0]), 2, 2)


def test_a_batch_that_python_read_is_named_with_its_line(tmp_path: Path) -> None:
    with raises(None, "test_export.py", "int(images.shape[0])") as caught:
        export(CountsRowsInPython().eval(), tmp_path / "m.onnx", samples={"images": IMAGES})
    assert "drop_outputs" not in str(caught.value)


class CallsSequentialByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(input=images).mean((2, 3))


def test_a_sequential_called_by_keyword_is_exported(tmp_path: Path) -> None:
    export(CallsSequentialByKeyword().eval(), tmp_path / "m.onnx", samples={"images": IMAGES})
    assert loads(tmp_path / "m.onnx")


# --- decisions that Python takes from tensors -------------------------------------------------------------------------

FILE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, images):
        y = self.conv(images).mean((2, 3))
{body}
        return y
"""


def written(folder: Path, name: str, body: str = "", registered: bool = True) -> nn.Module:
    """A module of a user's own file; some tools import such files without registering them in sys.modules."""
    (folder / f"{name}.py").write_text(FILE.format(body=textwrap.indent(body, " " * 8)))
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    if registered:
        sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    network: nn.Module = loaded.Net().eval()
    return network


def _state(folder: Path, name: str, body: str, images: np.ndarray = IMAGES) -> str:
    """Whether the export was verified, or the error's code."""
    try:
        made = export(written(folder, name, body), folder / f"{name}.onnx", samples={"images": images})
    except StageError as error:
        return str(error.code)
    return str(made.report.to_json()["parity"]["status"])


def test_the_name_of_a_list_changes_no_verdict(tmp_path: Path) -> None:
    body = "{0} = []\n{0}.append(bool(images.max() > 1.5))\nif {0}[-1]:\n    y = y * 0"
    states = {name: _state(tmp_path, f"list_called_{name}", body.format(name)) for name in ("log", "found")}
    assert len(set(states.values())) == 1, states


def test_a_module_that_asserts_its_range_is_probed_inside_it(tmp_path: Path) -> None:
    body = "assert images.max() <= 1.0, 'expected 0..1'\nif images.min() > 0.99:\n    y = y * 2"
    with_white = np.concatenate([IMAGES, np.ones_like(IMAGES[:1])])
    assert _state(tmp_path, "asserts_its_range", body, with_white) == "outputs-differ"


def test_a_module_that_is_not_registered_is_exported_by_dynamo(tmp_path: Path) -> None:
    options = TraceConfig(exporter=Exporter.dynamo, opset=18)
    export(
        written(tmp_path, "not_registered", registered=False),
        tmp_path / "m.onnx",
        samples={"images": IMAGES},
        options=options,
    )
    assert loads(tmp_path / "m.onnx")


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_float8_checkpoint_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in Convolution().state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    (tmp_path / "float8_detector.py").write_text(FILE.format(body="") + "\n\ndef build():\n    return Net().eval()\n")
    np.savez(tmp_path / "s.npz", images=IMAGES)
    monkeypatch.chdir(tmp_path)
    arguments = ["--samples", tmp_path / "s.npz", "--checkpoint", tmp_path / "w.pt"]
    code, printed = truehalf("export", "float8_detector:build", "-o", tmp_path / "m.onnx", *arguments)
    assert code == 2
    expect(printed, None, "w.pt", "float8_e4m3fn")


# --- half() on a GPU that is full -------------------------------------------------------------------------------------


def test_a_full_gpu_leaves_the_half_route_to_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CUDA without memory: `.to("cuda")` raises as torch does."""
    from truehalf.exporting import half

    to = nn.Module.to

    def full(self: nn.Module, *arguments: Any, **named: Any) -> nn.Module:
        if str(arguments[0] if arguments else named.get("device", "")).startswith("cuda"):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return to(self, *arguments, **named)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(nn.Module, "to", full)
    monkeypatch.setattr(half, "device_lock", contextlib.nullcontext)
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    inputs = [InputSpec("x", "tensor", "float32", ("batch", 4))]
    model = Model(calling(network, ["0"]), inputs, [OutputSpec("y")], [], True)
    examples = {"x": np.random.default_rng(0).random((2, 4), dtype=np.float32)}
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    options = half.HalfTracing(Precision(method=Method.half), TraceConfig(dynamic_axes=axes))
    spec = spec_of(model, examples, {"x": {0: "n"}})
    report, _ = half.trace_in_fp16(model, examples, tmp_path / "a.onnx", options, spec=spec)
    assert report.device == "cpu"
