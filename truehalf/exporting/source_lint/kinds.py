"""Abstract values of the program that is read.

What is at hand (configuration, modules, functions, numbers) stands for itself; a list, tuple or dict that the program
makes holds what is known of its items, and one item stands for any number of them; a dataclass is a dict. All else is
Abstract: a tensor, whose numbers come with the call (as do those of a text made of them); maybe a tensor, where some
calls may have None; a text that may change from call to call; a number, made of shapes or read out of a tensor; or
unknown, and nothing is reported about it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

FOLLOWED = 64  # longest list that is followed item by item
SourceLocation = tuple[str, str, int]  # scope, file, line


@dataclasses.dataclass(frozen=True)
class Abstract:
    """A value that is not at hand.

    Attributes:
        kind: see the top of this module.
        made: where the constants were made whose float type a tensor has.
        held: whether a module keeps a tensor, or what it is a view of, from call to call.
    """

    kind: str
    made: tuple[SourceLocation, ...] = ()
    held: bool = False


TENSOR, MAYBE, TEXT = Abstract("tensor"), Abstract("maybe"), Abstract("text")
NUMBER, UNKNOWN = Abstract("number"), Abstract("unknown")


def kind(value: Any) -> str:
    return value.kind if isinstance(value, Abstract) else ""


def is_module(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Module)


def is_tensor(value: Any) -> bool:
    return kind(value) in ("tensor", "maybe")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or kind(value) == "number"


def tensor(*values: Any, held: bool = False) -> Abstract:
    """A tensor that is computed from values, with the float type of the constants among them."""
    made = dict.fromkeys(place for each in abstract_in(values) for place in each.made)
    return Abstract("tensor", tuple(made), held)


def abstract_in(value: Any) -> list[Abstract]:
    """The abstract values that a value is, or that it holds."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    itself = [value] if isinstance(value, Abstract) else []
    return itself + [each for _, item in zip(range(FOLLOWED), items, strict=False) for each in abstract_in(item)]


def holds_tensor(*values: Any) -> bool:
    return any(map(is_tensor, abstract_in(values)))


def at_hand(value: Any) -> Any:
    """An object that is at hand: tensors are tensors; short lists and dicts are copies, which may be changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return TENSOR
    if type(value) not in (list, tuple, dict) or len(value) > FOLLOWED:
        return value
    return {k: at_hand(v) for k, v in value.items()} if type(value) is dict else type(value)(map(at_hand, value))


def is_copy(value: Any) -> bool:
    """Whether a list or dict is one that reading made, and may change: what at_hand() leaves as it is is the user's."""
    return type(value) in (list, dict) and len(value) <= FOLLOWED


def evaluated(function: Callable[..., Any], *values: Any) -> Any:
    """What a function of Python makes of values that are at hand; unknown where they are not, or it fails."""
    try:
        return UNKNOWN if abstract_in(values) else at_hand(function(*values))
    except Exception:  # of objects of the user's
        return UNKNOWN


def truth(value: Any) -> bool | None:
    """Whether a condition holds; None where nothing at hand decides."""
    found = evaluated(bool, value)
    return found if isinstance(found, bool) else None


def key(value: Any) -> Any:
    """Equal for values of which the same is known; objects at hand by identity, as most cannot be compared."""
    if isinstance(value, dict):
        return key([[name, item] for name, item in value.items()])
    if isinstance(value, (list, tuple)):
        return type(value), *map(key, value)
    return type(value), value if isinstance(value, (Abstract, int, float, str, type(None))) else id(value)


def join(*values: Any) -> Any:
    """What holds for a value that is one of these."""
    found = {key(value): value for value in values}
    return functools.reduce(_either, found.values()) if found else UNKNOWN


def _either(a: Any, b: Any) -> Any:
    tensors = [value for value in (a, b) if is_tensor(value)]
    if tensors and all(is_tensor(value) or is_number(value) or value is None for value in (a, b)):
        both = max(value.kind == "maybe" for value in tensors)
        return dataclasses.replace(MAYBE if both else TENSOR, made=tensor(a, b).made, held=max(v.held for v in tensors))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {name: join(a[name], b[name]) for name in a}
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a)(map(join, a, b)) if len(a) == len(b) else [join(*a, *b)]
    return NUMBER if is_number(a) and is_number(b) else UNKNOWN


def elements(value: Any) -> list[Any]:
    """What iterating gives."""
    import torch

    if isinstance(value, (list, tuple, dict, range, torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
        return [at_hand(item) for _, item in zip(range(FOLLOWED), value, strict=False)]
    return [tensor(value) if is_tensor(value) else UNKNOWN]


def any_number(items: list[Any]) -> bool:
    """Whether a list stands for one of any length: its one item is not at hand."""
    return len(items) == 1 and bool(abstract_in(items))


def many(items: list[Any]) -> list[Any]:
    """A list of such items, of unknown length."""
    return [join(*items)] if items else []


def inside(value: Any) -> list[Any]:
    """What a list or dict holds; of anything else, what iterating gives."""
    return elements(list(value.values()) if isinstance(value, dict) else value)
