"""JSON forms of what rooms hand to each other and leave in files: one key for each field of a frozen dataclass.

A file may be of another version: keys that a record does not have are passed over, and a field that the file does not
have keeps its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from typing import Self

# What a JSON or YAML file holds, where it is taken as it is.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "Mapping[str, Json]"


def absent() -> Any:
    """A field whose key is left out where it is None."""
    return field(default=None, metadata={"absent": True})


@dataclass(frozen=True)
class Record:
    """Base of the dataclasses that have a JSON form."""

    def to_json(self) -> dict[str, Json]:
        """Keys in the order of the fields; records inside it likewise."""
        given = [(each, getattr(self, each.name)) for each in fields(self)]
        return {
            each.name: _plain(value) for each, value in given if value is not None or not each.metadata.get("absent")
        }

    @classmethod
    def from_json(cls, content: JsonObject) -> Self:
        """Of what `to_json` gave, perhaps in another version; values are taken as they are.

        Raises:
            KeyError: a key without a default is missing.
            TypeError, AttributeError: a value is no mapping where a record is expected.
        """
        kinds = _kinds(cls)
        if missing := [name for name in _required(cls) if name not in content]:
            raise KeyError(missing[0])
        return cls(**{name: _read(kinds[name], content[name]) for name in kinds if name in content})


def _kinds(record: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {each.name: hints[each.name] for each in fields(record)}


def _required(record: type[Record]) -> frozenset[str]:
    return frozenset(each.name for each in fields(record) if each.default is MISSING is each.default_factory)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _read(kind: Any, value: Any) -> Any:
    """A value as its field has it: mappings as records, wherever the field's type names one."""
    if value is None:
        return None
    of, inner = get_origin(kind), [each for each in get_args(kind) if each is not NoneType]
    if of in (UnionType, Union):
        records = [each for each in inner if isinstance(each, type) and issubclass(each, Record)]
        if not isinstance(value, Mapping) or not records:
            return _read(inner[0], value) if len(inner) == 1 else value
        return next((each for each in records if _required(each) <= value.keys()), records[0]).from_json(value)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_json(value)
    if isinstance(of, type) and issubclass(of, Mapping):
        return {key: _read(inner[1], item) for key, item in value.items()}
    if of in (list, tuple, Sequence):
        made = [_read(inner[0], item) for item in value]
        return tuple(made) if of is tuple else made
    return value
