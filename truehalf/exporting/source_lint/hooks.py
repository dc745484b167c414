"""Hooks around a module's forward, which python calls and the source of forward does not show."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truehalf.exporting.source_lint.values import NONE, UNKNOWN, Value, known, listed

if TYPE_CHECKING:
    from truehalf.exporting.source_lint.expressions import Reader

Arguments = dict[str, Value]


def hooked(
    reader: Reader,
    node: ast.AST,
    module: Any,
    args: list[Value],
    kwargs: Arguments,
    run: Callable[[list[Value], Arguments], Value],
) -> Value:
    """What a module returns, its forward_pre_hooks called before `run`, and its forward_hooks after."""
    from truehalf.exporting.source_lint.calls import call_known

    for key, hook in module._forward_pre_hooks.items():
        named = key in module._forward_pre_hooks_with_kwargs
        more = [Value("record", items=tuple(kwargs.values()), names=tuple(kwargs))] if named else []
        changed = call_known(reader, node, hook, [known(module), listed(args), *more], {})
        if changed.kind == "list" and not named:
            args = list(changed.items)
        elif changed.is_tensor:
            args = [changed]
    result = run(args, kwargs)
    for key, hook in module._forward_hooks.items():
        named = key in module._forward_hooks_with_kwargs
        more = [Value("record", items=tuple(kwargs.values()), names=tuple(kwargs))] if named else []
        changed = call_known(reader, node, hook, [known(module), listed(args), *more, result], {})
        if not changed.same(NONE) and not changed.same(UNKNOWN):
            result = changed
    return result
