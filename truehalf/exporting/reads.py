"""Reads of tensors by Python while a module is traced: truth values, numbers, lengths.

A trace keeps operations. A number that Python has read is no operation any more: what follows from it (the branch of
an `if`, a constant, how often a loop runs) is in the file as it came out on the traced input. Tracing makes tensors of
sizes, too, so that reads of sizes are seen beside those of values. Each tensor is followed from what it was computed
from:

    data      the values of the inputs (also of tensors whose producer is unknown)
    sizes     sizes of tensors; a size that is computed from data (of what nonzero() returns) counts as data
    neither   parameters, buffers, constants: what is read of these is the same on every input

torch.tensor(values) makes a constant of them, too, but what follows is computed by operations, so that comparing
outputs shows it; what it makes counts as computed from the values.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from truehalf.models.own_code import is_own

if TYPE_CHECKING:
    import torch

_READS = {
    *("__bool__", "is_nonzero", "equal", "allclose", "__contains__"),
    *("__int__", "__float__", "__complex__", "__index__", "item", "tolist", "numpy", "__array__"),
    # the values without an operation
    *("data_ptr", "storage", "untyped_storage", "_typed_storage", "__reduce_ex__", "__dlpack__", "__repr__"),
}
_SHAPED_ALIKE = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_ones", "new_empty", "new_full",
}  # fmt: skip
_COUNTED = {"unbind"}  # as often as the axis is long; `for row in tensor` calls it
_SIZES = {"shape", "size", "numel", "nelement", "__len__"}
# As many rows as the values say.
_SIZED_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "_unique2", "bincount"}
_ORIGIN = "_truehalf_origin"
_EXPORT = "truehalf.exporting.export"  # what calls it is no code of the module
Place = tuple[str, int]  # file and line


@dataclass(frozen=True)
class Read:
    """One value that Python has read.

    Attributes:
        place: the line that read it; the innermost one that is neither torch's tensor class nor Python's library.
        callers: lines of the user's code on the way there, outwards.
        data: true if it was computed from the values of the inputs.
        sizes: all sizes that it was computed from.
    """

    place: Place
    callers: tuple[Place, ...]
    data: bool
    sizes: frozenset[int]


class _Origin(NamedTuple):
    data: bool = False
    sizes: frozenset[int] = frozenset()
    loose: bool = False  # has a data-dependent shape
    varying: frozenset[int] | None = None  # of an input: its axes that vary, where they are known


_UNKNOWN = _Origin(data=True, loose=True)


@contextlib.contextmanager
def reading(module: torch.nn.Module, varying: Sequence[frozenset[int]] = ()) -> Iterator[list[Read]]:
    """Within, list what is read, in order, while `module` is traced.

    Args:
        varying: by input, the axes that vary: a size of such an axis counts as data, one of another axis as nothing.
    """
    mode = _mode_class()(module)

    def mark(_: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        for each, axes in zip_longest(tensors_in(inputs), varying):
            setattr(each, _ORIGIN, _Origin(data=True, varying=axes))

        mode.is_inside = True

    def leave(*_: Any) -> None:
        mode.is_inside = False

    hooks = [module.register_forward_pre_hook(mark), module.register_forward_hook(leave)]
    try:
        with mode:
            yield mode.found
    finally:
        for hook in hooks:
            hook.remove()


def reads(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[Read]:
    """List what is read when a module in eval mode is traced on these inputs, in order.

    Raises:
        Exception: whatever the module raises, or torch.jit.trace, which does not take every module.
    """
    import torch

    with torch.no_grad(), warnings.catch_warnings(action="ignore"), reading(module) as found:
        torch.jit.trace(module, tuple(inputs), check_trace=False, strict=False)  # type: ignore[no-untyped-call]
    return found


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: itself, or what lists, tuples, slices and dicts hold."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, slice):
        yield from tensors_in([value.start, value.stop, value.step])


def _reader() -> tuple[Place, tuple[Place, ...]]:
    """The line that reads, and the user's lines that have led to it."""
    frame: Any = sys._getframe(2)
    transparent = ("torch._tensor", "torch.overrides", __name__)
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in transparent and (name == "__main__" or name.partition(".")[0] not in sys.stdlib_module_names):
            break
        frame = frame.f_back
    place, callers = (frame.f_code.co_filename, frame.f_lineno), []
    while (frame := frame.f_back) is not None and frame.f_globals.get("__name__") != _EXPORT:
        if is_own(frame.f_code.co_filename):
            callers.append((frame.f_code.co_filename, frame.f_lineno))
    return place, tuple(callers)


def _mode_class() -> Any:
    """The class, made on first use so that importing this module does not import torch."""
    from torch.overrides import TorchFunctionMode

    class Reading(TorchFunctionMode):
        def __init__(self, module: torch.nn.Module) -> None:
            super().__init__()
            self.found: list[Read] = []
            self.is_inside = False  # else an exporter reads, outside of the module
            held = [*module.parameters(), *module.buffers(), *(vars(part) for part in module.modules())]
            self._held = {id(tensor) for tensor in tensors_in(held)}

        def __torch_function__(
            self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if not self.is_inside:
                return function(*args, **kwargs)
            name = str(getattr(function, "__name__", function))
            if name == "__get__":  # a property: its name is that of the descriptor
                name = str(getattr(getattr(function, "__self__", None), "__name__", name))
            given = list(tensors_in([list(args), kwargs]))
            origins = [self._origin(tensor) for tensor in given]
            result = function(*args, **kwargs)
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            self._note(name, args, given, origins, result, axis)
            return result

        def _origin(self, tensor: torch.Tensor) -> _Origin:
            known: _Origin | None = getattr(tensor, _ORIGIN, None)
            if known is None:
                return _Origin() if id(tensor) in self._held else _UNKNOWN
            return known

        def _note(
            self, name: str, args: Any, given: list[torch.Tensor], origins: list[_Origin], result: Any, axis: Any
        ) -> None:
            origin = _joined(name, args, given, origins)
            if name in _SIZES and origins:
                sizes = list(tensors_in(result))
                of_all = name in ("numel", "nelement") or not isinstance(axis, int)
                first = 0 if of_all else axis % given[0].ndim
                for number, size in enumerate(sizes, first):
                    axes = range(given[0].ndim) if of_all and len(sizes) == 1 else [number]
                    setattr(size, _ORIGIN, _of_size(origins[0], axes, int(size.detach().numpy())))
                return
            if name in _READS:
                self._read(origin)
            elif name in _COUNTED and origins:
                self._read(_of_size(origins[0], [axis if isinstance(axis, int) else 0], len(result)))
            for made in tensors_in(result):
                setattr(made, _ORIGIN, origin)
            in_place = name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and name[-2] != "_")
            if in_place and given:
                setattr(given[0], _ORIGIN, origin)

        def _read(self, origin: _Origin) -> None:
            self.found.append(Read(*_reader(), origin.data, origin.sizes))

    return Reading


def _of_size(origin: _Origin, axes: Sequence[int], size: int) -> _Origin:
    """Of a size of a tensor, on these axes."""
    if origin.varying is not None:
        return _Origin(data=any(axis in origin.varying for axis in axes))
    return _Origin(data=origin.loose, sizes=frozenset({size}))


def _joined(name: str, args: Any, given: list[torch.Tensor], origins: list[_Origin]) -> _Origin:
    """Of what an operation returns."""
    loose = any(origin.loose for origin in origins)
    data = any(origin.data for origin in origins)
    if name in _SHAPED_ALIKE:
        return _Origin(loose=loose)
    loose |= data and (name in _SIZED_BY_VALUES or _sized(name, args, given, origins))
    sizes = frozenset[int]() if data else frozenset[int]().union(*(origin.sizes for origin in origins))
    return _Origin(data, sizes, loose)


def _sized(name: str, args: Any, given: list[torch.Tensor], origins: list[_Origin]) -> bool:
    """Whether the shape of a result may follow from values: x[mask], where(mask), x[:n], arange(n), x.reshape(n, 2)."""
    import torch

    if name == "where":
        return len(args) == 1
    masked = name == "__getitem__" and any(each.dtype in (torch.bool, torch.uint8) for each in given[1:])
    numbers = [not each.is_floating_point() and each.ndim == 0 for each in given]
    return masked or any(origin.data and number for origin, number in zip(origins, numbers, strict=True))
