"""The samples of a run: which ones trace, calibrate and verify see. The three never share one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from conf.schema import Config
from stages.data import digits


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
        if not -self._count <= index < self._count:
            raise IndexError(index)
        number = self._first + index % self._count
        made = digits.scene(number, self._split, self._size, self._seed)
        image = np.ascontiguousarray(made.image.transpose(2, 0, 1), np.float32) / 255.0
        return Sample(f"digits/{self._split}/{number}", {"images": image}, made.boxes, made.labels)


_CALIBRATION_START = 1_000_000  # of the training handwriting; trace takes scenes before it


def trace_samples(config: Config, count: int) -> Sequence[Sample]:
    """Samples to trace on and to check the trace with."""
    return DigitSamples("train", 0, count, config.model.image_size[0], config.data.seed)


def calibration_samples(config: Config) -> Sequence[Sample]:
    """`data.calibration_samples` samples; also what slim is checked with."""
    count = config.data.calibration_samples
    return DigitSamples("train", _CALIBRATION_START, count, config.model.image_size[0], config.data.seed)


def verification_samples(config: Config) -> Sequence[Sample]:
    """`data.verification_samples` samples that no other stage has seen."""
    return DigitSamples("val", 0, config.data.verification_samples, config.model.image_size[0], config.data.seed)


def batches(samples: Sequence[Sample], size: int) -> Iterator[list[Sample]]:
    """Consecutive groups of `size` samples, the last one possibly shorter; one group in memory at a time."""
    for start in range(0, len(samples), size):
        yield [samples[i] for i in range(start, min(start + size, len(samples)))]


def stacked(batch: Sequence[Sample]) -> dict[str, np.ndarray]:
    """The feeds of a group with a leading batch axis."""
    return {name: np.stack([sample.feeds[name] for sample in batch]) for name in batch[0].feeds}
