"""Any module as one that takes tensors by position and returns a tuple of tensors.

What detectors return is a tensor, a tuple or list, a dict, or a dataclass (a ModelOutput of `transformers`), and more
of it than is wanted. Each output is taken by its key, its field or its position, in the order in which it is declared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.io import StageError

if TYPE_CHECKING:
    import torch


def calling(
    network: torch.nn.Module, takes: Sequence[str], keywords: Sequence[str] | None = None, **fixed: Any
) -> torch.nn.Module:
    """A module in eval mode around `network`, which it holds under that name (so scopes begin with `network`).

    Args:
        takes: of each output the key, field or position ("0") of it in what the network returns.
        keywords: names of the network's parameters, in the order of the inputs; None: by position.
        fixed: further keywords of each call.
    """
    return _called_class()(network, tuple(takes), tuple(keywords) if keywords else None, fixed).eval()


def taken(returned: Any, takes: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """The outputs that are wanted of what a module returned.

    Raises:
        StageError: naming what there is, when one is not among it or is no tensor.
    """
    named = named_tensors(returned)
    missing = [take for take in takes if take not in named]
    if missing:
        raise StageError(
            f"model.outputs: the model returns {', '.join(named) or 'no tensor'}; expected {', '.join(missing)}, too; "
            "name the key, field or position of each output in `take`"
        )
    return tuple(named[take] for take in takes)


def named_tensors(returned: Any) -> dict[str, torch.Tensor]:
    """The tensors of what a module returned, by key, field or position; None and what is no tensor are left out."""
    import torch

    if isinstance(returned, torch.Tensor):
        return {"0": returned}
    if isinstance(returned, Mapping):
        pairs: Sequence[tuple[Any, Any]] = list(returned.items())
    elif dataclasses.is_dataclass(returned):
        pairs = [(field.name, getattr(returned, field.name)) for field in dataclasses.fields(returned)]
    elif hasattr(returned, "_fields"):  # a namedtuple
        pairs = list(zip(returned._fields, returned, strict=True))
    elif isinstance(returned, Sequence):
        pairs = list(enumerate(returned))
    else:
        pairs = []
    return {str(key): value for key, value in pairs if isinstance(value, torch.Tensor)}


def _called_class() -> type[torch.nn.Module]:
    """The class, made on first use so that importing this module does not import torch."""
    import torch

    class Called(torch.nn.Module):
        def __init__(
            self, network: torch.nn.Module, takes: tuple[str, ...], keywords: tuple[str, ...] | None, fixed: Any
        ) -> None:
            super().__init__()
            self.network, self._takes, self._keywords, self._fixed = network, takes, keywords, fixed

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if self._keywords is None:
                return taken(self.network(*inputs, **self._fixed), self._takes)
            named = dict(zip(self._keywords, inputs, strict=True))
            return taken(self.network(**named, **self._fixed), self._takes)

    return Called
