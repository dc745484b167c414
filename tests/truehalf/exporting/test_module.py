"""Modules as users have them: that end the process, ask for a GPU, or change what they are given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.messages import raises
from truehalf.config.schema import Exporter, TraceConfig
from truehalf.exporting.module import export_module, made
from truehalf.runtime.ort import Session

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


class Doubling(nn.Module):
    """Changes its input in place, each time in another way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear, self.how = nn.Linear(3, 4), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "mul_":
            x.mul_(2)
        elif self.how == "a part":
            x[:, 0] = 0
        elif self.how == "relu":
            nn.functional.relu(x, inplace=True)
        elif self.how == "operator":
            x += 1
        else:
            x.clamp_(min=0).sub_(0.5)
        out: torch.Tensor = self.linear(x)
        return out


@pytest.mark.parametrize("exporter", [Exporter.torchscript, Exporter.dynamo])
@pytest.mark.parametrize("how", ["mul_", "a part", "relu", "operator", "chain"])
def test_a_module_may_change_its_input_in_place(how: str, exporter: Exporter, tmp_path: Path) -> None:
    samples, before = [{"x": X.copy()}, {"x": X[:1] + 1}], X.copy()
    module = Doubling(how).eval()
    options = TraceConfig(exporter=exporter, opset=18)
    report = export_module(module, tmp_path / "m.onnx", samples, options=options)
    assert report.parity["status"] == "verified"
    assert np.array_equal(samples[0]["x"], before), "the samples stay as they were"
    (found,) = Session(tmp_path / "m.onnx").run({"x": X}).values()
    with torch.no_grad():
        assert np.allclose(found, module(torch.tensor(X)), atol=1e-5)


class Nesting(nn.Module):
    """Detectors return what only training reads beside their outputs."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> Any:
        y, inner = x * 2, [{"y": x}]
        return {"dict": {"y": y, "aux": inner}, "tuple": (y, [x, x]), "first": ((x, x), y), "alone": inner}[self.how]


@pytest.mark.parametrize(
    ("how", "outputs", "left_out"), [("dict", ["y"], "aux"), ("tuple", ["output_0"], "1"), ("first", ["output_1"], "0")]
)
def test_parts_with_tensors_inside_are_left_out_and_said(
    how: str, outputs: list[str], left_out: str, tmp_path: Path
) -> None:
    report = export_module(Nesting(how).eval(), tmp_path / "m.onnx", [{"x": X}])
    assert list(Session(tmp_path / "m.onnx").run({"x": X})) == outputs
    assert any(f" {left_out} (" in note for note in report.notes or [])


def test_a_module_that_returns_nothing_else_is_refused(tmp_path: Path) -> None:
    with raises("wrong-return", "model.outputs", "output_0", "dict"):
        export_module(Nesting("alone").eval(), tmp_path / "m.onnx", [{"x": X}])


class Raising(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "3":
            sys.exit(3)
        if self.how == "0":
            sys.exit()
        if self.how == "text":
            sys.exit("no weights")
        if self.how == "no GPU":
            raise AssertionError("Torch not compiled with CUDA enabled")
        if self.how == "no driver":
            raise RuntimeError("Found no NVIDIA driver on your system.")
        raise ValueError("sizes:\n\tfirst 3\n\tsecond 4\n" + "x" * 5000)


ON_CPU = [".cuda()", "CPU"]
FAILS: dict[str, list[Any]] = {
    "3": ["SystemExit: 3"],
    "0": ["SystemExit"],
    "text": ["SystemExit: no weights"],
    "no GPU": ["Torch not compiled with CUDA enabled", *ON_CPU],
    "no driver": ["NVIDIA driver", *ON_CPU],
    "lines": ["ValueError: sizes: first 3 second 4"],
}


@pytest.mark.parametrize("how", FAILS)
def test_what_a_module_says_is_said(how: str, tmp_path: Path) -> None:
    with raises("module-fails", "x float32 [2, 3]", *FAILS[how]) as error:
        export_module(Raising(how), tmp_path / "m.onnx", [{"x": X}])
    said = str(error.value)
    assert len(said) < 1000 and "\n" not in said
    assert ("samples" in said) is (ON_CPU[0] not in said), "of the remedies the one that helps"


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("import sys\ndef build():\n    sys.exit('no weights')", ["no weights"]),
        ("import sys\ndef build():\n    sys.exit(3)", ["sys.exit(3)"]),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--nope'])", ["SystemExit: 2"]),
        ("raise SystemExit('a script')", ["SystemExit: a script", "line 1"]),
    ],
)
def test_a_function_or_script_that_ends_the_process(
    code: str, facts: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = f"ends_{request.node.callspec.indices['code']}"
    (tmp_path / f"{name}.py").write_text(code + "\n")
    with raises("function-fails", f"{name}:build", *facts):
        made(f"{name}:build", tmp_path)
