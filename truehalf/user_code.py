"""User-defined code, named as module:function: imported from the workspace or from what is installed, and called.

The workspace is first on the path while the module is imported and while the function runs, for what either imports;
otherwise it is not on it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from truehalf.errors import RAISED, StageError, typed_text

PRODUCT = [Path(__file__).resolve().parents[1] / room for room in ("pipeline", "stages", "truehalf")]


def is_installed(file: str) -> bool:
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def imported(key: str, name: str, root: Path) -> Callable[..., Any]:
    """The function that module:function names; the workspace is on the path whenever it is called.

    Args:
        key: of the configuration, for the message.
        root: the workspace.

    Raises:
        StageError: see `found_in_code`, and where it is nothing that can be called.
    """
    function = found_in_code(key, name, root)
    if not callable(function):
        got = f"a {type(function).__name__}; expected a function"
        raise StageError("function-fails", f"{key}: {name!r}: it is {got}")

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        with importing_from(root):
            try:
                return function(*arguments, **keywords)
            except SystemExit as error:  # an error as any other, for who calls it
                ended = RuntimeError(f"sys.exit({error.code!r})")
                raise ended.with_traceback(error.__traceback__) from None

    return called


def found_in_code(key: str, name: str, root: Path) -> Any:
    """What "module:name" is, dotted names included.

    Args:
        key: of the option, for the message.
        root: the workspace, which is searched before what is installed.

    Raises:
        StageError: when the text is no such name, its module cannot be imported, or there is no such thing in it.
    """
    module, _, attributes = name.partition(":")
    if not module or not attributes:
        raise StageError("bad-syntax", f"{key}: expected module:function, such as detector:build, got {name!r}")
    try:
        with importing_from(root):
            found: Any = importlib.import_module(module)
    except RAISED as error:  # whatever the user's module raises
        raise StageError(
            "function-fails",
            f"{key}: {name!r}: module {module!r} cannot be imported from {root} or from what is installed: "
            f"{described(error)}",
        ) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise StageError("function-fails", f"{key}: {name!r}: module {module!r} has no function {attributes!r}")
        found = getattr(found, attribute)
    return found


@contextlib.contextmanager
def importing_from(root: Path) -> Iterator[None]:
    """Within, the workspace is first on the path."""
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the user's code may have taken it off
            sys.path.remove(str(root))


def described(error: BaseException) -> str:
    """The error's type, its message, and the last line outside this package that led to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{typed_text(error)}{place}"


def _is_ours(file: str) -> bool:
    """Whether a line there says nothing about the user's code: it is of a stage, or of the import itself."""
    return (
        file.startswith("<frozen importlib")
        or file == importlib.__file__
        or any(Path(file).is_relative_to(room) for room in PRODUCT)
    )
