"""What python's own functions return in a module's source, and what they lose: len(tensor), int(tensor), max(a, b)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from truehalf.exporting.source_lint.functions import updated_attributes
from truehalf.exporting.source_lint.values import (
    FALSE,
    MAYBE,
    NONE,
    PRINTED,
    SIZE,
    TENSOR,
    TRUE,
    UNKNOWN,
    Value,
    elements,
    join_all,
    known,
    listed,
    sequence,
)

if TYPE_CHECKING:
    from truehalf.exporting.source_lint.expressions import Reader


def builtin(reader: Reader, node: ast.AST, name: str, args: list[Value]) -> Value:
    first = args[0] if args else UNKNOWN
    tensor = first.is_tensor
    parts, each = elements(first)
    if name == "len":
        if tensor:
            reader.report("py-tensor-len", node)
            return SIZE
        return known(len(parts)) if each else SIZE
    if name in ("min", "max", "sorted"):
        compared = args if len(args) > 1 else [first, *parts]
        if any(value.is_tensor for value in compared):
            reader.report("py-builtin-min-max", node)
            return TENSOR if name != "sorted" else sequence(TENSOR)
        return SIZE if name != "sorted" else UNKNOWN
    if name == "sum":
        if tensor:  # one row after the other, as many as traced
            reader.report("py-builtin-min-max", node)
        return TENSOR if first.holds_tensor else SIZE
    if name in ("any", "all") and (tensor or any(part.kind == "tensor" for part in parts)):
        reader.report("py-tensor-if", node)
        return UNKNOWN
    if name in ("int", "float", "complex", "bool", "round") and tensor:
        if first.kind == "tensor" and name != "round":
            reader.report("py-tensor-if" if name == "bool" else "py-item", node)
        return TENSOR if name == "round" else SIZE
    if name in ("int", "float", "complex") and first.kind == "printed":
        reader.report("py-item", node)
        return SIZE
    if name in ("str", "repr", "format", "ascii"):
        return PRINTED if first.holds_tensor else UNKNOWN
    if name in ("map", "filter") and len(args) > 1:
        return _each(reader, node, name, args)
    if name == "setattr" and args:
        import torch

        if first.kind == "known" and isinstance(first.known, torch.nn.Module):
            reader.report("py-attribute-update", node)
        return NONE
    if name in ("int", "float", "round", "abs", "pow") and not tensor:
        return SIZE
    if name in ("abs", "pow"):
        return TENSOR
    if name == "range":
        if any(value.is_tensor for value in args):
            reader.report("py-data-dependent-loop", node)
        numbers = [value.known for value in args if value.kind == "known" and isinstance(value.known, int)]
        return known(range(*numbers)) if args and len(numbers) == len(args) else sequence(SIZE)
    if name in ("enumerate", "zip", "reversed", "list", "tuple", "iter"):
        return _gone_through(reader, node, name, args)
    if name == "isinstance" and len(args) == 2:
        return _is_instance(first, args[1])
    if name == "getattr" and len(args) >= 2:
        return _attribute_by_name(reader, node, args)
    if name == "hasattr" and len(args) == 2 and all(value.kind == "known" for value in args):
        return known(hasattr(first.known, str(args[1].known)))
    return UNKNOWN


def _gone_through(reader: Reader, node: ast.AST, name: str, args: list[Value]) -> Value:
    if any(value.is_tensor for value in args):
        reader.report("py-data-dependent-loop", node)
    lists = [elements(value) for value in args]
    each = all(one for _, one in lists)
    if name == "zip":
        columns = [items if each else [join_all(items)] for items, _ in lists]  # one row for any number of them
        rows = [listed(row) for row in zip(*columns, strict=False)]
    elif name == "enumerate":
        items = lists[0][0] if lists else []
        rows = [listed([known(i) if each else SIZE, item]) for i, item in enumerate(items)]
    else:
        rows = list(lists[0][0]) if lists else []
        rows = rows[::-1] if name == "reversed" else rows
    return listed(rows) if each else sequence(join_all(rows))


def _each(reader: Reader, node: ast.AST, name: str, args: list[Value]) -> Value:
    """map and filter: the function is called with each item."""
    from truehalf.exporting.source_lint.calls import call_value

    rows = _gone_through(reader, node, "zip", args[1:])
    items, each = elements(rows)
    if name == "map":
        results = [call_value(reader, node, args[0], list(row.items), {}) for row in items]
        return listed(results) if each else sequence(join_all(results))
    kept = [row.items[0] for row in items if row.items]
    for item in kept:
        if call_value(reader, node, args[0], [item], {}).kind == "tensor":
            reader.report("py-tensor-if", node)
    return sequence(join_all(kept))


def _is_instance(value: Value, cls: Value) -> Value:
    import torch

    if cls.kind != "known":
        return UNKNOWN
    try:
        if value.kind == "tensor":
            classes = cls.known if isinstance(cls.known, tuple) else (cls.known,)
            return TRUE if any(issubclass(torch.Tensor, one) for one in classes) else FALSE
        return known(isinstance(value.known, cls.known)) if value.kind == "known" else UNKNOWN
    except TypeError:
        return UNKNOWN


def _attribute_by_name(reader: Reader, node: ast.AST, args: list[Value]) -> Value:
    import torch

    owner, name = args[0], args[1]
    if owner.kind != "known" or name.kind != "known":
        return UNKNOWN
    if isinstance(owner.known, torch.nn.Module) and isinstance(node, ast.Call) and isinstance(name.known, str):
        if hasattr(owner.known, name.known):
            return reader.attribute(ast.Attribute(node.args[0], name.known, ast.Load()))
        cls: Any = type(owner.known)
        if name.known in updated_attributes(cls):  # from the second call on it is there
            return MAYBE if len(args) > 2 and args[2].same(NONE) else UNKNOWN
    try:
        return known(getattr(owner.known, str(name.known)))
    except Exception:  # of an object of the user's
        return args[2] if len(args) > 2 else UNKNOWN
