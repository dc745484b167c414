"""Samples: one at a time, shared out between purposes, put together in batches.

They are a list of names and `load(position)`. Which samples calibrate and which verify is decided on
positions (`split`), how many of them go into one run on arrays (`Feeds`); both whatever the source is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.errors import StageError, refuse
from truehalf.files import file_sha256

if TYPE_CHECKING:
    from truehalf.data.preprocessing import Preprocessing

Arrays = dict[str, np.ndarray]
SAME = "byte for byte the same as another file, which is used"


@dataclass(frozen=True)
class Sample:
    """One input of a model, with labels where the data has them.

    Attributes:
        name: its name in reports.
        arrays: by input name, without the batch axis; of a whole sample (`Samples.whole`) with all axes.
        boxes: float32 [n, 4] xyxy in pixels of the model's input, or None.
        labels: int64 [n], or None.
        crowds: bool [n], True for a box around a crowd; None: no box is one.
    """

    name: str
    arrays: Arrays
    boxes: np.ndarray | None = None
    labels: np.ndarray | None = None
    crowds: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Samples(Sequence[Any]):
    """Samples that are read or made when they are asked for: images and arrays of a source, or, once they are fitted to
    a model (truehalf.data.fitting), one `Sample` each.

    Attributes:
        names: known before a sample is read, in the order of their files.
        load: reads or makes the sample at a position.
        paths: file of each sample; empty where samples are made or lie in memory.
        folder: that paths are reported relative to.
        categories: names that labels are positions in; None: labels are the model's classes.
        left_out: names of what the data holds and nothing uses, by reason.
        whole: True if axis 0 of the arrays counts no samples: each sample goes into a run as it stands.
        preprocessing: applied to images; None of arrays.
        feeds: name and rows of each feed that the samples were cut from; empty: each sample is one.
    """

    names: Sequence[str]
    load: Callable[[int], Any]
    paths: Sequence[Path] = ()
    folder: Path | None = None
    categories: Sequence[str] | None = None
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    whole: bool = False
    preprocessing: Preprocessing | None = None
    feeds: Sequence[tuple[str, range]] = ()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        positions = range(len(self))[index]
        return self.only(positions) if isinstance(positions, range) else self.load(positions)

    def only(self, positions: Sequence[int]) -> Samples:
        """Select samples at some positions, in this order."""
        names, load = [self.names[i] for i in positions], self.load
        paths = [self.paths[i] for i in positions] if self.paths else ()
        return replace(self, names=names, load=lambda position: load(positions[position]), paths=paths, feeds=())

    def place(self, path: Path) -> str:
        """A path as reports show it: relative to the folder, where it lies there."""
        inside = self.folder is not None and path.is_relative_to(self.folder)
        return path.relative_to(self.folder).as_posix() if inside and self.folder is not None else path.name


def kept(samples: Samples, most_bytes: int) -> Samples:
    """Keep samples in memory once they are read, up to a number of bytes; further ones are read each time."""
    held: dict[int, Sample] = {}
    left = [most_bytes]

    def load(position: int) -> Sample:
        if position in held:
            return held[position]
        sample: Sample = samples.load(position)
        size = sum(array.nbytes for array in sample.arrays.values())
        if size <= left[0]:
            held[position] = sample
            left[0] -= size
        return sample

    return replace(samples, load=load)


# --- purposes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Positions of samples by purpose; none calibrates and verifies, unless there is only one sample.

    Attributes:
        trace, calibration, verification: positions, in an order by a seed.
        total: number of different samples.
    """

    trace: list[int]
    calibration: list[int]
    verification: list[int]
    total: int

    @property
    def is_shared(self) -> bool:
        """True if a sample that verifies has calibrated."""
        return bool(set(self.calibration) & set(self.verification))


def split(positions: Sequence[int], calibration: int, verification: int, trace: int = 0, seed: int = 0) -> Split:
    """Share out samples in an order by the seed: the first are traced on, or, where they are too few for that, those
    that calibrate; the next calibrate, the next verify. Where they are too few for both, a third calibrates.

    Args:
        positions: of samples of different content, one or more.
        calibration, verification, trace: at most so many of each; 0: none.
    """
    held = len(positions)
    order = [positions[place] for place in np.random.default_rng(seed).permutation(held)]
    if calibration and verification and held < calibration + verification:
        calibration = min(calibration, max(1, round(held / 3), held - verification))
    first = trace if held >= trace + calibration + verification else 0  # traced on alone
    end = first + calibration
    traced = order[:first] if first else order[: min(trace, calibration)]
    return Split(traced, order[first:end], (order[end:] or order)[:verification], held)


def distinct(samples: Samples) -> list[int]:
    """Positions of samples without those whose content an earlier one has: images by their files, others by arrays."""
    if samples.preprocessing is not None:
        same = _same_content(samples.paths)
        return [position for position, path in enumerate(samples.paths) if path not in same]
    first: dict[str, int] = {}
    for position, sample in enumerate(samples):
        first.setdefault(digest_of(sample.arrays), position)
    return list(first.values())


def without_copies(source: Samples) -> Samples:
    """Leave out the samples of each file that holds the same bytes as an earlier one."""
    same = _same_content(source.paths)
    if not same:
        return source
    names = sorted(f"{source.place(path)} (as {source.place(earlier)})" for path, earlier in same.items())
    kept = source.only([position for position, path in enumerate(source.paths) if path not in same])
    return replace(kept, left_out={**source.left_out, SAME: names})


def _same_content(paths: Sequence[Path]) -> dict[Path, Path]:
    """Find files with the bytes of an earlier one: {path: earlier path}. Only files of equal size are read."""
    paths = list(dict.fromkeys(paths))
    sizes = Counter(path.stat().st_size for path in paths)
    first: dict[str, Path] = {}
    alike = [path for path in paths if sizes[path.stat().st_size] > 1]
    found = {path: first.setdefault(file_sha256(path), path) for path in alike}
    return {path: earlier for path, earlier in found.items() if earlier is not path}


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and values of arrays, such as of the inputs of one sample."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        values = str(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes()
        digest.update(values)
    return digest.hexdigest()


# --- batches ----------------------------------------------------------------------------------------------------------


def batches(samples: Sequence[Sample], size: int) -> Iterator[list[Sample]]:
    """Yield consecutive groups of `size` samples, the last one possibly shorter; one group in memory at a time."""
    for start in range(0, len(samples), size):
        yield [samples[i] for i in range(start, min(start + size, len(samples)))]


class Feeds(Sequence[Arrays]):
    """Inputs of a model, one run each, made when they are asked for.

    Attributes:
        names: of each run the first sample's name, or that of a feed that goes in as it stands.
        sample_names: of each run the names of its samples, or that of the feed.
    """

    def __init__(self, samples: Samples, size: int | None, *, fixed: bool = True) -> None:
        """Cut samples into runs.

        Args:
            size: samples of a run; None: feeds as they stand. A whole sample is a run of its own.
            fixed: repeat the last sample until the last run has as many.
        """
        self._samples, self._size = samples, size if fixed else None
        count = len(samples)
        if samples.whole or size is None:
            feeds = samples.feeds or [(name, range(i, i + 1)) for i, name in enumerate(samples.names)]
            self._rows = [rows for _, rows in feeds]
            self.sample_names = [[name] for name, _ in feeds]
        else:
            self._rows = [range(start, min(start + size, count)) for start in range(0, count, size)]
            self.sample_names = [[samples.names[row] for row in rows] for rows in self._rows]
        self.names = [names[0] for names in self.sample_names]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        numbers = range(len(self))[index]
        return [self._feed(number) for number in numbers] if isinstance(numbers, range) else self._feed(numbers)

    def _feed(self, number: int) -> Arrays:
        group: list[Sample] = [self._samples[position] for position in self._rows[number]]
        if self._samples.whole:
            return group[0].arrays
        return stacked(group) if self._size is None else repeated(stacked(group), self._size)


def stacked(batch: Sequence[Sample]) -> Arrays:
    """Stack the arrays of some samples on a leading batch axis.

    Raises:
        StageError: wrong-shape: they differ in shape.
    """
    first = batch[0]
    for sample in batch:
        for name, array in sample.arrays.items():
            if array.shape != first.arrays[name].shape:
                raise StageError(
                    "wrong-shape",
                    f"data: input {name!r}: {first.name} has {list(first.arrays[name].shape)}, and {sample.name}, in "
                    f"one batch with it, {list(array.shape)}; expected samples of one shape: pad or crop them, or run "
                    "one size after the other",
                )
    return {name: np.stack([sample.arrays[name] for sample in batch]) for name in first.arrays}


def repeated(feed: Mapping[str, np.ndarray], count: int) -> Arrays:
    """Pad a feed to `count` rows by repeating its last row."""
    return {
        name: np.concatenate([array, np.repeat(array[-1:], count - len(array), axis=0)]) for name, array in feed.items()
    }


def filled(samples: Sequence[Sample], size: int, start: int = 0) -> Arrays:
    """Stack `size` samples from `start` on, from the first one again where there are fewer."""
    return stacked([samples[(start + i) % len(samples)] for i in range(size)])


def refuse_nan(feed: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    """Raise StageError (not-finite) if an input of a feed that is to be compared holds NaN.

    Args:
        names: of its samples: one, or one for each row.
    """
    problems = []
    for name, array in feed.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            row = int(np.argwhere(np.isnan(array))[0][0]) if len(names) > 1 else 0
            problems.append(f"{name!r} of {names[row]}: {int(np.isnan(array).sum())} of {array.size} values")
    refuse("not-finite", "NaN in the inputs, where nothing can be compared", problems)
