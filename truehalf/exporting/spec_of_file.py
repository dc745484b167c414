"""Proposed I/O spec of an ONNX file, from a run on some samples (truehalf.io_spec.proposed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.data.given import calibration_feeds
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.proposed import Proposal, proposed
from truehalf.io_spec.spec import InputSpec, TensorSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject
from truehalf.runtime.ort.session import Session
from truehalf.verification.open_file import as_type

_FEEDS = 8  # that are run
_UNDECLARED = InputSpec("", "images", pixels={"range": [0, 1]})


def propose_spec(
    path: Path | str,
    samples: Any,
    preprocessing: JsonObject | Path | str | None = None,
    skip_corrupt: bool = False,
) -> Proposal:
    """Kinds of inputs and outputs, format of boxes and range of pixels, as a run suggests them.

    Args:
        path: of an FP32 or FP16 file.
        samples: as truehalf.data.given.given_samples takes them; the first eight feeds are run.
        preprocessing: of images; default: as the I/O spec in the file, or RGB in 0..1. The range is then what it says.
        skip_corrupt: leave out images that cannot be read instead of stopping.

    Raises:
        StageError: a file or samples that cannot be read, or do not fit each other.
    """
    file = ModelFile(Path(path))
    inputs = [
        TensorSpec(str(value.name), None, np.dtype(value.dtype.numpy()).name, _sides(value.shape))
        for value in file.model.graph.inputs
        if not value.is_initializer() and value.dtype is not None
    ]
    entry = spec_inside(file.model).first_input
    entry = entry if entry.pixels else _UNDECLARED
    feeds = list(islice(calibration_feeds(samples, file.model, preprocessing, entry, skip_corrupt), _FEEDS))
    session = Session(file.runnable)
    runs = [session.run({each.name: as_type(feed[each.name], each.dtype) for each in inputs}) for feed in feeds]
    return proposed(inputs, _joined(feeds), _joined(runs))


def _sides(shape: Any) -> tuple[int | str, ...] | None:
    return None if shape is None else tuple(side if isinstance(side, int) else str(side.value) for side in shape)


def _joined(runs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of all runs; those of the first where sizes differ."""
    names = runs[0]
    alike = {name: len({run[name].shape[1:] for run in runs}) == 1 and runs[0][name].ndim > 0 for name in names}
    return {name: np.concatenate([run[name] for run in runs]) if alike[name] else runs[0][name] for name in names}
