"""Read plain values (mappings, lists, scalars) as dataclasses and write dataclasses as plain values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from truehalf.codes import coded

_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "text", list: "a list"}


class ConfigErrors(ValueError):
    """Everything that is wrong with a configuration, one line each in `errors`, with its code."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        super().__init__(f"configuration: {count}\n" + "\n".join(f"  - {error}" for error in errors))


def typed(expected: Any, value: Any, path: str, errors: list[str]) -> Any:
    """Read a value as a type; a part with an error becomes None.

    Args:
        expected: dataclass, enum, scalar type, tuple, list, mapping of them, or a union of them with None. Keys that a
            mapping leaves out take the default of the dataclass's field.
        path: dotted path of the value, for the errors.
        errors: gets a line for each unknown, missing and mistyped key, each number out of bounds, and each problem that
            a dataclass's method `problems` yields.
    """
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is Any or (value is None and type(None) in arguments):
        return value
    if origin is UnionType:
        members = {get_origin(each) or each: each for each in arguments if each is not type(None)}
        form = tuple if isinstance(value, list) else type(value)
        if len(members) == 1 or form in members:
            return typed(members.get(form, next(iter(members.values()))), value, path, errors)
        names = [_NAMES[list if each is tuple else each] for each in members]
        return _mismatch(errors, path, ", or ".join(names), value)
    if is_dataclass(expected) and isinstance(expected, type):
        return _section(expected, value, path, errors)
    if origin in (list, tuple):
        if not isinstance(value, list):
            return _mismatch(errors, path, _NAMES[list], value)
        return origin(typed(arguments[0], item, f"{path}[{i}]", errors) for i, item in enumerate(value))
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            return _mismatch(errors, path, "a mapping", value)
        items = {
            typed(arguments[0], key, f"{path}.{key}", errors): typed(arguments[1], item, f"{path}.{key}", errors)
            for key, item in value.items()
        }
        return items if origin is dict else frozen(items)
    if issubclass(expected, Enum):
        return _choice(expected, value, path, errors)
    if expected is float and type(value) is int:
        return float(value)
    return value if type(value) is expected else _mismatch(errors, path, _NAMES[expected], value)


def note(problems: Callable[[], Iterable[str]], path: str, errors: list[str]) -> None:
    """Add problems to errors, except those of a key that has an error already.

    Rules read sections whose parts are None where they have an error; a rule that stumbles over such a part ends there.

    Args:
        problems: yields lines that begin with a key.
        path: dotted path that the keys are below.
    """
    prefix = f"{path}." if path else ""
    keys = {error.partition(":")[0] for error in errors}
    keys |= {key.partition("[")[0] for key in keys}  # an error of an entry is one of its list
    try:
        for problem in problems():
            if f"{prefix}{problem.partition(':')[0]}" not in keys:
                errors.append(f"{prefix}{problem}")
    except (TypeError, AttributeError, KeyError):
        if not keys:
            raise


def _section(expected: type, value: Any, path: str, errors: list[str]) -> Any:
    """Read a mapping as a dataclass, whose __init__ and __post_init__ are not called."""
    if not isinstance(value, Mapping):
        return _mismatch(errors, path or "configuration", "a mapping", value)
    hints, prefix = get_type_hints(expected), f"{path}." if path else ""
    keys = {each.name: each for each in fields(expected)}
    for name in value:
        if name not in keys:
            message = f"{prefix}{name}: unknown key; known here: {', '.join(keys)}{did_you_mean(str(name), keys)}"
            errors.append(coded("unknown-key", message))
    section: Any = object.__new__(expected)
    for name, key in keys.items():
        content = None if key.default is MISSING else key.default
        if name in value:
            content = typed(hints[name], value[name], prefix + name, errors)
            numbers = content if isinstance(content, Mapping) else {"": content}
            for entry, number in numbers.items():
                if key.metadata and isinstance(number, (int, float)):
                    _check_bounds(number, key.metadata, f"{prefix}{name}.{entry}".rstrip("."), errors)
        elif key.default is MISSING:
            errors.append(coded("missing-key", f"{prefix}{name}: missing"))
        object.__setattr__(section, name, content)
    if hasattr(section, "problems"):
        note(section.problems, path, errors)
    return section


def _choice(expected: type[Enum], value: Any, path: str, errors: list[str]) -> Any:
    options = [member.value for member in expected]
    if value in options:
        return expected(value)
    like = did_you_mean(str(value), map(str, options))
    errors.append(coded("unknown-choice", f"{path}: expected one of {', '.join(options)}, got {value!r}{like}"))
    return None


def _check_bounds(value: float, bounds: Mapping[str, Any], path: str, errors: list[str]) -> None:
    least, most, above = (bounds.get(name) for name in ("least", "most", "above"))
    # written so that NaN is outside, too
    is_low = not (least is None or value >= least) or not (above is None or value > above)
    if is_low or not (most is None or value <= most):
        low = f"above {above:g}" if least is None else f"{least:g}"
        high = (" or more" if least is not None else "") if most is None else f" to {most:g}"
        errors.append(coded("out-of-range", f"{path}: expected {low}{high}, got {value:g}"))


def _mismatch(errors: list[str], path: str, expected: str, got: Any) -> None:
    errors.append(coded("wrong-type", f"{path}: expected {expected}, got {got!r}"))


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
        return {plain(key): plain(item) for key, item in value.items()}
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
