"""A module as it was made, and whether a run changed it: a file has no state between calls, and a module may have.

Looked at is what the parts of a module hold: attributes, buffers, and what lists, dicts and plain objects among these
hold. What the code keeps elsewhere (globals, classes, closures, iterators) is not looked at.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.models.own_code import is_own_class

if TYPE_CHECKING:
    import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_PICKLED = (np.ndarray, random.Random, np.random.Generator, np.random.RandomState)
_DEPTH = 4  # of lists, dicts and objects in each other


def copied(module: torch.nn.Module) -> torch.nn.Module | None:
    """A module with the same parameters, and with separate buffers and attributes; None of one that cannot be
    copied.
    """
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except Exception:  # whatever a part of the module raises
        return None


def aside(module: torch.nn.Module) -> torch.nn.Module:
    """A copy to run, so that the module stays as it was made; the module itself where it cannot be copied."""
    return copied(module) or module


class State:
    """What the parts of a module hold, at one moment."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._met: list[Any] = []  # holds what it names, so that an id stays that of one object
        self._content = self._read()

    def changes(self) -> dict[str, bool]:
        """Part and attribute of what has changed since, and whether it is of the user's code. Equal numbers and texts
        are no change, but a tensor that was written to is one.
        """
        before, now = self._content, self._read()
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        parts = dict(self._module.named_modules())
        return {name: is_own_class(type(parts[name.rpartition(".")[0]])) for name in names}

    def _read(self) -> dict[str, Any]:
        return {
            f"{part}.{name}": self._content_of(value, _DEPTH)
            for part, module in self._module.named_modules()
            for name, value in {**vars(module), **module._buffers}.items()
            if name not in ("_modules", "_buffers")
        }

    def _content_of(self, value: Any, depth: int) -> Any:
        """Of a value, what compares equal as long as it is the same."""
        import torch

        if isinstance(value, _PLAIN):
            return repr(value)
        self._met.append(value)
        if isinstance(value, torch.Tensor):
            return id(value), None if value.is_inference() else value._version
        if isinstance(value, (*_PICKLED, torch.Generator)):
            return pickle.dumps(value)
        if depth and isinstance(value, dict):
            return {key: self._content_of(item, depth - 1) for key, item in value.items()}
        if depth and isinstance(value, (list, tuple, set, deque)):
            return [self._content_of(item, depth - 1) for item in value]
        if depth and is_own_class(type(value)):
            return self._content_of(getattr(value, "__dict__", None), depth - 1)
        return id(value)
