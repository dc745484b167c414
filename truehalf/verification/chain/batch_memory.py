"""Number of samples in a run: verify.memory_gb holds the activations (truehalf.verification.activation_memory).

Samples that are only to be got through run in batches of half of it. A batch size that must be looked at has all of it,
and is not verified beyond. The process takes up to twice as much and what it holds besides (0.9 GB with torch and a
small detector), as emulation rounds by copies: measured with the models of benchmarks/zoo.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.data.samples import Sample, stacked
from truehalf.ir.normalize import concrete_shapes
from truehalf.verification.activation_memory import peak_bytes

if TYPE_CHECKING:
    import onnx_ir as ir


def activations_gb(model: ir.Model, sample: Sample, batch: int) -> float:
    """Of a run of so many samples like this one, in GB (1e9 bytes), float16 held as float32."""
    shapes = {name: [batch, *array.shape[1:]] for name, array in stacked([sample]).items() if array.ndim}
    return peak_bytes(model, concrete_shapes(model, shapes), float16_bytes=4) / 1e9


def fitting_batch(model: ir.Model, sample: Sample, batch: int, memory_gb: float) -> int:
    """At most `batch` samples, at least one, whose activations take half of `memory_gb`."""
    one = activations_gb(model, sample, 1)
    return batch if one * batch <= memory_gb / 2 else max(1, int(memory_gb / 2 / one))


def too_large(model: ir.Model, sample: Sample, batch: int, memory_gb: float) -> str | None:
    """Why a batch is not run; None where it is. A single sample always is."""
    if batch == 1 or (needed := activations_gb(model, sample, batch)) <= memory_gb:
        return None
    return f"its activations take about {needed:.1f} GB, above verify.memory_gb ({memory_gb:g})"
