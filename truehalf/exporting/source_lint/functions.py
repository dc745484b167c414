"""From a function at hand to its syntax tree, and which functions are read at all."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FOREIGN = {"torch", "numpy", "math", "functools", "einops", "torchvision", "typing", "collections", "builtins"}
_PRODUCT = [Path(__file__).resolve().parents[3] / room for room in ("pipeline", "stages", "truehalf")]


def python_function(function: Any) -> Any | None:
    """The def behind a function or method, without its decorators' wrappers; None where there is none."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if inspect.isfunction(function) else None


def entry(module: Any) -> tuple[str, Any | None]:
    """What calling a module runs, its name and its def: forward, or the __call__ of a class that has one of its own."""
    import torch

    own = python_function(type(module).__call__)
    if own is not None and own is not torch.nn.Module.__call__ and own.__module__.partition(".")[0] != "torch":
        return "__call__", own
    return "forward", python_function(getattr(module, "forward", None))


def may_read(function: Any, packages: frozenset[str]) -> bool:
    """Functions of the user's own files, and of the packages that the module's classes come from."""
    top = (getattr(function, "__module__", None) or "").partition(".")[0]
    if top in _FOREIGN or top in sys.stdlib_module_names - {"__main__"}:
        return False
    return top in packages or not _installed(function.__code__.co_filename)


def _installed(file: str) -> bool:
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts


def is_own(file: str) -> bool:
    """Whether a source file is the user's: neither installed, nor Python's library, nor of this product."""
    path = Path(file)
    library = Path(sysconfig.get_path("stdlib"))
    inside = any(path.is_relative_to(folder) for folder in (library, *_PRODUCT))
    return not (_installed(file) or inside or file.startswith("<frozen"))


def shown_file(file: str) -> str:
    """Relative to the working folder, or to the folder of installed packages."""
    path = Path(file)
    for part in ("site-packages", "dist-packages"):
        if part in path.parts:
            return Path(*path.parts[path.parts.index(part) + 1 :]).as_posix()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else path.as_posix()


def definition(function: Any) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax of a def or lambda; None where the source is not to be had, or a line has several lambdas.

    Source comes from where python itself has it for tracebacks: files, notebook cells, packages in a zip file.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    return _definitions(source).get((code.co_firstlineno, code.co_name))


@functools.lru_cache(maxsize=256)
def _definitions(source: str) -> dict[tuple[int, str], ast.FunctionDef | ast.Lambda]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a source of another version of python, or bytes that are none
        return {}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lines = Counter(node.lineno for node in ast.walk(tree) if isinstance(node, ast.Lambda))
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and lines[node.lineno] == 1]
    defs = {(min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.name): node for node in found}
    return {**defs, **{(node.lineno, "<lambda>"): node for node in lambdas}}


def global_value(function: Any, name: str) -> tuple[bool, Any]:
    """Whether a name that the function does not bind itself is known, and its value."""
    code, cells = function.__code__, function.__closure__ or ()
    for free, cell in zip(code.co_freevars, cells, strict=True):
        if free == name:
            try:
                return True, cell.cell_contents
            except ValueError:
                return False, None
    for space in (function.__globals__, vars(sys.modules["builtins"])):
        if name in space:
            return True, space[name]
    return False, None


@functools.lru_cache(maxsize=1024)
def updated_attributes(cls: Any) -> frozenset[str]:
    """Names that forward or __call__, or a method that it calls on self, writes to self."""
    seen: set[str] = set()
    updated: set[str] = set()
    waiting = ["forward", "__call__"]
    while waiting:
        name = waiting.pop()
        method = None if name in seen else _method(cls, name)
        seen.add(name)
        tree = definition(method) if method is not None else None
        if tree is None or not tree.args.args:
            continue
        myself = tree.args.args[0].arg
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == myself:
                if isinstance(node.ctx, ast.Store):
                    updated.add(node.attr)
                else:
                    waiting.append(node.attr)
    return frozenset(updated)


def _method(cls: Any, name: str) -> Callable[..., Any] | None:
    if cls.__module__.partition(".")[0] == "torch":
        return None
    found = inspect.getattr_static(cls, name, None)
    found = python_function(getattr(found, "__func__", found)) if found is not None else None
    return found if found is not None and found.__module__.partition(".")[0] != "torch" else None
