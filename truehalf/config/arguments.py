"""Arguments of functions, checked when they are called: their types by the annotations, what the system refuses."""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

from truehalf.errors import StageError
from truehalf.files import explain

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function that raises StageError for an argument of another type than its annotation says (wrong-type), and for
    what the system refuses while it works (file-unwritable).

    A type that is imported for type checkers alone is unknown at run time: the function checks such an argument itself.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            annotation = signature.parameters[name].annotation
            try:
                expected = eval(annotation, function.__globals__)
            except (NameError, TypeError):
                continue
            if not _fits(value, expected):
                got = reprlib.repr(value)
                raise StageError("wrong-type", f"{function.__name__}: {name}: expected {annotation}, got {got}")
        try:
            return function(*args, **kwargs)
        except OSError as error:
            if error.errno is None:  # not the system's: of code that was given
                raise
            raise StageError("file-unwritable", f"{function.__name__}: {explain(error)}") from error

    return call


def _fits(value: Any, expected: Any) -> bool:
    """Whether a value is of an annotation's type; any collection but a text or mapping serves for a sequence."""
    kind, inside = get_origin(expected) or expected, get_args(expected)
    if kind is UnionType:
        return any(_fits(value, each) for each in inside)
    if expected is None:
        return value is None
    if kind is Any:
        return True
    if kind is Path:
        return isinstance(value, os.PathLike)
    if kind in (bool, int):
        value = value.item() if getattr(value, "ndim", None) == 0 else value  # of numpy
        return type(value) is kind
    if issubclass(kind, Collection) and kind is not str and not issubclass(kind, Mapping):
        sound = isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))
        return sound and all(_fits(item, inside[0]) for item in value)
    if issubclass(kind, Mapping) and isinstance(value, Mapping):
        return all(_fits(item, of) for pair in value.items() for item, of in zip(pair, inside, strict=True))
    return isinstance(value, kind)
