"""Check a configuration by the types and rules of truehalf.config and by those of the model's source."""

from __future__ import annotations

from pathlib import Path

from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.json_values import JsonObject
from truehalf.models import sources


def validated(values: JsonObject, root: Path | None = None) -> Config:
    """Check a fully resolved configuration and return it typed, `model.options` as its source has them.

    Args:
        root: of the workspace, in which named files have to exist; None: they are not looked for.

    Raises:
        ConfigErrors: listing everything that is wrong in it.
    """
    return validate(values, sources, root)
