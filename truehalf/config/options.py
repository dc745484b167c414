"""Keys of option dataclasses: default, meaning and bounds. Checks, flags and tables in docs come from the fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, ClassVar, TypeVar

from truehalf.codes import coded
from truehalf.config.typed import frozen, plain, typed
from truehalf.errors import refuse


def key(
    default: Any, meaning: str, *, least: float | None = None, most: float | None = None, above: float | None = None
) -> Any:
    """A field of an option dataclass.

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
    """A field that holds a number from 0 to 1."""
    return key(default, meaning, least=0, most=1)


def default_of(option: Field[Any]) -> Any:
    """The default of a field, as a YAML file holds it."""
    assert option.default is not MISSING
    return plain(option.default)


def problem_of_function(path: str, name: str | None) -> Iterator[str]:
    """A line where a text is no module:function."""
    if name is not None and not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        yield coded("bad-syntax", f"{path}: expected module:function, such as my_module:build, got {name!r}")


class Options:
    """Base of a section of the configuration: values are checked when an instance is made.

    They are read as a YAML file's: a text serves for an enum, any iterable but a text for a list.

    Raises:
        StageError: bad-options, listing every value that has the wrong type, is out of bounds or cannot be read.
    """

    SECTION: ClassVar[str]

    def __post_init__(self) -> None:
        checked, errors = read(type(self), plain(self))
        refuse("bad-options", "bad options", errors)
        for each in fields(self):  # type: ignore[arg-type]  # of subclasses, which are dataclasses
            object.__setattr__(self, each.name, getattr(checked, each.name))

    def problems(self) -> Iterable[str]:
        """What the types and bounds of single fields do not say: a line each, by dotted path from SECTION."""
        return ()


Section = TypeVar("Section", bound=Options)


def read(section: type[Section], values: Any) -> tuple[Section, list[str]]:
    """A section of plain values, and a line for each thing that is wrong with them, by dotted path from the section."""
    errors: list[str] = []
    found = typed(section, values, section.SECTION, errors)
    if not errors:
        errors += [*out_of_bounds(found, section.SECTION), *found.problems()]
    return found, [error.removeprefix(f"{section.SECTION}.") for error in errors]


def out_of_bounds(section: Any, path: str = "") -> Iterator[str]:
    """A line for each number in a dataclass, nested ones included, outside the bounds of its field, by dotted path.

    None passes: whether a key may be null is its type's to say.
    """
    for each in fields(section):
        value, where = getattr(section, each.name), f"{path}.{each.name}".lstrip(".")
        if is_dataclass(value):
            yield from out_of_bounds(value, where)
        elif each.metadata and isinstance(value, (int, float)):
            bounds = [each.metadata.get(name) for name in ("least", "most", "above")]
            yield from _outside(where, value, *bounds)


def _outside(path: str, value: float, least: float | None, most: float | None, above: float | None) -> Iterator[str]:
    # written so that NaN is outside, too
    is_low = not (least is None or value >= least) or not (above is None or value > above)
    if is_low or not (most is None or value <= most):
        low = f"above {above:g}" if least is None else f"{least:g}"
        high = (" or more" if least is not None else "") if most is None else f" to {most:g}"
        yield coded("out-of-range", f"{path}: expected {low}{high}, got {value:g}")
