"""What conf/ ships."""

from __future__ import annotations

from typing import Any

import yaml

from pipeline.workspace import CONF


def shipped(choice: str) -> dict[str, Any]:
    """The content of a YAML file under conf/, such as "precision/fp16"."""
    content: dict[str, Any] = yaml.safe_load((CONF / f"{choice}.yaml").read_text())
    return content
