"""From a function at hand to its syntax tree and its names, and which functions are read at all."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
import sys
import types
from collections import ChainMap
from typing import Any

from truehalf.source_files import is_installed, nodes_of, source_of

_FOREIGN = {"torch", "numpy", "math", "functools", "einops", "torchvision", "typing", "collections", "builtins"}
TENSOR_TYPE = r"[\"']?[\w.]*(?:Tensor|Parameter)[\"']?"  # an annotation that names a tensor and nothing else


def python_function(function: Any) -> Any | None:
    """The def of a function or method, without its decorators' wrappers; None where there is none."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if inspect.isfunction(function) else None


def package_of(thing: Any) -> str:
    """The top package that a function or class is of."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0]


def may_read(function: Any, packages: frozenset[str]) -> bool:
    """Functions with source, of the user's files and of the packages that the module's classes come from."""
    top = package_of(function)
    if function is None or top in _FOREIGN or top in sys.stdlib_module_names - {"__main__"}:
        return False
    return (top in packages or not is_installed(function.__code__.co_filename)) and definition(function) is not None


def definition(function: Any) -> ast.FunctionDef | None:
    """The syntax of a def; None where the source is not to be had."""
    code = function.__code__
    return _definitions(source_of(code.co_filename, function.__globals__)).get((code.co_firstlineno, code.co_name))


@functools.lru_cache(maxsize=256)
def _definitions(source: str) -> dict[tuple[int, str], ast.FunctionDef]:
    defs = [node for node in nodes_of(source) if isinstance(node, ast.FunctionDef)]
    return {(min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.name): node for node in defs}


def outer_names(function: Any) -> ChainMap[str, Any]:
    """What the names are that a function does not bind itself; those that it imports are modules."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    return ChainMap(closed, function.__globals__, vars(builtins), sys.modules)


def names_a_tensor(annotation: ast.expr | None) -> bool:
    return annotation is not None and re.fullmatch(TENSOR_TYPE, ast.unparse(annotation)) is not None
