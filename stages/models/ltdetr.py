"""LT-DETR's shape from `transformers`: DINOv3-ConvNeXt backbone, hybrid encoder, D-FINE or RT-DETRv2 decoder.

The detector that this module returns takes pictures as they are (RGB, 0 to 1): normalisation is its first operation,
so that an exported file needs no preprocessing but the resize.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DECODERS = ("dfine", "rtdetrv2")
_STRIDES = (8, 16, 32)
_PROJECTIONS = (("v_proj", "o_proj"), ("value_proj", "output_proj"))  # of values, and of what attention makes of them


@dataclass(frozen=True)
class Architecture:
    """What fixes the shape of every weight.

    Attributes:
        decoder: "dfine" or "rtdetrv2".
        num_classes: classes without background (sigmoid scores).
        backbone_widths: channels of the four ConvNeXt stages (strides 4, 8, 16, 32).
        backbone_depths: blocks of the four stages.
        layer_scale_init: initial layer scale of ConvNeXt; 0.1 suits training from scratch, 1e-6 is DINOv3's own.
        d_model: width of encoder and decoder, a multiple of `heads`.
        ffn_dim: inner width of the feed-forward parts.
        heads: attention heads of encoder and decoder.
        decoder_layers: number of decoder layers.
        num_queries: detections per picture.
        num_denoising: denoising queries, used only in training.
        mean, std: normalisation of RGB in 0..1, done inside the model.
    """

    decoder: str
    num_classes: int
    backbone_widths: tuple[int, ...]
    backbone_depths: tuple[int, ...]
    layer_scale_init: float
    d_model: int
    ffn_dim: int
    heads: int
    decoder_layers: int
    num_queries: int
    num_denoising: int
    mean: tuple[float, float, float] = field(default=(0.485, 0.456, 0.406))
    std: tuple[float, float, float] = field(default=(0.229, 0.224, 0.225))


def architecture(
    decoder: str, classes: Sequence[str], mean: Sequence[float], std: Sequence[float], values: Mapping[str, Any]
) -> Architecture:
    """The architecture that a model's YAML describes; `values` is its section `architecture`."""
    shape: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Architecture(
        decoder=decoder,
        num_classes=len(classes),
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
        **shape,
    )


def build(arch: Architecture, seed: int) -> torch.nn.Module:
    """Build the detector with seeded random weights, in training mode as torch makes it.

    The module maps float32 [N, 3, H, W] in 0..1 (H and W multiples of 32) to `logits` float32 [N, queries, classes]
    (sigmoid scores) and `boxes` float32 [N, queries, 4] (cxcywh, 0..1). Its `network` is the transformers model.

    Raises:
        ValueError: when the decoder is unknown or d_model is no multiple of heads.
    """
    if arch.decoder not in DECODERS:
        raise ValueError(f"model: unknown decoder {arch.decoder!r}, expected one of {DECODERS}")
    if arch.d_model % arch.heads:
        raise ValueError(f"model: expected d_model to be a multiple of heads, got {arch.d_model} and {arch.heads}")
    import torch

    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        return _detector_class()(_network(arch), arch.mean, arch.std)


def scale_attention_values(module: torch.nn.Module, gain_log2: int) -> list[str]:
    """Multiply attention values by 2^n and the output projections that follow by 2^-n: the same function, other ranges.

        out(A v(x)) = W_o A (W_v x + b_v) + b_o = (2^-n W_o) A (2^n W_v x + 2^n b_v) + b_o

    A stands for what lies between, which is linear in the values: weights from a softmax, sampling, masks that are 0.
    Powers of two are exact in FP32. Applies to self-attention (v_proj, o_proj) and to RT-DETRv2's deformable attention
    (value_proj, output_proj); D-FINE's deformable attention has no projections.

    Args:
        module: changed in place.
        gain_log2: n.

    Returns:
        names of the attention modules that were changed.
    """
    import torch

    changed = []
    with torch.no_grad():
        for name, attention in module.named_modules():
            for value_name, output_name in _PROJECTIONS:
                value, output = getattr(attention, value_name, None), getattr(attention, output_name, None)
                if not isinstance(value, torch.nn.Linear) or not isinstance(output, torch.nn.Linear):
                    continue
                value.weight.mul_(2.0**gain_log2)
                value.bias.mul_(2.0**gain_log2)
                output.weight.mul_(2.0**-gain_log2)
                changed.append(name)
    return changed


def _network(arch: Architecture) -> torch.nn.Module:
    from transformers import (
        DFineConfig,
        DFineForObjectDetection,
        DINOv3ConvNextConfig,
        RTDetrV2Config,
        RTDetrV2ForObjectDetection,
    )

    config_class, model_class = {
        "dfine": (DFineConfig, DFineForObjectDetection),
        "rtdetrv2": (RTDetrV2Config, RTDetrV2ForObjectDetection),
    }[arch.decoder]
    backbone = DINOv3ConvNextConfig(
        hidden_sizes=list(arch.backbone_widths),
        depths=list(arch.backbone_depths),
        layer_scale_init_value=arch.layer_scale_init,
        out_features=["stage2", "stage3", "stage4"],  # type: ignore[call-arg]
    )
    config = config_class(
        backbone_config=backbone,
        encoder_in_channels=list(arch.backbone_widths[1:]),
        feat_strides=list(_STRIDES),
        encoder_hidden_dim=arch.d_model,
        encoder_ffn_dim=arch.ffn_dim,
        encoder_attention_heads=arch.heads,
        d_model=arch.d_model,
        decoder_in_channels=[arch.d_model] * 3,
        decoder_ffn_dim=arch.ffn_dim,
        decoder_attention_heads=arch.heads,
        decoder_layers=arch.decoder_layers,
        num_queries=arch.num_queries,
        num_denoising=arch.num_denoising,
        num_labels=arch.num_classes,
        freeze_backbone_batch_norms=False,
    )
    network: torch.nn.Module = model_class(config)
    return network


def _detector_class() -> type[torch.nn.Module]:
    """The wrapper's class, made on first use so that importing this module does not import torch."""
    import torch

    class Detector(torch.nn.Module):
        """Normalise, run the network, return (logits, boxes)."""

        def __init__(self, network: torch.nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
            super().__init__()
            self.network = network
            self.mean: torch.Tensor
            self.std: torch.Tensor
            self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
            self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

        def normalize(self, images: torch.Tensor) -> torch.Tensor:
            return (images - self.mean) / self.std

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            outputs = self.network(pixel_values=self.normalize(images))
            return outputs.logits, outputs.pred_boxes

    return Detector
