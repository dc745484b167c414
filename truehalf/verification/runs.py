"""Runs of a file: what goes in; and one of a reference and of the file that is compared with it, of a chain with all
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truehalf.data.samples import Sample, batches, stacked
from truehalf.errors import StageError
from truehalf.progress import track
from truehalf.verification.lanes import in_lanes

Arrays = Mapping[str, np.ndarray]


class UnevenShapes(StageError):
    """An output whose shape varies from run to run, or whose axis 0 does not count the samples that went in."""


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

    @property
    def places(self) -> Sequence[str]:
        """Names of the samples that axis 0 counts; one name where it counts none."""
        return self.names[: max(self.rows, 1)]


def as_type(array: np.ndarray, dtype: Any) -> np.ndarray:
    """float32 as float16 where a file wants that, and back; all else as it is."""
    if dtype is None or array.dtype == dtype or {array.dtype.name, np.dtype(dtype).name} != {"float32", "float16"}:
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def as_read(value: Any) -> np.ndarray:
    """Convert an output for comparison: floats of any width to float32."""
    array = np.asarray(value)
    return array if array.dtype.kind in "iubOSU" else array.astype(np.float32)


def parts_of(samples: Sequence[Sample], size: int, label: str) -> Iterator[tuple[Part, list[Sample]]]:
    """Yield runs of `size` samples at most, with these samples.

    Args:
        label: of the progress.
    """
    for number, group in enumerate(track(batches(samples, size), label, -(-len(samples) // size))):
        yield Part(stacked(group), len(group), [sample.name for sample in group], start=number * size), group


def outputs_of(parts: Iterable[Part], run: Callable[[Part], Arrays], lanes: int = 1) -> dict[str, np.ndarray]:
    """Join outputs of consecutive runs, floats as float32.

    Args:
        lanes: how many runs go beside each other.

    Raises:
        UnevenShapes: an output that cannot be put together, since its shape varies.
    """
    ran = in_lanes(parts, run, lanes)
    return joined([{name: np.atleast_1d(as_read(value)) for name, value in outputs.items()} for outputs in ran])


def joined(parts: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Join outputs of consecutive batches.

    Raises:
        UnevenShapes: when the shape of an output varies from batch to batch beyond its first axis.
    """
    if len(parts) == 1:  # which may have no axes
        return {name: np.array(array) for name, array in parts[0].items()}
    for name in parts[0]:
        shapes = dict.fromkeys(part[name].shape[1:] for part in parts)
        if len(shapes) > 1:
            got = " and ".join(str(list(shape)) for shape in list(shapes)[:2])
            raise UnevenShapes(
                "wrong-shape",
                f"output {name!r}: expected one shape for every sample, got {got}: it depends on what goes in. Fill it "
                "up to a fixed number of rows (top-k, or padding) inside the model",
            )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def part_of(feed: Arrays, start: int, count: int) -> dict[str, np.ndarray]:
    """Select samples `start` to `start + count - 1` of axis 0, as far as there are any."""
    return {name: array[start : start + count] for name, array in feed.items()}
