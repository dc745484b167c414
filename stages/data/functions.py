"""Samples of the user's own making: `data.function: module:function`, called as function(purpose, number, seed).

It returns arrays by input name, without the batch axis; or a picture, uint8 [height, width, 3] in RGB, alone or with
boxes (float [n, 4], xyxy in pixels) and labels (int [n]).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conf.schema import Config
from stages.data.picture import Arrays, Picture
from stages.io import StageError


class MadeSamples(Sequence[Picture | Arrays]):
    """What the function returns, when asked for."""

    def __init__(self, name: str, function: Callable[..., Any], purpose: str, count: int, seed: int) -> None:
        self._name, self._function = name, function
        self._purpose, self._count, self._seed = purpose, count, seed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        number = range(self._count)[index]
        name = f"{self._name}/{self._purpose}/{number}"
        try:
            made = self._function(self._purpose, number, self._seed)
        except Exception as error:  # whatever the user's code raises
            raise StageError(f"data.function: {name}: {type(error).__name__}: {error}") from error
        return _read(name, made)


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> MadeSamples:
    """Samples of a purpose, numbered from 0: the function keeps the purposes apart.

    Raises:
        StageError: when there is no such module or function.
    """
    assert config.data.function is not None, "validated: data.source=function has one"
    return MadeSamples(config.data.function, function_of(config.data.function, root), purpose, count, config.data.seed)


def function_of(name: str, root: Path) -> Callable[..., Any]:
    """The function that module:function names, imported from the workspace or from what is installed.

    Raises:
        StageError: when there is none.
    """
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(root))
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise StageError(f"data.function: {name!r}: module {module!r} cannot be imported: {error}") from error
    finally:
        sys.path.remove(str(root))
    if not callable(found):
        raise StageError(f"data.function: {name!r}: module {module!r} has no function {attribute!r}")
    function: Callable[..., Any] = found
    return function


def _read(name: str, made: Any) -> Picture | Arrays:
    if isinstance(made, Mapping):
        return Arrays(name, {str(key): np.asarray(array) for key, array in made.items()})
    image, boxes, labels = made if isinstance(made, tuple) and len(made) == 3 else (made, None, None)
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise StageError(
            f"data.function: {name}: expected arrays by input name, or a picture as uint8 [height, width, 3], alone or "
            f"as (picture, boxes, labels), got {type(made).__name__} {pixels.dtype} {list(pixels.shape)}"
        )
    if boxes is None:
        return Picture.of_array(name, pixels)
    return Picture.of_array(name, pixels, np.asarray(boxes, np.float32), np.asarray(labels, np.int64))
