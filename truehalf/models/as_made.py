"""A module as it was made, and whether a run changed it: a file has no state between calls, and a module may have.

Looked at is what the parts of a module hold: attributes, buffers, and all that pickle finds in these. What the code
keeps elsewhere (globals, classes, closures, iterators) is not looked at.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

from truehalf.models.own_code import is_own_class

if TYPE_CHECKING:
    import torch


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

    def _read(self) -> dict[str, bytes]:
        return {
            f"{part}.{name}": self._content_of(value)
            for part, module in self._module.named_modules()
            for name, value in {**vars(module), **module._buffers}.items()
            if name not in ("_modules", "_buffers")
        }

    def _content_of(self, value: Any) -> bytes:
        """Pickle a value, a tensor or module by its identity; what cannot be pickled stands for itself."""
        import torch

        def identity(part: Any) -> tuple[int, int] | None:
            if not isinstance(part, (torch.Tensor, torch.nn.Module)):
                return None
            self._met.append(part)
            counts_writes = isinstance(part, torch.Tensor) and not part.is_inference()
            return id(part), part._version if counts_writes else 0

        file = io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.fast = True  # by content: two equal texts are alike, whether they are one object or two
        pickler.persistent_id = identity  # type: ignore[method-assign]
        try:
            pickler.dump(value)
        except Exception:  # a lambda, a lock, what refers to itself, whatever an object of the user's raises
            self._met.append(value)
            return str(id(value)).encode()
        return file.getvalue()
