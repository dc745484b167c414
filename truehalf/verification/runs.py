"""Runs of a file: what goes in; and one of a reference and of the file that is compared with it, of a chain with all
samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """What goes into one run of a file.

    Attributes:
        feed: arrays by input name.
        rows: how many samples axis 0 of all inputs counts; 0: the feed goes in as it stands.
        names: of the samples; or one name, of the feed.
        number, start: which feed of several it is of, and the first of its samples.
    """

    feed: Arrays
    rows: int
    names: Sequence[str] = ()
    number: int = 0
    start: int = 0


@dataclass(frozen=True)
class Run:
    """What went in, and what both files made of it.

    Attributes:
        names: of the samples; or one name, of the feed.
        rows: how many samples axis 0 counts; 0 where it counts none.
        reference, candidate: outputs by name; of the candidate those that could be put together.
        inputs: a digest of each sample's inputs, or, where their axes 0 differ, of all inputs.
        size: height and width of the image that went in, in pixels; None where there is none, or the I/O spec says it.
        feed, start: which feed of several it was, and the first of its samples.
    """

    names: Sequence[str]
    rows: int
    reference: Arrays
    candidate: Arrays
    inputs: Sequence[str] = ()
    size: tuple[int, int] | None = None
    feed: int = 0
    start: int = 0


def as_type(array: np.ndarray, dtype: Any) -> np.ndarray:
    """float32 as float16 where a file wants that, and back; all else as it is."""
    if dtype is None or array.dtype == dtype or {array.dtype.name, np.dtype(dtype).name} != {"float32", "float16"}:
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def as_read(value: Any) -> np.ndarray:
    """An output as it is compared: floats of any width as float32."""
    array = np.asarray(value)
    return array if array.dtype.kind in "iubOSU" else array.astype(np.float32)
