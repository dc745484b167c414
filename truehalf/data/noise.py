"""Noise as the input of a file, in the range that is declared. It says nothing of real ranges: docs/how-to/data.md has
the figures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from truehalf.data.preprocessing import declared_by
from truehalf.data.samples import Arrays
from truehalf.errors import StageError
from truehalf.io_spec.inputs import input_spec, traced_shape
from truehalf.io_spec.spec import InputSpec, IoSpec

if TYPE_CHECKING:
    import onnx_ir as ir

# Measured on the embedded D-FINE; with attention values times 2^7, data_max keeps 14 nodes FP32 by real
# images, and none by noise.
WARNING = (
    "calibrated on noise (data=random), whose ranges are not those of real images: of the embedded D-FINE, 13 % of the "
    "tensors reach less than half of their largest |x|. Give real samples"
)


def feed_in_range(model: ir.Model, spec: IoSpec) -> Arrays:
    """Draw one input of a model in the range that its I/O spec declares, else not negative (seed 1).

    Returns:
        by input without a default, in their order: images of pixels uniform in their range, normalised as declared;
        other floats uniform in [0, 1); integers of 0 and 1; true for bools. An axis that varies is as long as it was
        traced, or the declared image; else it has one element.

    Raises:
        StageError: an input that is no tensor of numbers, or of an unknown rank; a preprocessing that cannot be as it
            is declared.
    """
    from truehalf.ir.facts import fed_inputs

    rng, entries = np.random.RandomState(1), {entry.name: entry for entry in spec.inputs}
    feed: Arrays = {}
    for value in fed_inputs(model):
        stated = input_spec(value)
        dtype = np.dtype(stated.dtype or "O")
        if stated.shape is None or dtype.kind not in "fiub":
            message = (
                f"input {value.name!r}: no value is drawn for {value.type}, shape {value.shape}; give calibration data"
            )
            raise StageError("needs-value", message)
        entry = replace(entries.get(stated.name, InputSpec(stated.name)), shape=stated.shape)
        shape, image = traced_shape(entry), declared_by(entry)
        if image is not None and len(shape) == 4 and dtype.kind in "fu":
            pixels = 255 * rng.random_sample((*(shape[2:] if image.layout == "NCHW" else shape[1:3]), 3))
            feed[stated.name] = np.stack([image.of_pixels(pixels, dtype.name)] * shape[0])
        elif dtype.kind == "f":
            feed[stated.name] = np.asarray(rng.random_sample(shape), dtype)
        else:
            feed[stated.name] = np.asarray(rng.randint(int(dtype.kind == "b"), 2, shape, dtype), dtype)
    return feed
