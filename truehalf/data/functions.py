"""Samples of a user's function: `data.function: module:function`, called as function(purpose, number, seed).

    purpose   "trace", "calibration" or "verification"
    number    from 0, below the number of samples of that purpose
    seed      data.seed

It returns arrays by input name, without the batch axis; or an image, uint8 [height, width, 3] in RGB, or a
tuple with boxes (float [n, 4], xyxy in pixels of the image) and labels (int [n], positions among the model's
classes). The same arguments must give the same sample: stages make each anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.drawn import Arrays, Drawn, LabelledImage
from truehalf.errors import StageError
from truehalf.user_code import described, imported


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> Drawn:
    """Samples of a purpose, numbered from 0: the function keeps the purposes apart.

    Raises:
        StageError: when there is no such module or function.
    """
    assert config.data.function is not None, "validated: data.source=function has one"
    function = imported("data.function", config.data.function, root)
    names = [f"{config.data.function}/{purpose}/{number}" for number in range(count)]

    def item(position: int) -> LabelledImage | Arrays:
        name = names[position]
        try:
            made = function(purpose, position, config.data.seed)
        except Exception as error:  # whatever the user's code raises
            raise StageError("function-fails", f"data.function: sample {name}: {described(error)}") from error
        return _read(name, made)

    return Drawn(names, item)


def _read(name: str, made: Any) -> LabelledImage | Arrays:
    if isinstance(made, Mapping):
        return Arrays(name, {str(key): np.asarray(array) for key, array in made.items()})
    image, boxes, labels = made if isinstance(made, tuple) and len(made) == 3 else (made, None, None)
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise StageError(
            "wrong-return",
            f"data.function: sample {name}: expected arrays by input name, or an image as uint8 [height, width, 3], "
            "or (image, boxes, labels), "
            f"got {type(made).__name__} {pixels.dtype} {list(pixels.shape)}",
        )
    if boxes is None and labels is None:
        return LabelledImage.of_array(name, pixels)
    return LabelledImage.of_array(name, pixels, *_labelled(name, boxes, labels))


def _labelled(name: str, boxes: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    if boxes is None or labels is None:
        message = f"data.function: sample {name}: expected boxes and labels, or neither, got one of them"
        raise StageError("needs-value", message)
    corners, numbers = np.asarray(boxes), np.asarray(labels)
    if not corners.size and not numbers.size:
        return np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or corners.shape != (len(numbers), 4):
        raise StageError(
            "wrong-return",
            f"data.function: sample {name}: expected boxes [n, 4] and integer labels [n], got boxes "
            f"{corners.dtype} {list(corners.shape)} and labels {numbers.dtype} {list(numbers.shape)}",
        )
    if not np.isfinite(corners).all() or (corners[:, 2:] <= corners[:, :2]).any():
        message = f"data.function: sample {name}: expected boxes as x0, y0, x1, y1 with x0 < x1 and y0 < y1"
        raise StageError("wrong-return", message)
    return corners.astype(np.float32), numbers.astype(np.int64)
