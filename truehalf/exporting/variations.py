"""Inputs that differ from those which were traced on, made of real samples within what the preprocessing can give.

images              0 to 1, or 0 to 255, of a pixel, then mean and std as the I/O spec declares them
other floats        from the least to the largest value that the samples have for this input
integers, booleans  values that the samples have for this input; of images in uint8 as images
size of an image    as it is

Where the number of samples varies, others are tried, too. Beyond these ranges nothing is tried: an input that cannot
occur proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from truehalf.data.preprocessing import declared_by
from truehalf.io_spec.in_file import named_axes
from truehalf.io_spec.spec import InputSpec, IoSpec

Arrays = Mapping[str, np.ndarray]
_SEED = 20_260_000
_DISTURBED = 1e-5

_OF_FLOATS = ("dim", "bright")  # of booleans all false, or all true: attention over nothing is NaN in torch or the file

_Changes = Mapping[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]]

# A share of the range at each value, 0 to 1, and a generator -> another share.
CHANGES: _Changes = {
    "dim": lambda share, rng: share * 0.25,
    "bright": lambda share, rng: 1 - (1 - share) * 0.2,
    "inverted": lambda share, rng: 1 - share,
    "noise": lambda share, rng: rng.uniform(-0.05, 1.05, share.shape),  # reaches both ends of the range
}
# Flat images, run only where the user's code reads values: on them all queries of a detector tie.
FLAT: _Changes = {
    "all least": lambda share, rng: np.zeros_like(share),
    "all largest": lambda share, rng: np.ones_like(share),
}


def variations(
    spec: IoSpec, base: Arrays, seen: Sequence[Arrays], changes: _Changes
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Make feeds of the shapes and dtypes of `base`, all inputs changed at once: (name of the change, feed).

    Args:
        spec: I/O spec, of which the inputs are read.
        base: a real feed.
        seen: real feeds, for the ranges of inputs that are no images.
        changes: CHANGES, FLAT or both.
    """
    entries = {entry.name: entry for entry in spec.inputs}
    for number, (label, change) in enumerate(changes.items()):
        rng = np.random.default_rng([_SEED, number])
        feed = {
            name: array
            if array.dtype == bool and label in _OF_FLOATS
            else _changed(array, entries[name], [each[name] for each in seen], lambda share: change(share, rng))  # noqa: B023
            for name, array in base.items()
        }
        if any(not np.array_equal(feed[name], base[name]) for name in base):
            yield label, feed


def other_batches(spec: IoSpec, seen: Sequence[Arrays]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Repeat real samples to two other batch sizes, where the first axis of every input varies: (name, feed)."""
    axes = named_axes(spec)
    known = {array.shape[0] if array.ndim else None for feed in seen for array in feed.values()}
    if len(known) != 1 or len({axes[entry.name].get(0) for entry in spec.inputs} | {None}) != 2:
        return
    for size in [size for size in (1, 3, 2) if size not in known][:2]:
        feed = {name: array[np.arange(size) % len(array)] for name, array in seen[0].items()}
        yield f"of {size} sample{'s' * (size > 1)}", feed


def doubled(spec: IoSpec, feed: Arrays) -> dict[str, np.ndarray]:
    """Make every axis that varies twice as long, by repeating what it holds."""
    axes = named_axes(spec)
    repeats = {name: [1 + (axis in axes[name]) for axis in range(array.ndim)] for name, array in feed.items()}
    return {name: np.tile(array, repeats[name]) for name, array in feed.items()}


def disturbed(feed: Arrays, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Move each float towards zero by about _DISTURBED of itself, as rounding in the first layers would; the module's
    code may check that inputs stay in their range.
    """
    return {
        name: (array * (1 - _DISTURBED * np.abs(rng.standard_normal(array.shape)))).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in feed.items()
    }


def _changed(
    base: np.ndarray, entry: InputSpec, seen: Sequence[np.ndarray], change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Change an input within its range; a size of images, and what is empty, is left as it is."""
    values = np.concatenate([np.ravel(each) for each in (base, *seen)])
    known = np.unique(values[np.isfinite(values)])
    if entry.kind == "picture_size" or not known.size:
        return base
    ends = _ends_of_pixels(base, entry)
    if ends is None and base.dtype.kind != "f":
        rank = np.searchsorted(known, base) / max(len(known) - 1, 1)
        changed = np.clip(change(rank), 0.0, 1.0) * (len(known) - 1)
        return np.asarray(known[np.rint(changed).astype(int)], base.dtype)
    least, largest = (np.asarray(end, np.float64) for end in ends or (known[0], known[-1]))
    width = np.where(largest > least, largest - least, 1.0)
    share = np.clip((np.nan_to_num(base.astype(np.float64)) - least) / width, 0.0, 1.0)
    made = least + np.clip(change(share), 0.0, 1.0) * (largest - least)
    return np.asarray(made if base.dtype.kind == "f" else np.rint(made), base.dtype)


def _ends_of_pixels(base: np.ndarray, entry: InputSpec) -> tuple[Any, Any] | None:
    """Find the least and the largest value of images by channel, which broadcast against them; None: no images."""
    preprocessing = declared_by(entry) if entry.kind == "images" else None
    if preprocessing is None or base.ndim != 4:
        return None
    mean, std = (np.array(each, np.float64) for each in (preprocessing.mean, preprocessing.std))
    shape = (1, 3, 1, 1) if preprocessing.layout == "NCHW" else (1, 1, 1, 3)
    pair = [((end - mean) / std).reshape(shape) for end in preprocessing.range]
    return np.minimum(*pair), np.maximum(*pair)
