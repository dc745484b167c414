"""Any module as one that takes tensors by position and returns a tuple of tensors.

What detectors return is a tensor, a tuple or list, a dict, or a dataclass (a ModelOutput of `transformers`), and more
of it than is wanted. Each output is taken by its key, its field or its position, in the order in which it is declared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.typed import did_you_mean
from truehalf.errors import StageError, failing
from truehalf.models.as_made import aside

if TYPE_CHECKING:
    import torch


def calling(network: torch.nn.Module, takes: Sequence[str]) -> torch.nn.Module:
    """A module in eval mode around `network`, which it holds under that name (so scopes begin with `network`).

    Args:
        takes: of each output the key, field or position ("0") of it in what the network returns.
    """
    return _called_class()(network, tuple(takes)).eval()


def as_tensors(feed: Mapping[str, np.ndarray], names: Iterable[str]) -> tuple[torch.Tensor, ...]:
    """Copies of a feed's arrays, in this order: a module may change in place what it is given."""
    import torch

    return tuple(torch.from_numpy(np.array(feed[name], order="C")) for name in names)


def parameters_of(network: torch.nn.Module) -> list[str]:
    """The names that forward takes, in order; none of what is no function of Python's."""
    with contextlib.suppress(TypeError, ValueError):
        return list(inspect.signature(network.forward).parameters)
    return []


def returned_by(network: torch.nn.Module, feed: Mapping[str, np.ndarray], key: str, remedy: str) -> Any:
    """Run a module on the arrays of a feed, in their order; it is left as it was.

    Args:
        key: what errors begin with.

    Raises:
        StageError: module-fails, with what went in, and the remedy.
    """
    import torch

    shapes = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in feed.items())
    with failing("module-fails", f"{key}: the module fails on {shapes}", remedy), torch.no_grad():
        return aside(network)(*as_tensors(feed, feed))


def as_network(found: Any, what: str) -> torch.nn.Module:
    """A module in eval mode, on the CPU, in FP32.

    Args:
        what: what errors say it was returned by.

    Raises:
        StageError: when it is no module.
    """
    import torch

    if not isinstance(found, torch.nn.Module):
        raise StageError("wrong-return", f"{what} returned {_kind(found)}; expected a torch.nn.Module")
    return found.to("cpu", torch.float32).eval()


def tried(network: Callable[..., Any], size: Sequence[int], name: str, remedy: str = "") -> tuple[torch.Tensor, Any]:
    """One grey image of this height and width, and what a network returns for it.

    Raises:
        StageError: when it fails on it: what is left that can go wrong is the size.
    """
    import torch

    images = torch.zeros(1, 3, *size)
    what = f"model.image_size: {name} fails on images of {list(size)}"
    with failing("module-fails", what, remedy), torch.no_grad():
        return images, network(images)


@contextlib.contextmanager
def standing_in(module: Any, network: torch.nn.Module) -> Iterator[None]:
    """Within, a module of `calling` holds another network, in eval mode."""
    kept, module.network = module.network, network.eval()
    try:
        yield
    finally:
        module.network = kept


def network_of(module: torch.nn.Module) -> torch.nn.Module:
    """The network that a module of `calling` holds; any other module itself."""
    of_calling = type(module).__qualname__ == f"{_called_class.__name__}.<locals>.Called"
    return getattr(module, "network") if of_calling else module  # noqa: B009


def taken(returned: Any, takes: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """The outputs that are wanted of what a module returned.

    Raises:
        StageError: naming what there is, when one is not among it or is no tensor.
    """
    named = named_tensors(returned)
    if missing := [take for take in takes if take not in named]:
        there = ", ".join(f"{key} ({type(value).__name__})" for key, value in _parts(returned))
        raise StageError(
            "wrong-name",
            f"model.outputs: the model returns {there or _kind(returned)}; expected tensors {', '.join(missing)}; name "
            f"the key, field or position of each output in `take`"
            f"{''.join(did_you_mean(take, named) for take in missing)}",
        )
    return tuple(named[take] for take in takes)


def named_tensors(returned: Any) -> dict[str, torch.Tensor]:
    """The tensors of what a module returned, by key, field or position; None and what is no tensor are left out."""
    import torch

    return {str(key): value for key, value in _parts(returned) if isinstance(value, torch.Tensor)}


def no_tensors(returned: Any) -> str:
    """Say what a module returned beside tensors and None, which no file can hold; empty where there is nothing."""
    import torch

    beside = [
        f"{key} ({type(value).__name__})"
        for key, value in _parts(returned)
        if value is not None and not isinstance(value, torch.Tensor)
    ]
    kept = "return tensors, or None in their place"
    return f"left out, as they are no tensors: {', '.join(beside)}; {kept}" if beside else ""


def all_taken(returned: Any, dropped: Sequence[str] = ()) -> dict[str, str]:
    """Every tensor that a module returned, as outputs: by name, what to take for it.

    Keys and fields are names as they stand, and a position n is called output_n. Tensors inside of parts (auxiliary
    outputs in a list) have no name, and are left out.

    Args:
        dropped: names, keys or positions of what is left out.

    Raises:
        StageError: when one of `dropped` is not among what was returned, or when nothing is left.
    """
    import torch

    parts: dict[str, tuple[str, Any]] = {}  # by name
    positions: dict[str, str] = {}
    for position, (key, value) in enumerate(_parts(returned)):
        name = f"output_{key}" if isinstance(key, int) else str(key)
        parts[name] = str(key), value
        positions[str(position)] = name
    out = {positions.get(each, each) if each not in parts else each for each in dropped}
    if unknown := [each for each in dropped if each not in parts and each not in positions]:
        raise StageError(
            "no-match",
            f"model.drop_outputs: the model returns no {', '.join(unknown)}; it returns "
            f"{', '.join(parts) or 'no tensor'} (positions 0 to {len(parts) - 1})"
            f"{''.join(did_you_mean(each, parts) for each in unknown)}",
        )
    found = {name: take for name, (take, value) in parts.items() if name not in out and isinstance(value, torch.Tensor)}
    if not found:
        dropped_all = f", of which model.drop_outputs drops {', '.join(sorted(out))}" if out else ""
        listed = ", ".join(f"{name} ({type(value).__name__})" for name, (_, value) in parts.items())
        message = f"model.outputs: expected one tensor or more, got {listed or _kind(returned)}{dropped_all}"
        raise StageError("wrong-return", message)
    return found


def _parts(returned: Any) -> list[tuple[Any, Any]]:
    """What a module returned, by key, field or position."""
    import torch

    if isinstance(returned, torch.Tensor):
        return [(0, returned)]
    if isinstance(returned, Mapping):
        return [(str(key), value) for key, value in returned.items()]
    if dataclasses.is_dataclass(returned):
        return [(field.name, getattr(returned, field.name)) for field in dataclasses.fields(returned)]
    if hasattr(returned, "_fields"):  # a namedtuple
        return list(zip(returned._fields, returned, strict=True))
    if isinstance(returned, Sequence) and not isinstance(returned, str):
        return list(enumerate(returned))
    return []


def _kind(value: Any) -> str:
    """As a sentence calls it."""
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def _called_class() -> type[torch.nn.Module]:
    """The class, made on first use so that importing this module does not import torch."""
    import torch

    class Called(torch.nn.Module):
        def __init__(self, network: torch.nn.Module, takes: tuple[str, ...]) -> None:
            super().__init__()
            self.network, self._takes = network, takes

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return taken(self.network(*inputs), self._takes)

    return Called
