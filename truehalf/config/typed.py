"""Plain values (dicts, lists, scalars) as typed dataclasses: every unknown, missing and mistyped key at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from truehalf.codes import coded

_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "text"}


class ConfigErrors(ValueError):
    """Everything that is wrong with a configuration, one line each in `errors`, with its code."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        super().__init__(f"configuration: {count}\n" + "\n".join(f"  - {error}" for error in errors))


def typed(expected: Any, value: Any, path: str, errors: list[str]) -> Any:
    """`value` as `expected` type, or None after noting the error under its dotted path.

    Args:
        expected: dataclass, enum, scalar type, list or dict of them, or a union of a scalar with None or a list.
            A tuple stands for a list, and a Mapping for a dict, that does not change.
        errors: gets a line for each problem.
    """
    return _Reader(errors).read(expected, value, path)


class Frozen(dict[Any, Any]):
    """A dict that does not change, and has a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise TypeError("options do not change: make others with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = _refused
    clear = pop = popitem = setdefault = update = _refused

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:  # for copies
        return type(self), (dict(self),)


def frozen(value: Any) -> Any:
    """Lists as tuples and dicts as Frozen, all the way down."""
    if isinstance(value, Mapping):
        return Frozen({key: frozen(item) for key, item in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


def plain(value: Any) -> Any:
    """Dataclasses, enums, tuples, sets and numpy's scalars as a YAML file would hold them."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=str)
    if getattr(value, "ndim", None) == 0:  # of numpy and torch
        return value.item()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean a or b?`: the known words most like this one, or that end in it after a dot; empty for none."""
    names = list(dict.fromkeys(known))
    like = [name for name in names if name.endswith(f".{word}") or name.lower() == word.lower()]
    like = like or difflib.get_close_matches(word, names, 2, 0.7)
    return f"; did you mean {' or '.join(like)}?" if like else ""


class _Reader:
    def __init__(self, errors: list[str]) -> None:
        self._errors = errors

    def read(self, expected: Any, value: Any, path: str) -> Any:
        if expected is Any:
            return value
        origin, arguments = get_origin(expected), get_args(expected)
        if type(None) in arguments:  # X | None
            if value is None:
                return None
            return self.read(next(a for a in arguments if a is not type(None)), value, path)
        if origin is UnionType:  # bool | tuple[str, ...]
            scalar, listed = arguments
            if not isinstance(value, (scalar, list)):
                return self._problem(path, f"{_NAMES[scalar]}, or a list", value)
            return self.read(listed if isinstance(value, list) else scalar, value, path)
        if is_dataclass(expected) and isinstance(expected, type):
            return self._section(expected, value, path)
        if isinstance(expected, type) and issubclass(expected, Enum):
            options = [member.value for member in expected]
            if value in options:
                return expected(value)
            like = did_you_mean(str(value), map(str, options))
            return self._problem(path, f"one of {', '.join(options)}", value, like, choice=True)
        if origin in (list, tuple):
            if not isinstance(value, list):
                return self._problem(path, "a list", value)
            return origin(self.read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
        if origin in (dict, Mapping):
            if not isinstance(value, Mapping):
                return self._problem(path, "a mapping", value)
            of_key, of_item = arguments
            items = {
                self.read(of_key, key, f"{path}, key {key!r}"): self.read(of_item, item, f"{path}.{key}")
                for key, item in value.items()
            }
            return items if origin is dict else frozen(items)
        return self._scalar(expected, value, path)

    def _section(self, expected: type, value: Any, path: str) -> Any:
        """An instance whose bounds have not been checked yet, with None where a key is missing or mistyped: the rules
        of the configuration say all that they find, also of a section with an error.
        """
        if not isinstance(value, Mapping):
            return self._problem(path or "configuration", "a mapping", value)
        hints = get_type_hints(expected)
        names = [field.name for field in fields(expected)]
        prefix = f"{path}." if path else ""
        for key in value:
            if key not in names:
                message = f"{prefix}{key}: unknown key; known here: {', '.join(names)}{did_you_mean(str(key), names)}"
                self._errors.append(coded("unknown-key", message))
        section: Any = object.__new__(expected)
        for name in names:
            if name not in value:
                self._errors.append(coded("missing-key", f"{prefix}{name}: missing"))
            found = self.read(hints[name], value[name], prefix + name) if name in value else None
            object.__setattr__(section, name, found)
        return section

    def _scalar(self, expected: type, value: Any, path: str) -> Any:
        if expected is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if type(value) is expected:
            return value
        return self._problem(path, _NAMES[expected], value)

    def _problem(self, path: str, expected: str, got: Any, like: str = "", *, choice: bool = False) -> None:
        text = f"{path}: expected {expected}, got {got!r}{like}"
        self._errors.append(coded("unknown-choice" if choice else "wrong-type", text))
