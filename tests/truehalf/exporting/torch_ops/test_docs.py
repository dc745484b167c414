"""docs/how-to/trt-friendly.md names every function, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

from truehalf.exporting import torch_ops as trt_friendly

TEXT = (Path(__file__).parents[4] / "docs" / "how-to" / "trt-friendly.md").read_text()


def test_every_function_is_named() -> None:
    assert [name for name in trt_friendly.__all__ if f"`{name}" not in TEXT and f" {name}(" not in TEXT] == []


def test_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), {})
