"""JSON of reports: values of any keys, and dataclasses as JSON and back.

Where the keys are known, a dataclass or a TypedDict beside the code that writes the file names them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "Mapping[str, Json]"
Report = TypeVar("Report")


def is_finite_number(value: object) -> bool:
    """Whether a value is a number; neither true nor false, NaN or Inf."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def no_facts() -> Any:
    """An empty TypedDict: the default of a field whose keys may all be absent."""
    return {}


def to_fields(report: DataclassInstance) -> JsonObject:
    """A report's fields by name, for JSON: None is left out, and a field that has a to_json is what that returns."""
    content: dict[str, Any] = {}
    for field in dataclasses.fields(report):
        value = getattr(report, field.name)
        if hasattr(value, "to_json"):
            value = value.to_json()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        if value is not None:
            content[field.name] = value
    return content


def from_fields(report: Callable[..., Report], content: JsonObject, **nested: Callable[[Any], object]) -> Report:
    """A report from the JSON of `to_fields`, of this or another version.

    Args:
        report: a dataclass whose fields have defaults: a missing key and null become the default of their field.
        content: JSON; unknown keys are ignored.
        nested: by field, what reads its value, such as the from_json of another dataclass.
    """
    known: dict[str, object] = {}
    for field in dataclasses.fields(report):  # type: ignore[arg-type]
        value = content.get(field.name)
        if value is not None:
            known[field.name] = nested[field.name](value) if field.name in nested else value
    return report(**known)
