"""Functions that a module's source makes while it runs: nested defs and lambdas, called with what is known there."""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING, Any

from truehalf.exporting.source_lint.values import UNKNOWN, Value, join_all, listed, mapping, record, sequence

if TYPE_CHECKING:
    from truehalf.exporting.source_lint.expressions import Frame, Reader

SPREAD = "**"  # the key, among keyword arguments, of a mapping whose keys are not known


@dataclasses.dataclass(frozen=True, eq=False)
class Local:
    """A def or lambda, the call that it was made in, and its defaults."""

    tree: ast.FunctionDef | ast.Lambda
    frame: Frame
    defaults: dict[str, Value]

    @property
    def name(self) -> str:
        return self.tree.name if isinstance(self.tree, ast.FunctionDef) else "<lambda>"


def local(reader: Reader, tree: ast.FunctionDef | ast.Lambda) -> Value:
    given = tree.args
    positional = [*given.posonlyargs, *given.args]
    defaults = dict(zip([arg.arg for arg in positional[::-1]], given.defaults[::-1], strict=False))
    defaults |= {arg.arg: node for arg, node in zip(given.kwonlyargs, given.kw_defaults, strict=True) if node}
    return Value("local", Local(tree, reader.frame, {name: reader.value(node) for name, node in defaults.items()}))


def bound(function: Local, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """The parameters, as python binds them."""
    from truehalf.exporting.source_lint.expressions import is_tensor_annotation
    from truehalf.exporting.source_lint.values import TENSOR

    given, rest, left = function.tree.args, list(args), dict(kwargs)
    spread = left.pop(SPREAD, None)
    result: dict[str, Value] = {}
    for arg in [*given.posonlyargs, *given.args, *given.kwonlyargs]:
        if rest and arg not in given.kwonlyargs:
            value = rest.pop(0)
        elif arg.arg in left:
            value = left.pop(arg.arg)
        else:
            value = function.defaults.get(arg.arg, spread.items[0] if spread is not None else UNKNOWN)
        if value.kind == "unknown" and arg.annotation is not None and is_tensor_annotation(ast.unparse(arg.annotation)):
            value = TENSOR
        result[arg.arg] = value
    if given.vararg is not None:
        result[given.vararg.arg] = listed(rest)
    if given.kwarg is not None:
        result[given.kwarg.arg] = spread if spread is not None else record(left)
    return result


def spread_out(kwargs: dict[str, Value], value: Value) -> dict[str, Value]:
    """Keyword arguments with those of a `**value`."""
    if value.kind == "record":
        return dict(zip(value.names, value.items, strict=True)) | kwargs
    if value.kind == "mapping":
        return kwargs | {SPREAD: value}
    if value.kind == "known" and isinstance(value.known, dict) and all(isinstance(key, str) for key in value.known):
        return {key: _known(item) for key, item in value.known.items()} | kwargs
    return kwargs


def method_of_mapping(name: str, value: Value, args: list[Value]) -> Value:
    """Of a dict whose keys are not known."""
    from truehalf.exporting.source_lint.values import NONE, join

    item = value.items[0]
    if name == "values":
        return sequence(item)
    if name == "items":
        return sequence(listed([UNKNOWN, item]))
    if name in ("get", "pop", "setdefault"):
        if len(args) > 1:  # an option that is off, where the default is no tensor
            return join(item, args[1]) if args[1].is_tensor or args[1].same(NONE) else UNKNOWN
        return join(item, NONE) if name == "get" else item
    if name == "copy":
        return mapping(item)
    return UNKNOWN


def changed_mapping(value: Value, new: Value) -> Value:
    return mapping(join_all([*value.items, new]))


def _known(item: Any) -> Value:
    from truehalf.exporting.source_lint.values import known

    return known(item)
