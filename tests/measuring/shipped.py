"""What conf/ ships."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).resolve().parents[2] / "conf"


def shipped(choice: str) -> dict[str, Any]:
    """The content of a YAML file under conf/, such as "precision/fp16"."""
    return copy.deepcopy(_read(choice))


@functools.cache
def _read(choice: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((CONF / f"{choice}.yaml").read_text())
    return content
