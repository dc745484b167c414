"""Modules whose forward is written for a test, in files of their own, so that lint can read them."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.tracing import trace_json

SPEC: dict[str, Any] = {
    "inputs": [
        {"name": "x", "dtype": "float32", "shape": ["n", 3, 8, 8], "kind": "images", "range": [0, 1], "channels": "RGB"}
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 4]}],
    "trained": True,
}
_HEAD = """
import contextlib, logging, math, random, warnings
import numpy as np
import torch


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(4))
        self.grid, self.calls = None, 0
        torch.nn.init.constant_(self.conv.weight, 0.05)

    def forward(self, x):
        y = self.conv(x).mean((2, 3)) + 1
"""
_TAIL = """
        return y

    def remember(self, value):
        self.grid = bool(value)
        return self.grid


def print_and_keep(module, value):
    module.grid = bool(value)


LOG = logging.getLogger("written")
"""
_number = itertools.count()


def written(folder: Path, body: str, outside: str = "", init: str = "") -> torch.nn.Module:
    """A module of a file in `folder` whose forward makes y of x, and then does what `body` says, from line 17 on.

    Args:
        outside: further lines at the end of the file.
        init: a statement at the end of __init__, in one line.
    """
    file = folder / f"written_{next(_number)}.py"
    head = _HEAD.lstrip().replace("0.05)\n", f"0.05); {init}\n" if init else "0.05)\n")
    file.write_text(head + textwrap.indent(body, " " * 8) + _TAIL + outside + "\n")
    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[file.stem] = module
    found.loader.exec_module(module)
    made: torch.nn.Module = module.Module().eval()
    return made


def pictures(*seeds: int, low: float = 0.3, high: float = 0.9) -> dict[str, np.ndarray]:
    """Of middling brightness: an example that takes one side of most conditions."""
    rng = np.random.default_rng(seeds[0])
    return {"x": rng.uniform(low, high, (len(seeds), 3, 8, 8)).astype(np.float32)}


def traced(folder: Path, body: str, **options: Any) -> dict[str, Any]:
    """The report of trace, with checks on other pictures and in other batches."""
    spec = SPEC | options.pop("spec", {})
    checks = options.pop("check_feeds", [pictures(3, 4, 5), pictures(6)])
    module = written(folder, body, options.pop("outside", ""), options.pop("init", ""))
    return trace_json(module, pictures(1, 2), folder / "m.onnx", spec=spec, check_feeds=checks, **options)
