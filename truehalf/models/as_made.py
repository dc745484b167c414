"""A module as it was made, and whether a run changed it: a file has no state between calls, and a module may have.

Looked at is all that the parts of a module hold, and what the user's source files hold beside it: their globals,
classes (attributes), functions (closures, default arguments, attributes), and the lists, dicts, arrays, iterators and
generators of random numbers in these. What an installed package keeps for itself is not looked at.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truehalf.models.kept import PLAIN, can_put, content_of, is_alike, joined, led_to, put

if TYPE_CHECKING:
    import torch

_OBJECTS = 100_000  # looked at, those near the module first


def copied(module: torch.nn.Module) -> torch.nn.Module | None:
    """A module with the same parameters, and with separate buffers and attributes; None of one that cannot be
    copied.
    """
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except Exception:  # whatever a part of the module raises
        return None


@contextlib.contextmanager
def aside(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """A copy to run, of which nothing is left; the module itself where it cannot be copied."""
    with State(module).put_back():
        yield copied(module) or module


@dataclass(frozen=True)
class Change:
    """What is another than it was.

    Attributes:
        name: part and attribute; of what is outside the module file and name.
        in_user_code: whether it is of the user's code.
        stays: whether it cannot be put back (an iterator, a large tensor).
    """

    name: str
    in_user_code: bool
    stays: bool


@dataclass(frozen=True)
class _Item:
    owner: Any
    name: str
    in_user_code: bool
    content: Any


class State:
    """What a module and the code around it keep, at one moment."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._items: list[_Item] = []
        found = deque(
            [*((part, name, False) for name, part in module.named_modules()), (os.environ, "os.environ", True)]
        )
        met: dict[int, Any] = {}  # holds what it names, so that an id stays that of one object
        while found and len(met) < _OBJECTS:
            owner, name, in_user_code = found.popleft()
            if id(owner) in met or isinstance(owner, PLAIN):
                continue
            met[id(owner)] = owner
            if (content := content_of(owner)) is not None:
                self._items.append(_Item(owner, name, in_user_code, content))
            with contextlib.suppress(Exception):  # of objects of the user's
                found.extend(led_to(owner, name, in_user_code))

    def changes(self) -> list[Change]:
        """What has changed since; equal values are no change, but a tensor that was written to is one."""
        found = {}
        for item in self._items:
            now = content_of(item.owner)
            if not is_alike(item.content, now):
                for name in _changed_names(item, now):
                    found[name] = Change(name, item.in_user_code, not can_put(item.owner))
        return list(found.values())

    @contextlib.contextmanager
    def put_back(self) -> Iterator[None]:
        """Within, all is as it was at that moment, but for what cannot be put back; afterwards as it is now."""
        now = [(item.owner, content_of(item.owner)) for item in self._items]
        try:
            for item in self._items:
                put(item.owner, item.content)
            yield
        finally:
            for owner, content in now:
                put(owner, content)


def _changed_names(item: _Item, now: Any) -> list[str]:
    if not isinstance(now, dict):
        return [item.name.strip(".: ")]
    keys = [key for key in {**item.content, **now} if not is_alike(item.content.get(key, now), now.get(key, now))]
    return [joined(item.name, key).strip(".: ") for key in keys]
