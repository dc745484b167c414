"""The samples of a run: which ones trace, calibrate and verify see. The three never share one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conf.schema import Config, DataSource
from stages.data import digits, images
from stages.io import StageError

TRACE_SAMPLES = 16  # at most; set apart from those of calibrate and verify
_DIGITS_CALIBRATION_START = 1_000_000  # of the training handwriting; trace takes scenes before it


@dataclass(frozen=True)
class Sample:
    """One input of the model, with its labels where the data has them.

    Attributes:
        name: what reports call it.
        feeds: array per model input, without the batch axis; images are float32 [3, H, W], RGB in 0..1.
        boxes: float32 [n, 4] xyxy in pixels, or None.
        labels: int64 [n], or None.
    """

    name: str
    feeds: dict[str, np.ndarray]
    boxes: np.ndarray | None
    labels: np.ndarray | None


class DigitSamples(Sequence[Sample]):
    """Digit scenes `first` to `first + count - 1` of a split, made when asked for."""

    def __init__(self, split: str, first: int, count: int, size: int, seed: int) -> None:
        self._split, self._first, self._count, self._size, self._seed = split, first, count, size, seed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        number = self._first + range(self._count)[index]
        made = digits.scene(number, self._split, self._size, self._seed)
        image = np.ascontiguousarray(made.image.transpose(2, 0, 1), np.float32) / 255.0
        return Sample(f"digits/{self._split}/{number}", {"images": image}, made.boxes, made.labels)


class ImageSamples(Sequence[Sample]):
    """Pictures from files, read when asked for; without labels."""

    def __init__(self, paths: Sequence[Path], folder: Path, height: int, width: int) -> None:
        self.paths, self._folder, self._height, self._width = paths, folder, height, width

    def __len__(self) -> int:
        return len(self.paths)

    def without(self, paths: Collection[Path]) -> ImageSamples:
        """The same samples but those of some files."""
        kept = [path for path in self.paths if path not in paths]
        return ImageSamples(kept, self._folder, self._height, self._width)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        path = self.paths[index]
        image = images.read_image(path, self._height, self._width)
        return Sample(path.relative_to(self._folder).as_posix(), {"images": image}, None, None)


# `root` is the workspace: data.folder is relative to it.


def trace_samples(config: Config, count: int, root: Path) -> Sequence[Sample]:
    """Samples to trace on and to check the trace with, at most TRACE_SAMPLES."""
    if count > TRACE_SAMPLES:
        raise ValueError(f"trace_samples: at most {TRACE_SAMPLES} are set apart, {count} were asked for")
    if config.data.source is DataSource.digits:
        return DigitSamples("train", 0, count, config.model.image_size[0], config.data.seed)
    return _folder_samples(config, root, 0, count, "trace")


def calibration_samples(config: Config, root: Path) -> Sequence[Sample]:
    """`data.calibration_samples` samples; also what slim is checked with."""
    count = config.data.calibration_samples
    if config.data.source is DataSource.digits:
        size, seed = config.model.image_size[0], config.data.seed
        return DigitSamples("train", _DIGITS_CALIBRATION_START, count, size, seed)
    return _folder_samples(config, root, TRACE_SAMPLES, count, "calibration")


def verification_samples(config: Config, root: Path) -> Sequence[Sample]:
    """`data.verification_samples` samples that no other stage has seen."""
    count = config.data.verification_samples
    if config.data.source is DataSource.digits:
        return DigitSamples("val", 0, count, config.model.image_size[0], config.data.seed)
    return _folder_samples(config, root, TRACE_SAMPLES + config.data.calibration_samples, count, "verification")


def readable(samples: Sequence[Sample]) -> tuple[Sequence[Sample], list[str]]:
    """The samples without pictures that cannot be read, and what is wrong with each of these, its file named.

    Raises:
        StageError: when no picture is left.
    """
    if not isinstance(samples, ImageSamples):
        return samples, []
    corrupt: dict[Path, str] = {}
    for position, path in enumerate(samples.paths):
        try:
            samples[position]
        except StageError as error:
            corrupt[path] = str(error)
    if len(corrupt) == len(samples):
        raise StageError(f"none of the {len(samples)} pictures can be read; the first: {next(iter(corrupt.values()))}")
    return samples.without(corrupt), list(corrupt.values())


def adversarial_samples(config: Config) -> list[Sample]:
    """Pictures at the rim of the input range, made: all white, all black, and noise of nothing but 0 and 1."""
    height, width = config.model.image_size
    noise = np.random.default_rng(config.data.seed).integers(0, 2, (3, height, width)).astype(np.float32)
    pictures = {"white": np.ones_like(noise), "black": np.zeros_like(noise), "noise": noise}
    return [Sample(f"adversarial/{name}", {"images": picture}, None, None) for name, picture in pictures.items()]


def _folder_samples(config: Config, root: Path, first: int, count: int, purpose: str) -> ImageSamples:
    assert config.data.folder is not None, "validated: data.source=images has a folder"
    folder = root / config.data.folder
    found = images.list_images(folder, config.data.seed)
    height, width = config.model.image_size
    return ImageSamples(images.take(found, first, count, folder, purpose), folder, height, width)


def batches(samples: Sequence[Sample], size: int) -> Iterator[list[Sample]]:
    """Consecutive groups of `size` samples, the last one possibly shorter; one group in memory at a time."""
    for start in range(0, len(samples), size):
        yield [samples[i] for i in range(start, min(start + size, len(samples)))]


def stacked(batch: Sequence[Sample]) -> dict[str, np.ndarray]:
    """The feeds of a group with a leading batch axis."""
    return {name: np.stack([sample.feeds[name] for sample in batch]) for name in batch[0].feeds}
