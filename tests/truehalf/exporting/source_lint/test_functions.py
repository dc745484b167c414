"""Where source comes from, and what is said where it cannot be read."""

from __future__ import annotations

import importlib
import linecache
import statistics
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.messages import expect, raises
from truehalf.exporting.source_lint import lint_source

Tensor = torch.Tensor


class Foreign(torch.nn.Module):
    """Whatever is in a table that is filled elsewhere; and what the standard library does with tensors."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, kind: str) -> Tensor:
        names = []
        names.append(x.shape[0])
        y = self.table[kind](x)
        return y * statistics.fmean([x.min(), x.max()])


def test_calls_that_are_not_followed_are_counted_once() -> None:
    (finding,) = lint_source(Foreign({"a": torch.relu, "b": torch.tanh}))
    assert (finding.rule, finding.severity) == ("py-not-followed", "info")
    assert finding.line is not None
    expect(finding.message, None, 2, f"tests/truehalf/exporting/source_lint/test_functions.py:{finding.line}")


def test_what_is_no_module_is_refused() -> None:
    with raises("wrong-return", "int"):
        lint_source(lambda: 3)  # type: ignore[arg-type, return-value]
    with raises("no-source"):
        lint_source(torch.jit.script(torch.nn.ReLU()))


SOURCE = """import torch
class Made(torch.nn.Module):
    def forward(self, x):
        return x if x.any() else -x
"""


def made(name: str, loader: object = None) -> Any:
    """The class of SOURCE, compiled as if it stood in a file of that name."""
    space: dict[str, Any] = {"__name__": "made", "__loader__": loader}
    exec(compile(SOURCE, name, "exec"), space)
    return space["Made"]


class Holds(torch.nn.Module):
    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


def test_source_that_cannot_be_read_is_said() -> None:
    with raises("no-source", "Made.forward"):
        lint_source(made("<string>"))
    (finding,) = lint_source(Holds(made("<string>")()))
    assert finding.rule == "py-not-followed"
    expect(finding.message, None, 1)


def test_source_that_is_none_of_this_python_is_said(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(SOURCE.replace("return", "returns"))
    with raises("no-source", "Made.forward"):
        lint_source(made(str(tmp_path / "made.py")))


def test_cells_of_notebooks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no file; python's linecache holds them, as it does for tracebacks."""
    name = "<ipython-input-7-0123456789ab>"
    monkeypatch.setitem(linecache.cache, name, (len(SOURCE), None, SOURCE.splitlines(keepends=True), name))
    (finding,) = lint_source(made(name))
    assert (finding.rule, finding.file, finding.line) == ("py-tensor-if", name, 4)


def test_packages_in_a_zip_file_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        archive.writestr("zipped_detector.py", SOURCE)
    monkeypatch.syspath_prepend(tmp_path / "parts.zip")
    (finding,) = lint_source(importlib.import_module("zipped_detector").Made)
    assert (finding.rule, finding.line) == ("py-tensor-if", 4)
