"""params.yaml of a workspace: all that crosses from the pipeline to the stages."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from truehalf.errors import StageError
from truehalf.files import read_yaml

COMPOSED = "composed"  # section that says how params.yaml was composed; no part of the configuration


def params_digest(root: Path) -> str:
    """SHA-256 of what params.yaml says (not of how it is written)."""
    text = json.dumps(read_params(root), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_params(root: Path) -> Any:
    """The configuration in a workspace's params.yaml, a mapping.

    Raises:
        StageError: when it is missing, or no YAML mapping.
    """
    values = _mapping(root)
    values.pop(COMPOSED, None)
    return values


def read_composed(root: Path) -> Any:
    """The section `composed` of a workspace's params.yaml, a mapping; None where another program wrote the file.

    Raises:
        StageError: see read_params.
    """
    return _mapping(root).get(COMPOSED)


def _mapping(root: Path) -> dict[str, Any]:
    path = root / "params.yaml"
    expected = "a mapping, as `python -m pipeline` writes it"
    values = read_yaml(path, expected=expected)
    if not isinstance(values, dict):
        raise StageError("file-unreadable", f"{path}: expected {expected}, got {type(values).__name__}")
    return values
