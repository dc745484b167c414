"""The embedded detectors with their trained weights, as FP32 ONNX files, and pictures for them."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import onnx

from tests.configurations import composed
from tests.conftest import ROOT, SPEC
from truehalf.data.run_samples import run_samples
from truehalf.data.samples import stacked
from truehalf.models.configuration import validated
from truehalf.models.source import open_model


def embedded(path: Path, *overrides: str) -> Path:
    """Export the shipped detector with some keys overridden, and slim it."""
    import onnxslim
    import torch

    config = validated(composed(*overrides))
    names = {"images": {0: "batch"}, "logits": {0: "batch"}, "boxes": {0: "batch"}}
    model = open_model(config, ROOT)
    with torch.no_grad(), model.prepared():
        torch.onnx.export(
            model.module,
            (torch.rand(1, 3, *config.model.image_size),),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["images"],
            output_names=["logits", "boxes"],
            dynamic_axes=names,
        )
    with contextlib.redirect_stdout(io.StringIO()):
        onnx.save(onnxslim.slim(str(path)), path)
    return path


def scenes(count: int, *overrides: str) -> dict[str, np.ndarray]:
    """The first pictures of verification: {"images": float32 [count, 3, height, width]}."""
    samples = run_samples("verification", validated(composed(*overrides)), ROOT, SPEC)
    return {"images": stacked(samples[:count])["images"]}
