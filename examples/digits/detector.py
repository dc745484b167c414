"""LT-DETR's shape from `transformers`: DINOv3 backbone (ConvNeXt or ViT), hybrid encoder, D-FINE or RT-DETRv2 decoder.

A ViT has features of stride 16 only. DEIMv2's spatial tuning adapter, a small convolutional network beside it, adds
those of strides 8, 16 and 32. With the decoder "dfine" that is DEIMv2 as `transformers` has it, with its encoder
and its form of D-FINE's decoder; with "rtdetrv2" the adapter's features go into RT-DETRv2.

The detector takes images as they are (RGB, 0 to 1): normalisation is its first operation, so that an exported file
needs no preprocessing but the resize. conf/model/ltdetr_nano.yaml and its neighbours name `build` and its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MethodType, SimpleNamespace
from typing import Any

import torch
import transformers
from transformers.models.deimv2.modeling_deimv2 import Deimv2DINOv3ConvEncoder

from truehalf.models.sources.huggingface import begin_as_torch

DECODERS = ("dfine", "rtdetrv2")
_STRIDES = (8, 16, 32)
_FUSION_BLOCKS = 3  # of `transformers` in each fusion layer of the encoder, at depth 1
_POINTS = [3, 6, 3]  # DEIMv2's: sampled by each attention head at strides 8, 16 and 32
_GAIN_LOG2 = 17
_PROJECTIONS = (("v_proj", "o_proj"), ("value_proj", "output_proj"))  # of values, and of what attention makes of them


def build(
    architecture: Mapping[str, Any],
    decoder: str,
    classes: Sequence[str],
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
) -> torch.nn.Module:
    """Build the detector with random weights, in training mode as torch makes it.

    It maps float32 [N, 3, H, W] in 0..1 (H and W multiples of 32) to an output with `logits` float32
    [N, queries, classes] (sigmoid scores) and `pred_boxes` float32 [N, queries, 4] (cxcywh, 0..1).

    Args:
        architecture: sizes of backbone, encoder and decoder, as conf/model/ltdetr_nano.yaml has them.
        decoder: one of DECODERS.
        classes: names, without background.
        mean, std: normalisation of RGB in 0..1, done inside the model.

    Raises:
        ValueError: when the decoder is unknown, there is no backbone or are two, or sizes do not fit each other.
    """
    arch = SimpleNamespace(**architecture)
    backbones = [name for name in ("convnext", "vit") if arch.backbone.get(name)]
    if decoder not in DECODERS:
        raise ValueError(f"expected decoder={' or '.join(DECODERS)}, got {decoder}")
    if len(backbones) != 1:
        raise ValueError(f"expected one backbone of convnext and vit, the other null; got {backbones or 'neither'}")
    if arch.d_model % arch.heads:
        raise ValueError(f"expected d_model to be a multiple of heads, got {arch.d_model} and {arch.heads}")
    make = _on_vit if backbones == ["vit"] else _on_convnext
    network = make(arch, SimpleNamespace(**arch.backbone[backbones[0]]), decoder, len(classes))
    if decoder == "rtdetrv2":
        _shorten(network, arch.encoder_blocks)
    for name, values in (("mean", mean), ("std", std)):
        network.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)
    network.register_forward_pre_hook(_normalized)
    return network


def _normalized(network: Any, images: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return ((images[0] - network.mean) / network.std, *images[1:])


def overflowing(network: torch.nn.Module) -> None:
    """Multiply attention values by 2^17: the same function in FP32, with activations that FP16 cannot hold."""
    scale_attention_values(network, _GAIN_LOG2)


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


def _on_convnext(arch: Any, backbone: Any, decoder: str, classes: int) -> torch.nn.Module:
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


def _on_vit(arch: Any, backbone: Any, decoder: str, classes: int) -> torch.nn.Module:
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
    return network


def _fused(self: Any, pixel_values: torch.Tensor) -> list[torch.Tensor]:
    """What DEIMv2's ViT with its adapter returns, to the bit, where features are resized to the adapter's sizes.

    DEIMv2 computes these from the image's as Python numbers, which are constants in a trace: height and width could
    not vary.
    """
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


def _shape(arch: Any, classes: int, backbone_config: Any, widths: Sequence[int]) -> dict[str, Any]:
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


def _depth(arch: Any) -> float:
    """Blocks of the encoder as D-FINE's and DEIMv2's configurations count them."""
    return arch.encoder_blocks / _FUSION_BLOCKS


def _shorten(network: Any, blocks: int) -> None:
    """Leave out blocks of RT-DETRv2's encoder, which always has three in a row; there is no key for it."""
    for layer in (*network.model.encoder.fpn_blocks, *network.model.encoder.pan_blocks):
        layer.bottlenecks = layer.bottlenecks[:blocks]
