"""Where a model comes from: one function per `model.source`, and the I/O spec that tells later stages what it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.schema import Config, ModelSource
from stages.models import ltdetr
from stages.models.weights import load_weights

if TYPE_CHECKING:
    import torch

SPEC_KEY = "truehalf.io_spec"  # of the I/O spec in a model's metadata_props


def open_model(config: Config, root: Path) -> torch.nn.Module:
    """The configured module, with its weights, in eval mode on the CPU.

    Args:
        config: `model.*`, `decoder.name` and `seed` are read.
        root: the workspace; `model.weights` is relative to it.

    Raises:
        StageError: when the weights are missing, corrupt or of another architecture.
    """
    return _SOURCES[config.model.source](config, root).eval()


def io_spec(config: Config) -> dict[str, Any]:
    """What goes in and comes out of the configured model.

    Returns:
        inputs and outputs, each {name, dtype, shape, ...} with the names of dynamic axes in `shape`; class_names;
        trained: whether there are weights to trust.
    """
    model, queries = config.model, config.model.architecture.num_queries
    shapes: dict[str, list[int | str]] = {
        "images": list(config.trace.input_shape),
        "logits": [config.trace.input_shape[0], queries, len(model.classes)],
        "boxes": [config.trace.input_shape[0], queries, 4],
    }
    for name, axes in config.trace.dynamic_axes.items():
        for axis, symbol in axes.items():
            shapes[name][axis] = symbol
    tensors = {name: {"name": name, "dtype": "float32", "shape": shape} for name, shape in shapes.items()}
    images = {
        "layout": "NCHW",
        "channels": "RGB",
        "range": [0, 1],
        "normalization": {"mean": model.mean, "std": model.std, "where": "inside the graph"},
    }
    return {
        "inputs": [tensors["images"] | images],
        "outputs": [
            tensors["logits"] | {"kind": "logits", "activation": "sigmoid"},
            tensors["boxes"] | {"kind": "boxes", "format": "cxcywh", "normalized": True},
        ],
        "class_names": model.classes,
        "trained": model.weights is not None,
    }


def _ltdetr(config: Config, root: Path) -> torch.nn.Module:
    detector = ltdetr.build(_architecture(config), config.seed)
    if config.model.weights is not None:
        load_weights(detector.get_submodule("network"), root / config.model.weights)
    if config.model.attention_gain_log2:
        ltdetr.scale_attention_values(detector, config.model.attention_gain_log2)
    return detector


def _architecture(config: Config) -> ltdetr.Architecture:
    model = config.model
    shape = dataclasses.asdict(model.architecture)
    return ltdetr.architecture(config.decoder.name.value, model.classes, model.mean, model.std, shape)


_SOURCES = {ModelSource.ltdetr: _ltdetr}
