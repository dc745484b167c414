"""params.yaml of a workspace: all that crosses from the pipeline to the stages."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import yaml

from truehalf.errors import StageError
from truehalf.json_values import Json


def params_digest(root: Path) -> str:
    """SHA-256 of what params.yaml says (not of how it is written)."""
    text = json.dumps(read_params(root), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_params(root: Path) -> dict[str, Json]:
    """The content of a workspace's params.yaml.

    Raises:
        StageError: when it is missing, or no YAML mapping.
    """
    path = root / "params.yaml"
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{path} is missing; `python -m pipeline` writes it") from error
    except yaml.YAMLError as error:
        message = f"{path} is no valid YAML: {error}; `python -m pipeline` writes it anew"
        raise StageError("file-unreadable", message) from error
    if not isinstance(values, dict):
        message = f"{path}: expected a mapping, got {type(values).__name__}; `python -m pipeline` writes it anew"
        raise StageError("file-unreadable", message)
    return values
