"""State of objects, and the objects that they reference: contents that are read, compared and put back.

What an installed package keeps for itself is not looked at: its classes, and modules of its code, lead nowhere.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import pickle
import random
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from truehalf.source_files import is_own, is_own_class, shown_file

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_DEPTH = 4  # of lists and dicts that are compared by value
_BYTES, _SUMMED = 100_000, 10**9  # of the largest tensor or array that is kept as it was, and that is summed up
# Classes of Python's library whose objects hold what they are given. Others change as they work (loggers, locks).
_HOLDERS = {"_thread", "os", "argparse", "collections", "queue", "types", "weakref"}
_LEADS_TO = {  # attributes of wrappers: the functions and arguments in them
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    property: ("fget", "fset"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    type(functools.lru_cache(lambda: None)): ("__wrapped__",),
    np.random.Generator: ("bit_generator",),
    np.random.RandomState: ("_bit_generator",),
}


def joined(name: str, key: Any) -> str:
    if not isinstance(key, str):
        return name
    return name + key if name.endswith(": ") else f"{name}.{key}"


def led_to(owner: Any, name: str, in_user_code: bool) -> Iterator[tuple[Any, str, bool]]:
    """The objects that an object leads to: each with its name, and whether it is of the user's code."""
    import torch

    for cls, attributes in _LEADS_TO.items():
        if isinstance(owner, cls):
            yield from ((getattr(owner, each, None), name, in_user_code) for each in attributes)
    if isinstance(owner, dict):
        kept = [(key, value) for key, value in dict.items(owner) if not _is_special(key) or key == "__wrapped__"]
        yield from ((value, joined(name, key), in_user_code) for key, value in kept)
    elif isinstance(owner, (list, tuple, set, frozenset, deque)):
        yield from ((value, name, in_user_code) for value in owner)
    elif isinstance(owner, types.FunctionType):
        file = owner.__code__.co_filename
        at, in_user_code = f"{shown_file(file)}: ", is_own(file)
        cells = zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True)
        yield from ((cell, f"{at}{owner.__qualname__}.{each}", in_user_code) for each, cell in cells)
        yield from ((each, at + owner.__qualname__, in_user_code) for each in (owner.__dict__, owner.__defaults__))
        yield owner.__kwdefaults__, at + owner.__qualname__, in_user_code
        yield owner.__globals__ if in_user_code else None, at, in_user_code
    elif isinstance(owner, types.CellType):
        yield from ((value, name, in_user_code) for value in content_of(owner))
    elif isinstance(owner, types.ModuleType):
        file = getattr(owner, "__file__", None) or ""
        yield vars(owner) if file and is_own(file) else None, f"{shown_file(file)}: ", True
    elif isinstance(owner, types.GeneratorType):
        frame = owner.gi_frame
        yield from ((each, name, in_user_code) for each in (owner.gi_yieldfrom, frame and dict(frame.f_locals)))
    elif isinstance(owner, type):
        if is_own_class(owner):
            yield from (
                (value, joined(f"{owner.__module__}.{owner.__qualname__}", key), True)
                for key, value in vars(owner).items()
            )
            yield from (_of_class(base) for base in owner.__bases__)
    elif isinstance(owner, torch.nn.Module) or is_own_class(type(owner)) or type(owner).__module__ in _HOLDERS:
        in_user_code = is_own_class(type(owner)) or (in_user_code and not isinstance(owner, torch.nn.Module))
        yield getattr(owner, "__dict__", None), name, in_user_code
        yield _of_class(type(owner))
        yield from ((value, joined(name, key), in_user_code) for key, value in _slots(owner).items())


def _of_class(cls: type) -> tuple[type, str, bool]:
    return cls, f"{cls.__module__}.{cls.__qualname__}", is_own_class(cls)


def _is_special(key: Any) -> bool:
    """What Python itself keeps in a namespace (__warningregistry__)."""
    return isinstance(key, str) and key.startswith("__") and key.endswith("__")


def _slots(owner: Any) -> dict[str, Any]:
    slots = [vars(cls).get("__slots__", ()) for cls in type(owner).__mro__ if is_own_class(cls)]
    kept = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    return {
        name: getattr(owner, name) for name in kept if name not in ("__dict__", "__weakref__") and hasattr(owner, name)
    }


# --- the content of one object ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """How the content of objects is read, as values that stay as they are; and how it is put back, where it can be."""

    classes: tuple[type, ...]
    read: Callable[[Any], Any]
    put: Callable[[Any, Any], Any] | None = None


def content_of(owner: Any) -> Any:
    """What an object holds now; None of one that holds nothing of itself."""
    kind = _kind_of(owner)
    with contextlib.suppress(Exception):  # of objects of the user's
        return None if kind is None else kind.read(owner)
    return None


def put(owner: Any, content: Any) -> None:
    """Make the content of an object what it was, where it is another."""
    kind = _kind_of(owner)
    with contextlib.suppress(Exception):  # of objects of the user's; of what is read only
        if kind is not None and kind.put is not None and not is_alike(content, content_of(owner)):
            kind.put(owner, content)


def can_put(owner: Any) -> bool:
    kind = _kind_of(owner)
    return kind is not None and kind.put is not None and getattr(owner, "nbytes", 0) <= _BYTES


def _kind_of(owner: Any) -> _Kind | None:
    return next((kind for kind in _kinds() if isinstance(owner, kind.classes)), None)


@functools.cache
def _kinds() -> tuple[_Kind, ...]:
    import torch

    return (
        _Kind((dict,), _names_in, lambda owner, was: _put_names(was, owner, owner.__setitem__, owner.__delitem__)),
        _Kind((list, bytearray), list, lambda owner, was: owner.__setitem__(slice(None), was)),
        _Kind((deque,), list, lambda owner, was: (owner.clear(), owner.extend(was))),
        _Kind((set,), set, lambda owner, was: (owner.clear(), owner.update(was))),
        _Kind((type,), lambda owner: _names_in(vars(owner)) if is_own_class(owner) else None, _put_in_class),
        _Kind((types.CellType,), _in_cell, lambda owner, was: setattr(owner, "cell_contents", was[0])),
        _Kind((torch.Tensor,), lambda owner: (owner.is_inference() or owner._version, _bytes_of(owner)), _put_numbers),
        _Kind((np.ndarray,), lambda owner: (0, _bytes_of(owner)), _put_numbers),
        _Kind((contextvars.ContextVar,), lambda owner: [owner.get()], lambda owner, was: owner.set(was[0])),
        _Kind((random.SystemRandom,), lambda owner: None),
        _Kind(
            (random.Random,),
            lambda owner: pickle.dumps(owner.getstate()),
            lambda owner, was: owner.setstate(pickle.loads(was)),
        ),
        _Kind(
            (np.random.BitGenerator,),
            lambda owner: pickle.dumps(owner.state),
            lambda owner, was: setattr(owner, "state", pickle.loads(was)),
        ),
        _Kind(
            (np.random.RandomState,),
            lambda owner: pickle.dumps(owner.get_state()),
            lambda owner, was: owner.set_state(pickle.loads(was)),
        ),
        _Kind(
            (torch.Generator,),
            lambda owner: _bytes_of(owner.get_state()),
            lambda owner, was: owner.set_state(torch.frombuffer(bytearray(was), dtype=torch.uint8)),
        ),
        _Kind((types.GeneratorType,), _position_of),
        _Kind((Iterator,), lambda owner: repr(owner.__reduce__())),
        _Kind((object,), lambda owner: _slots(owner) or None, lambda owner, was: _put_slots(owner, was)),
    )


def _names_in(space: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in space.items() if not _is_special(key)}


def _put_names(was: Mapping[Any, Any], now: Mapping[Any, Any], write: Any, delete: Any) -> None:
    for key in [key for key in _names_in(now) if key not in was]:
        delete(key)
    for key, value in was.items():
        if key not in now or now[key] is not value:
            write(key, value)


def _put_in_class(owner: type, was: Mapping[str, Any]) -> None:
    _put_names(was, vars(owner), functools.partial(setattr, owner), functools.partial(delattr, owner))


def _put_slots(owner: Any, was: Mapping[str, Any]) -> None:
    for name, value in was.items():
        object.__setattr__(owner, name, value)


def _in_cell(cell: Any) -> list[Any]:
    with contextlib.suppress(ValueError):  # an empty one
        return [cell.cell_contents]
    return []


def _position_of(generator: types.GeneratorType[Any, Any, Any]) -> Any:
    frame = generator.gi_frame
    return None if frame is None else (frame.f_lasti, dict(frame.f_locals))


def _bytes_of(numbers: Any) -> bytes | int | None:
    """Of a tensor or an array; of a large one a sum, by which it cannot be put back; None of a larger one."""
    import torch

    if numbers.nbytes > _SUMMED:
        return None
    if isinstance(numbers, np.ndarray):
        numbers = torch.from_numpy(np.frombuffer(numbers.tobytes(), np.uint8).copy())
    numbers = numbers.detach().cpu().contiguous().flatten().view(torch.uint8)
    if len(numbers) <= _BYTES:
        return bytes(numbers.numpy().tobytes())
    return int(numbers[: len(numbers) // 8 * 8].view(torch.int64).sum())


def _put_numbers(owner: Any, was: tuple[int, bytes]) -> None:
    import torch

    if isinstance(owner, torch.Tensor):
        with torch.no_grad():
            owner.copy_(torch.frombuffer(bytearray(was[1]), dtype=owner.dtype).reshape(owner.shape))
    else:
        owner[...] = np.frombuffer(was[1], owner.dtype).reshape(owner.shape)


def is_alike(one: Any, other: Any, depth: int = _DEPTH) -> bool:
    """Whether two contents are the same: numbers and texts, and lists and dicts of them, by value, all else by
    identity.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (*PLAIN, set)):
        return bool(one == other or one != one)  # not a number
    if not depth or not isinstance(one, (list, tuple, dict)) or len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(key in other and is_alike(value, other[key], depth - 1) for key, value in one.items())
    return all(is_alike(a, b, depth - 1) for a, b in zip(one, other, strict=True))
