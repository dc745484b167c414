"""A module as it was made, and whether a run changed it: a file has no state between calls, and a module may have."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_DEPTH = 4  # of lists and dicts in an attribute
_OF_TORCH = {"_parameters", "_modules", "training"}


def copied(module: torch.nn.Module) -> torch.nn.Module | None:
    """A module with the same parameters, and with buffers and attributes of its own; None of one that cannot be
    copied.
    """
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except Exception:  # whatever a part of the module raises
        return None


def state(module: torch.nn.Module) -> dict[str, Any]:
    """What a run of forward may change: attributes and buffers of all parts, distinguished by identity and by the
    number of writes. Equal before and after a run that changed nothing.
    """
    found = {}
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if key not in _OF_TORCH:
                found[f"{name}.{key}"] = _mark(value, _DEPTH)
    for name, parameter in module.named_parameters():
        found[name] = _mark(parameter, 0)
    return found


def _mark(value: Any, depth: int) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if depth and isinstance(value, Mapping):
        return tuple((str(key), _mark(item, depth - 1)) for key, item in value.items())
    if depth and isinstance(value, (list, tuple)):
        return tuple(_mark(item, depth - 1) for item in value)
    return id(value), len(value) if isinstance(value, (set, deque)) else None
