"""Tell code of the user from code of others, show its source files, and parse them."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.user_code import PRODUCT, is_installed

if TYPE_CHECKING:
    import torch

_STANDARD = Path(sysconfig.get_path("stdlib"))


@functools.cache
def is_own(file: str) -> bool:
    """Whether a source file is the user's: neither installed, nor Python's library, nor of this product."""
    inside = any(Path(file).is_relative_to(folder) for folder in (_STANDARD, *PRODUCT))
    return not (is_installed(file) or inside or file.startswith("<frozen"))


def is_own_class(cls: type) -> bool:
    """Whether a class is of the user's source; one of a session or notebook, which is no file, too."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is not None:
        return is_own(file)
    return any(is_own(each.__code__.co_filename) for each in vars(cls).values() if isinstance(each, types.FunctionType))


def has_own_code(module: torch.nn.Module) -> bool:
    """Whether a part of a module is of a class of the user's."""
    return any(is_own_class(type(part)) for part in module.modules())


def shown_file(file: str) -> str:
    """Relative to the working folder, or to the folder of installed packages."""
    path = Path(file)
    for part in ("site-packages", "dist-packages"):
        if part in path.parts:
            return Path(*path.parts[path.parts.index(part) + 1 :]).as_posix()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else path.as_posix()


def nodes_of(file: str) -> list[ast.AST]:
    """Parse a source, from where Python has it for tracebacks (files, notebook cells), node by node; none of a source
    of another version of Python, or of what is none.
    """
    linecache.checkcache(file)
    return _parsed("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return []
