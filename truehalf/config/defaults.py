"""What a library function does when it is told nothing: the YAML files of conf/."""

from __future__ import annotations

from typing import Any

import yaml

from truehalf.config.schema import CONF


def defaults(choice: str) -> dict[str, Any]:
    """The content of a YAML under conf/ ("precision/fp16"): what a library door does when it is told nothing."""
    content = yaml.safe_load((CONF / f"{choice}.yaml").read_text())
    assert isinstance(content, dict)
    return content
