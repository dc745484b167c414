"""Options of the engine as plans hold them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


def plain_options(value: Any) -> Any:
    """Dataclasses, enums and tuples as JSON has them."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain_options(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {key: plain_options(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_options(item) for item in value]
    return value
