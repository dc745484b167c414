"""A configuration with all that is known here of it: the types and rules of conf/, and those of the model's source."""

from __future__ import annotations

from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.json_values import JsonObject
from truehalf.models import sources


def validated(values: JsonObject) -> Config:
    """Check a fully resolved configuration and return it typed, `model.options` as its source has them.

    Raises:
        ConfigErrors: listing everything that is wrong in it.
    """
    return validate(values, sources)
