"""Samples that calibration runs over, each with its name; read as often as they are iterated over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from truehalf.errors import StageError

if TYPE_CHECKING:
    import onnx_ir as ir


class Samples:
    """(name, feeds), one run each."""

    def __init__(self, feeds: Iterable[Mapping[str, np.ndarray]], names: Sequence[str] | None) -> None:
        names = names if names is not None else getattr(feeds, "names", None)
        self._feeds = feeds
        self._names = list(names) if names is not None else [str(i) for i, _ in enumerate(feeds)]
        if not self._names:
            raise StageError("too-few-samples", "calibrate: expected at least one sample, got none")

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
        count = 0
        for feeds in self._feeds:
            if count == len(self._names):
                raise StageError("in-conflict", f"calibrate: expected {count} samples, one for each name, got more")
            yield self._names[count], feeds
            count += 1
        if count != len(self._names):
            raise StageError(
                "in-conflict", f"calibrate: expected {len(self._names)} samples, one for each name, got {count}"
            )


def empty_inputs(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> list[str]:
    """Tensors without an element, with their shapes, but for those that the model states so."""
    stated = {value.name for value in model.graph.inputs if value.shape is not None and 0 in value.shape}
    arrays = {name: fed for name, fed in feeds.items() if isinstance(fed, np.ndarray) and name not in stated}
    return [f"{name!r} is {list(array.shape)}" for name, array in arrays.items() if not array.size]
