"""LT-DETR's shape from `transformers`: DINOv3 backbone (ConvNeXt or ViT), hybrid encoder, D-FINE or RT-DETRv2 decoder.

A ViT has features of stride 16 only. DEIMv2's spatial tuning adapter, a small convolutional network beside it, adds
those of strides 8, 16 and 32. With the decoder "dfine" that is DEIMv2 as `transformers` has it, with its encoder
and its form of D-FINE's decoder; with "rtdetrv2" the adapter's features go into RT-DETRv2.

The detector that this module returns takes images as they are (RGB, 0 to 1): normalisation is its first operation,
so that an exported file needs no preprocessing but the resize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

from truehalf.config.options import key

if TYPE_CHECKING:
    import torch

DECODERS = ("dfine", "rtdetrv2")
_STRIDES = (8, 16, 32)
_FUSION_BLOCKS = 3  # of `transformers` in each fusion layer of the encoder, at depth 1
_POINTS = [3, 6, 3]  # DEIMv2's: sampled by each attention head at strides 8, 16 and 32


@dataclass(frozen=True)
class ConvNext:
    """DINOv3's ConvNeXt.

    Attributes:
        widths: channels of the four stages (strides 4, 8, 16, 32).
        depths: blocks of the four stages.
        layer_scale_init: initial layer scale; 0.1 suits training from scratch, 1e-6 is DINOv3's.
    """

    widths: list[int]
    depths: list[int]
    layer_scale_init: float


@dataclass(frozen=True)
class Vit:
    """DINOv3's ViT of patches of 16 x 16, as in DEIMv2-S and -M: its last norm is only for the last layer.

    Attributes:
        width: channels, a multiple of `heads`; channels per head are a multiple of 4 (rotary positions).
        depth: number of layers.
        heads: attention heads.
        ffn_dim: inner width of the feed-forward parts.
        registers: register tokens beside the class token.
        layers: the three layers, counted from 1, whose features are taken for strides 8, 16 and 32.
        layer_scale_init: initial layer scale; 1 in DEIMv2-S and -M.
        adapter_width: channels of the adapter's stem; it has 2, 4 and 4 times as many at strides 8, 16 and 32.
    """

    width: int = key(..., "channels", least=1)
    depth: int = key(..., "layers", least=1)
    heads: int = key(..., "attention heads", least=1)
    ffn_dim: int = key(..., "inner width of the feed-forward parts", least=1)
    registers: int = key(..., "register tokens beside the class token", least=0)
    layers: list[int] = key(..., "whose features are taken for strides 8, 16 and 32")
    layer_scale_init: float = key(..., "initial layer scale")
    adapter_width: int = key(..., "channels of the adapter's stem", least=1)


@dataclass(frozen=True)
class Backbone:
    """One of them; the other is null."""

    convnext: ConvNext | None = None
    vit: Vit | None = None


@dataclass(frozen=True)
class Architecture:
    """What fixes the shape of every weight, but for decoder and classes."""

    backbone: Backbone
    d_model: int = key(..., "width of encoder and decoder", least=1)
    ffn_dim: int = key(..., "inner width of their feed-forward parts", least=1)
    heads: int = key(..., "their attention heads", least=1)
    encoder_blocks: int = key(..., "in a row wherever the encoder fuses two strides", least=1, most=3)
    encoder_expansion: float = key(..., "width of these blocks, as a share", above=0, most=1)
    decoder_layers: int = key(..., "layers of the decoder", least=1)
    num_queries: int = key(..., "detections per image", least=1)
    num_denoising: int = key(..., "denoising queries, only in training", least=0)


def build(
    arch: Architecture,
    decoder: str,
    classes: int,
    seed: int,
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
) -> torch.nn.Module:
    """Build the detector with seeded random weights, in training mode as torch makes it.

    The module maps float32 [N, 3, H, W] in 0..1 (H and W multiples of 32) to `logits` float32 [N, queries, classes]
    (sigmoid scores) and `boxes` float32 [N, queries, 4] (cxcywh, 0..1). Its `network` is the transformers model.

    Args:
        arch: one backbone of two.
        decoder: one of DECODERS.
        classes: how many, without background (sigmoid scores).
        mean, std: normalisation of RGB in 0..1, done inside the model.

    Raises:
        ValueError: when the decoder is unknown or d_model is no multiple of heads.
    """
    if decoder not in DECODERS:
        raise ValueError(f"model: unknown decoder {decoder!r}, expected one of {DECODERS}")
    if arch.d_model % arch.heads:
        raise ValueError(f"model: expected d_model to be a multiple of heads, got {arch.d_model} and {arch.heads}")
    import torch

    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        network = _on_vit(arch, decoder, classes) if arch.backbone.vit else _on_convnext(arch, decoder, classes)
        if decoder == "rtdetrv2":
            _shorten(network, arch.encoder_blocks)
        return _detector_class()(network, mean, std)


def _on_convnext(arch: Architecture, decoder: str, classes: int) -> torch.nn.Module:
    import transformers

    backbone = arch.backbone.convnext
    assert backbone is not None
    convnext = transformers.DINOv3ConvNextConfig(
        hidden_sizes=list(backbone.widths),
        depths=list(backbone.depths),
        layer_scale_init_value=backbone.layer_scale_init,
        out_features=["stage2", "stage3", "stage4"],  # type: ignore[call-arg]
    )
    shape = _shape(arch, classes, convnext, backbone.widths[1:])
    if decoder == "dfine":
        return transformers.DFineForObjectDetection(transformers.DFineConfig(depth_mult=_depth(arch), **shape))
    return transformers.RTDetrV2ForObjectDetection(transformers.RTDetrV2Config(**shape))


def _on_vit(arch: Architecture, decoder: str, classes: int) -> torch.nn.Module:
    import transformers

    backbone = arch.backbone.vit
    assert backbone is not None
    vit = transformers.DINOv3ViTConfig(
        hidden_size=backbone.width,
        intermediate_size=backbone.ffn_dim,
        num_hidden_layers=backbone.depth,
        num_attention_heads=backbone.heads,
        num_register_tokens=backbone.registers,
        layerscale_value=backbone.layer_scale_init,
        pos_embed_rescale=None,
        apply_layernorm=False,
        out_indices=list(backbone.layers),  # type: ignore[call-arg]
    )
    shape = _shape(arch, classes, vit, [arch.d_model] * len(_STRIDES))
    deimv2 = transformers.Deimv2Config(
        depth_mult=_depth(arch),
        decoder_n_points=_POINTS,
        decoder_activation_function="silu",
        encoder_has_trailing_conv=False,
        spatial_tuning_adapter_inplanes=backbone.adapter_width,
        **shape,
    )
    network: Any
    if decoder == "dfine":
        network = transformers.Deimv2ForObjectDetection(deimv2)
        adapted = network.model.conv_encoder
    else:
        network = transformers.RTDetrV2ForObjectDetection(transformers.RTDetrV2Config(**shape))
        adapted = _put_before(network.model, deimv2)
    adapted.forward = MethodType(_fused, adapted)
    begin_as_torch(network)
    return cast("torch.nn.Module", network)


def _fused(self: Any, pixel_values: torch.Tensor) -> list[torch.Tensor]:
    """What DEIMv2's ViT with its adapter returns, to the bit, where features are resized to the adapter's sizes.

    DEIMv2 computes these from the image's as Python numbers, which are constants in a trace: height and width could
    not vary.
    """
    import torch

    details = self.spatial_tuning_adapter(pixel_values)
    fused = []
    for semantic, detail, project in zip(
        self.backbone(pixel_values).feature_maps, details, self.fusion_proj, strict=True
    ):
        resized = torch.nn.functional.interpolate(semantic, size=detail.shape[-2:], mode="bilinear")
        fused.append(project(torch.cat([resized, detail], dim=1)))
    return fused


def _put_before(rtdetrv2: Any, deimv2: Any) -> Any:
    """Give RT-DETRv2 the ViT with DEIMv2's adapter as its backbone, and return these: features of `d_model` channels.

    They pass the encoder's projection, as those of every backbone do; that, too, is LT-DETR's shape.
    """
    import torch
    from transformers.models.deimv2.modeling_deimv2 import Deimv2DINOv3ConvEncoder

    class Backbone(torch.nn.Module):
        """Called as RT-DETRv2 calls its backbone: beside each feature map a mask, which it does not read."""

        def __init__(self) -> None:
            super().__init__()
            self.model = Deimv2DINOv3ConvEncoder(deimv2)

        def forward(self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor) -> list[tuple[torch.Tensor, None]]:
            return [(features, None) for features in self.model(pixel_values)]

    width = deimv2.encoder_hidden_dim
    rtdetrv2.backbone = backbone = Backbone()
    rtdetrv2.encoder_input_proj = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Conv2d(width, width, kernel_size=1, bias=False), torch.nn.BatchNorm2d(width))
        for _ in _STRIDES
    )
    return backbone.model


def _shape(arch: Architecture, classes: int, backbone_config: Any, widths: Sequence[int]) -> dict[str, Any]:
    """What the configurations of all decoders call alike; `widths`: channels that the encoder gets at each stride."""
    return {
        "backbone_config": backbone_config,
        "encoder_in_channels": list(widths),
        "feat_strides": list(_STRIDES),
        "encoder_hidden_dim": arch.d_model,
        "encoder_ffn_dim": arch.ffn_dim,
        "encoder_attention_heads": arch.heads,
        "hidden_expansion": arch.encoder_expansion,
        "d_model": arch.d_model,
        "decoder_in_channels": [arch.d_model] * len(_STRIDES),
        "decoder_ffn_dim": arch.ffn_dim,
        "decoder_attention_heads": arch.heads,
        "decoder_layers": arch.decoder_layers,
        "num_queries": arch.num_queries,
        "num_denoising": arch.num_denoising,
        "num_labels": classes,
        "freeze_backbone_batch_norms": False,
    }


def _depth(arch: Architecture) -> float:
    """Blocks of the encoder as D-FINE's and DEIMv2's configurations count them."""
    return arch.encoder_blocks / _FUSION_BLOCKS


def _shorten(network: Any, blocks: int) -> None:
    """Leave out blocks of RT-DETRv2's encoder, which always has three in a row; there is no key for it."""
    for layer in (*network.model.encoder.fpn_blocks, *network.model.encoder.pan_blocks):
        layer.bottlenecks = layer.bottlenecks[:blocks]


def begin_as_torch(network: torch.nn.Module) -> None:
    """Begin convolutions and batch norms as torch does.

    `transformers` begins those of RT-DETR, of its successors and of DEIMv2's adapter so small that features vanish:
    all queries score alike, which of them are taken is chance, and in FP16 nothing is left. (On a ConvNeXt of LT-DETR
    it is left: the seed's weights stay what they were.)
    """
    import torch

    for part in network.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.BatchNorm2d)):
            part.reset_parameters()


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
