"""Runs: inputs of a model, read where they are asked for, and what a reference and a candidate made of them.

Every door (two files, the files of a chain, an engine, the check of a conversion) is this loop: `run_both`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from truehalf.data.samples import digest_of, repeated
from truehalf.errors import StageError
from truehalf.verification.lanes import in_lanes

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """Inputs of one run of a file.

    Attributes:
        names: of the samples; or one name, of the feed.
        rows: how many samples axis 0 of all inputs counts; 0: the feed goes in as it stands.
        load: reads arrays by input name.
        place: number of the feed, of several, and of its first sample.
    """

    names: Sequence[str]
    rows: int
    load: Callable[[], Arrays]
    place: tuple[int, int] = (0, 0)

    @cached_property
    def feed(self) -> Arrays:
        """Arrays by input name, held as long as the part is."""
        return self.load()

    def again(self) -> Part:
        """Return the part without its arrays, which are read again where they are asked for."""
        return replace(self)

    def sample(self, row: int, copies: int) -> Arrays:
        """Return the arrays of one sample as often as a fixed batch asks for it; all where axis 0 counts none."""
        return repeated(part_of(self.feed, row, 1), copies) if self.rows else self.feed


@dataclass(frozen=True)
class Run:
    """What went in, and what both files made of it.

    Attributes:
        names: of the samples; or one name, of the feed.
        rows: how many samples axis 0 counts; 0 where it counts none.
        reference, candidate: outputs by name.
        inputs: a digest of each sample's inputs, or, where their axes 0 differ, of all inputs.
        size: height and width of the image that went in, in pixels; None where there is none, or the I/O spec says it.
        shapes: of the inputs, by name.
        part: the inputs.
    """

    names: Sequence[str]
    rows: int
    reference: Arrays
    candidate: Arrays
    inputs: Sequence[str] = ()
    size: tuple[int, int] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    part: Part = field(default_factory=lambda: Part((), 0, dict))

    @property
    def places(self) -> Sequence[str]:
        """Names of the samples that axis 0 counts; one name where it counts none."""
        return self.names[: max(self.rows, 1)]


def run_both(
    parts: Iterable[Part], reference: Callable[[Part], Arrays], candidate: Callable[[Part], Arrays], lanes: int = 1
) -> Iterator[Run]:
    """Run a reference and a candidate on the same inputs, part by part.

    Args:
        reference, candidate: compute outputs of a part.
        lanes: how many parts run beside each other.
    """

    def both(part: Part) -> Run:
        outputs = reference(part), candidate(part)
        shapes = {name: array.shape for name, array in part.feed.items()}
        return Run(part.names, part.rows, *outputs, _digests(part.feed), None, shapes, part.again())

    return in_lanes(parts, both, lanes)


def samples_of(feed: Arrays) -> int:
    """Return the common length of axis 0; 0 if inputs have none or differ."""
    lengths = {array.shape[0] if array.ndim else 0 for array in feed.values()}
    return lengths.pop() if len(lengths) == 1 else 0


def _digests(feed: Arrays) -> list[str]:
    rows = samples_of(feed)
    return [digest_of(part_of(feed, row, 1)) for row in range(rows)] if rows else [digest_of(feed)]


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


def joined(parts: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Join outputs of consecutive batches.

    Raises:
        StageError: wrong-shape, when the shape of an output varies from batch to batch beyond its first axis.
    """
    if len(parts) == 1:  # which may have no axes
        return {name: np.array(array) for name, array in parts[0].items()}
    for name in parts[0]:
        shapes = dict.fromkeys(part[name].shape[1:] for part in parts)
        if len(shapes) > 1:
            got = " and ".join(str(list(shape)) for shape in list(shapes)[:2])
            raise StageError(
                "wrong-shape",
                f"output {name!r}: expected one shape for every sample, got {got}: it depends on what goes in. Fill it "
                "up to a fixed number of rows (top-k, or padding) inside the model",
            )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def part_of(feed: Arrays, start: int, count: int) -> dict[str, np.ndarray]:
    """Select samples `start` to `start + count - 1` of axis 0, as far as there are any."""
    return {name: array[start : start + count] for name, array in feed.items()}
