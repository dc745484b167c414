"""A detector of the shipped shape that is small enough to trace in seconds, and pictures for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from examples.digits.detector import build
from examples.digits.scenes import scene
from truehalf.models.calling import calling

SIZE, QUERIES = 64, 20
CONVNEXT = {"convnext": {"widths": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "layer_scale_init": 0.1}, "vit": None}
_VIT = {"width": 24, "depth": 3, "heads": 2, "ffn_dim": 48, "registers": 1, "layers": [1, 2, 3]}
VIT = {"convnext": None, "vit": {**_VIT, "layer_scale_init": 1.0, "adapter_width": 4}}


def built(decoder: str, seed: int = 0, **changes: Any) -> Any:
    values = {
        "backbone": CONVNEXT,
        "d_model": 32,
        "ffn_dim": 48,
        "heads": 2,
        "encoder_blocks": 3,
        "encoder_expansion": 1.0,
        "decoder_layers": 2,
        "num_queries": QUERIES,
        "num_denoising": 10,
    }
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(values | changes, decoder, [str(digit) for digit in range(10)])
    return calling(network, ["logits", "pred_boxes"])


def detector(decoder: str, seed: int = 0) -> Any:
    """In eval mode, with weights whose scores are apart: transformers' own make RT-DETRv2 score all queries alike."""
    import torch

    module = built(decoder, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, part in module.named_modules():
            if "backbone" not in name and isinstance(part, (torch.nn.Conv2d, torch.nn.BatchNorm2d)):
                part.reset_parameters()
    return module


def pictures(*numbers: int) -> dict[str, np.ndarray]:
    """{"images": float32 [n, 3, 64, 64]} of digit scenes."""
    scenes = np.stack([scene(number, "train", SIZE).image for number in numbers])
    return {"images": np.ascontiguousarray(scenes.transpose(0, 3, 1, 2), np.float32) / 255}


def spec(trained: bool = True) -> dict[str, Any]:
    images = {"name": "images", "dtype": "float32", "shape": ["batch", 3, SIZE, SIZE]}
    logits = {"name": "logits", "dtype": "float32", "shape": ["batch", QUERIES, 10], "kind": "logits"}
    boxes = {"name": "boxes", "dtype": "float32", "shape": ["batch", QUERIES, 4], "kind": "boxes"}
    return {"inputs": [images], "outputs": [logits, boxes], "class_names": [], "trained": trained}
