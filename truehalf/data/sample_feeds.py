"""Samples of a configuration as feeds of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from truehalf.data.samples import Sample, Samples

if TYPE_CHECKING:
    import onnx_ir as ir


class SampleFeeds:
    """Samples as feeds, made anew each time they are iterated over; where a batch of k is fixed, each sample k times.

    Attributes:
        names: of the samples.
    """

    def __init__(self, samples: Sequence[Sample], batch: int) -> None:
        self._samples, self._batch = samples, batch
        self.names = samples.names if isinstance(samples, Samples) else [sample.name for sample in samples]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for sample in self._samples:
            yield {name: np.repeat(array[np.newaxis], self._batch, axis=0) for name, array in sample.feeds.items()}


def fixed_batch(model: ir.Model) -> int:
    """The leading axis of the inputs where the model fixes it, else 1."""
    leading = {value.shape[0] for value in model.graph.inputs if value.shape is not None and len(value.shape)}
    fixed = {axis for axis in leading if isinstance(axis, int)}
    return fixed.pop() if len(fixed) == 1 else 1
