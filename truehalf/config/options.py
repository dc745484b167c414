"""Keys of option dataclasses: default, meaning and bounds. Checks, flags, YAML files and docs come from the fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, field, fields
from typing import Any

from truehalf.codes import coded
from truehalf.config.typed import frozen, plain, typed
from truehalf.errors import refuse


def key(
    default: Any, meaning: str, *, least: float | None = None, most: float | None = None, above: float | None = None
) -> Any:
    """Define a field of an option dataclass.

    Args:
        default: a tuple stands for a list, a dict is frozen; ...: none, it has to be given.
        meaning: the comment in the YAML file, the help of the flag, the row in docs.
        least, most: smallest and largest value, both allowed.
        above: the value has to be larger.
    """
    metadata = {"meaning": meaning, "least": least, "most": most, "above": above}
    if default is ...:
        return field(metadata=metadata)
    return field(default=frozen(default), metadata=metadata)


def share(default: Any, meaning: str) -> Any:
    """Define a field that holds a number from 0 to 1."""
    return key(default, meaning, least=0, most=1)


def default_of(option: Field[Any]) -> Any:
    """Return the default of a field, as a YAML file holds it."""
    assert option.default is not MISSING
    return plain(option.default)


def problem_of_function(path: str, name: str | None) -> Iterator[str]:
    """Yield an error line if a text is no module:function."""
    if name is not None and not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        yield coded("bad-syntax", f"{path}: expected module:function, such as my_module:build, got {name!r}")


class Options:
    """Base of option dataclasses: values are checked when an instance is made.

    They are read as a YAML file's: a text serves for an enum, any iterable but a text for a list.

    Raises:
        StageError: bad-options, listing every value that has the wrong type, is out of bounds or cannot be read.
    """

    def __post_init__(self) -> None:
        errors: list[str] = []
        checked = typed(type(self), plain(self), "", errors)
        refuse("bad-options", "bad options", errors)
        for each in fields(self):  # type: ignore[arg-type]  # of subclasses, which are dataclasses
            object.__setattr__(self, each.name, getattr(checked, each.name))

    def problems(self) -> Iterable[str]:
        """Yield a line, which begins with the key, for each problem beyond types and bounds of single keys."""
        return ()
