"""What an export says beside its verdict: tensors that no sample filled, and what no file can hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.messages import expect
from truehalf.api import export

SAMPLES = [{"x": np.random.default_rng(i).random((2, 3, 8), np.float32)} for i in range(3)]


class Module(torch.nn.Module):
    def __init__(self, of: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: torch.Tensor) -> Any:
        return self.of(x)


MODULES = """
import torch
class Mean(torch.nn.Module):
    def forward(self, x):
        return x.mean((1, 2))
instance = Mean()
def build():
    return Mean()
"""


@pytest.mark.parametrize("name", ["instance", "build", "Mean"])
def test_a_module_is_named_as_itself_or_by_what_makes_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"means_{name}.py").write_text(MODULES)
    monkeypatch.chdir(tmp_path)
    assert export(f"means_{name}:{name}", tmp_path / "m.onnx", samples=SAMPLES).report.parity["status"] == "verified"


def notes(of: Callable[[torch.Tensor], Any], folder: Path) -> list[str]:
    return list(export(Module(of), folder / "m.onnx", samples=SAMPLES).report.notes or [])


EMPTY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # values are in 0..1
    "mask": lambda x: x.mean((1, 2)) + x[x > 2].sum(),
    "rows": lambda x: x.mean((1, 2)) + x.flatten(0, 1)[x.amax(2).flatten() > 2].sum(),
    "nonzero": lambda x: x.mean((1, 2)) + (x < 0).nonzero().sum(),
    "masked_select": lambda x: x.mean((1, 2)) + torch.masked_select(x, x > 5).sum(),
    "gather of positions": lambda x: x.mean((1, 2)) + x.flatten()[(x.flatten() > 3).nonzero()[:, 0]].sum(),
}
FILLED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "some": lambda x: x.mean((1, 2)) + x[x > 0.5].sum(),
    "all": lambda x: x.mean((1, 2)) + x[x >= 0].sum(),
    "fixed": lambda x: x.mean((1, 2)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_what_is_empty_on_every_sample_is_named(name: str, tmp_path: Path) -> None:
    (note,) = notes(EMPTY[name], tmp_path)
    expect(note, None, "/NonZero") if name != "masked_select" else expect(note, None, "empty")


@pytest.mark.parametrize("name", FILLED)
def test_what_one_sample_fills_is_not(name: str, tmp_path: Path) -> None:
    assert notes(FILLED[name], tmp_path) == []


@pytest.mark.parametrize(
    ("beside", "kind"), [("a text", "str"), (3, "int"), ([1, 2], "list"), ({"a": 1}, "dict"), (torch.float16, "dtype")]
)
def test_what_is_no_tensor_is_left_out_and_named(beside: Any, kind: str, tmp_path: Path) -> None:
    (note,) = notes(lambda x: {"y": x.mean((1, 2)), "extra": beside}, tmp_path)
    expect(note, None, "extra", kind)


def test_none_is_no_output_and_nothing_to_say(tmp_path: Path) -> None:
    assert notes(lambda x: {"y": x.mean((1, 2)), "loss": None}, tmp_path) == []
