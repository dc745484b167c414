"""Samples in the batch sizes that slimming is checked with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from truehalf.data.samples import Sample, filled
from truehalf.ir.facts import fixed_batch

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


def check_feeds(samples: Sequence[Sample], model: ir.Model) -> list[dict[str, np.ndarray]]:
    """Batches of one and three samples, or of the one size that the model takes."""
    fixed = fixed_batch(model)
    sizes = (1, 3) if fixed is None else (fixed,)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [filled(samples, size, start) for start, size in zip(starts, sizes, strict=True)]
