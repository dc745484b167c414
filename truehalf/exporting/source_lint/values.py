"""What is known about a value while a module's source is read: a tensor, a size, an object at hand, or nothing.

tensor      a torch.Tensor whose numbers come with the call; `made` where its floating type is that of a constant
maybe       a tensor or None, and which of them may change from call to call
optional    a tensor or None, decided by the configuration
text        a string that may change from call to call
size        an int or a bool made of shapes: fixed where axes are
shape       a torch.Size
known       an object that is at hand: configuration, modules, functions, numbers
list        a list or tuple, item by item
sequence    a list or tuple of unknown length, of one kind of item
record      named fields: dataclasses, dicts with string keys
mapping     a dict of one kind of value, whose keys are not known
local       a nested def or a lambda, and where it was made (local_functions.py)
printed     a string that a tensor's numbers were written into
unknown     anything; nothing is said about it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

PARTS = 64  # longest list that is followed item by item
Place = tuple[str, str, int]  # scope, file, line


@dataclasses.dataclass(frozen=True)
class Value:
    kind: str
    known: Any = None
    items: tuple[Value, ...] = ()
    names: tuple[str, ...] = ()
    made: tuple[Place, ...] = ()

    @property
    def is_tensor(self) -> bool:
        return self.kind in ("tensor", "maybe", "optional")

    @property
    def holds_tensor(self) -> bool:
        return self.is_tensor or any(item.holds_tensor for item in self.items)

    def key(self) -> Any:
        """Equal for values of which the same is known; objects at hand by identity, as most cannot be compared."""
        plain = isinstance(self.known, (int, float, str, type(None)))
        known = (type(self.known).__name__, self.known) if plain else id(self.known)
        return self.kind, known, tuple(item.key() for item in self.items), self.names, self.made

    def same(self, other: Value) -> bool:
        return bool(self.key() == other.key())


TENSOR, MAYBE, OPTIONAL, TEXT = (Value(kind) for kind in ("tensor", "maybe", "optional", "text"))
SIZE, SHAPE, UNKNOWN, PRINTED = (Value(kind) for kind in ("size", "shape", "unknown", "printed"))
NONE, TRUE, FALSE = (Value("known", value) for value in (None, True, False))


def known(value: Any) -> Value:
    """An object at hand: tensors are tensors, lists and tuples of them are followed item by item."""
    import torch

    if isinstance(value, torch.Size):
        return SHAPE
    if isinstance(value, torch.Tensor):
        return TENSOR
    if type(value) in (list, tuple) and len(value) <= PARTS and any(isinstance(item, torch.Tensor) for item in value):
        return listed(known(item) for item in value)
    return Value("known", value)


def listed(items: Iterable[Value]) -> Value:
    items = tuple(items)
    return Value("list", items=items) if len(items) <= PARTS else sequence(join_all(items))


def sequence(item: Value) -> Value:
    return Value("sequence", items=(item,))


def mapping(item: Value) -> Value:
    return Value("mapping", items=(item,))


def record(fields: dict[str, Value]) -> Value:
    return Value("record", items=tuple(fields.values()), names=tuple(fields))


def join(a: Value, b: Value) -> Value:
    """What holds for a value that is one or the other."""
    if a.same(b):
        return a
    kinds = {a.kind, b.kind}
    if kinds <= {"tensor", "maybe", "optional"}:
        kind = "tensor" if kinds == {"tensor"} else "maybe" if "maybe" in kinds else "optional"
        return Value(kind, made=made_in(a, b))
    for one, other in ((a, b), (b, a)):
        if one.is_tensor and other.same(NONE):
            return MAYBE if one.kind == "maybe" else OPTIONAL
        if one.is_tensor and is_number(other):
            return one
        if one.kind == "sequence" and other.kind in ("list", "sequence"):
            return sequence(join_all((*one.items, *other.items)))
    if kinds == {"list"}:
        if len(a.items) == len(b.items):
            return listed(join(x, y) for x, y in zip(a.items, b.items, strict=True))
        return sequence(join_all((*a.items, *b.items)))
    if kinds == {"record"} and a.names == b.names:
        return Value("record", items=tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)), names=a.names)
    if is_number(a) and is_number(b):
        return SIZE
    return UNKNOWN


def made_in(*values: Value) -> tuple[Place, ...]:
    """Where the constants were made whose type these values have, each place once."""
    return tuple(dict.fromkeys(place for value in values for place in value.made))


def join_all(values: Iterable[Value]) -> Value:
    result: Value | None = None
    for value in values:
        result = value if result is None else join(result, value)
    return UNKNOWN if result is None else result


def is_number(value: Value) -> bool:
    return value.kind == "size" or (value.kind == "known" and isinstance(value.known, (int, float)))


def elements(value: Value) -> tuple[list[Value], bool]:
    """What iterating gives, and whether that is each item in its order; else one item stands for any number."""
    import torch

    if value.kind == "list":
        return list(value.items), True
    if value.kind == "mapping":  # its keys
        return [UNKNOWN], False
    if value.kind in ("sequence", "tensor", "maybe", "optional", "shape"):
        return [value.items[0] if value.items else SIZE if value.kind == "shape" else TENSOR], False
    plain = (list, tuple, range, torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict, dict)
    if value.kind == "known" and isinstance(value.known, plain):
        if len(value.known) <= PARTS:
            return [known(item) for item in value.known], True
        return [join_all(known(item) for item in list(value.known)[:PARTS])], False
    return [UNKNOWN], False
