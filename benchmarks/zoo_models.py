"""The models of the zoo: of each source, the smallest architecture that somebody has published or ships.

Those of `transformers` are configurations without weights, made into a folder with a processor's configuration. Widths
and depths are of the published models as far as they are said in their papers and configurations; where a family's
smallest is not `transformers`' default, what differs stands here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "zoo_models"  # in the workspace
PICTURES = "zoo_pictures"  # in the workspace
TRACED = "ltdetr_nano_dfine"  # whose traced file is the row `onnx`
CLASSES = 80
_ON_PICTURES = ("data=images", f"data.folder={PICTURES}")


@dataclass(frozen=True)
class Entry:
    """A row of the zoo.

    Attributes:
        name: of the row.
        source: choice of `model`, without a size or task.
        architecture: in words.
        overrides: of the configuration, on the command line.
        shape: of `transformers`: the configuration's model_type and what is not its default.
        size: of pictures, height and width, for a processor's configuration.
        trained: whether there are weights to trust; without them detections mean nothing.
        optional: needs the environment with torchvision (`make test-lightly` makes it).
    """

    name: str
    source: str
    architecture: str
    overrides: tuple[str, ...]
    shape: tuple[str, Mapping[str, Any]] | None = None
    size: int = 640
    trained: bool = False
    optional: bool = False


_RESNET18 = {
    "model_type": "rt_detr_resnet",
    "embedding_size": 64,
    "hidden_sizes": [64, 128, 256, 512],
    "depths": [2, 2, 2, 2],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
_RT_DETR_R18 = {
    "backbone_config": _RESNET18,
    "encoder_in_channels": [128, 256, 512],
    "decoder_layers": 3,
    "hidden_expansion": 0.5,
}
_HGNET_B0 = {
    "model_type": "hgnet_v2",
    "stem_channels": [3, 16, 16],
    "stage_in_channels": [16, 64, 256, 512],
    "stage_mid_channels": [16, 32, 64, 128],
    "stage_out_channels": [64, 256, 512, 1024],
    "stage_num_blocks": [1, 1, 2, 1],
    "stage_downsample": [False, True, True, True],
    "stage_light_block": [False, False, True, True],
    "stage_kernel_size": [3, 3, 5, 5],
    "stage_numb_of_layers": [3, 3, 3, 3],
    "hidden_sizes": [64, 256, 512, 1024],
    "use_learnable_affine_block": True,
    "out_features": ["stage3", "stage4"],
}
_NANO = {  # D-FINE-N and DEIMv2-N: two levels of 128 channels
    "backbone_config": _HGNET_B0,
    "encoder_in_channels": [512, 1024],
    "encoder_hidden_dim": 128,
    "encoder_ffn_dim": 512,
    "encode_proj_layers": [1],
    "feat_strides": [16, 32],
    "hidden_expansion": 0.34,
    "depth_mult": 0.5,
    "d_model": 128,
    "decoder_in_channels": [128, 128],
    "decoder_ffn_dim": 512,
    "decoder_layers": 3,
    "decoder_n_points": [6, 6],
    "num_feature_levels": 2,
}
_RESNET50 = {"model_type": "resnet", "out_features": ["stage4"]}
_LW_DETR_TINY = {
    "backbone_config": {
        "model_type": "lw_detr_vit",
        "hidden_size": 192,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "image_size": 640,
        "window_block_indices": [0, 2, 4],
        "num_windows": 16,
        "out_indices": [2, 4, 6],
    },
    "projector_scale_factors": [1.0],
    "decoder_n_points": 2,
    "num_queries": 100,
}
_RF_DETR_NANO = {
    "backbone_config": {
        "model_type": "rf_detr_dinov2",
        "hidden_size": 384,
        "num_attention_heads": 6,
        "image_size": 384,
        "patch_size": 16,
        "num_windows": 2,
        "out_indices": [3, 6, 9, 12],
    },
    "decoder_layers": 2,
    "decoder_n_points": 2,
}
_YOLOS_TINY = {
    "hidden_size": 192,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "image_size": [512, 512],
    "num_detection_tokens": 100,
}
_VIT_TINY = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}


def _hugging_face(model_type: str, architecture: str, shape: Mapping[str, Any], size: int = 640) -> Entry:
    named = ("model=huggingface", f"model.options.id=./{FOLDER}/{model_type}", "model.options.random=true")
    overrides = (*named, *_ON_PICTURES)
    return Entry(model_type, "huggingface", architecture, overrides, (model_type, shape), size)


def _classifier(model_type: str, architecture: str, shape: Mapping[str, Any]) -> Entry:
    overrides = (
        "model=huggingface_classifier",
        f"model.options.id=./{FOLDER}/{model_type}",
        "model.options.random=true",
        *_ON_PICTURES,
    )
    return Entry(f"{model_type}_classifier", "huggingface", architecture, overrides, (model_type, shape), 224)


def _ltdetr(decoder: str) -> list[Entry]:
    chosen = f"decoder={decoder}"
    named = {"dfine": "D-FINE", "rtdetrv2": "RT-DETRv2"}[decoder]
    return [
        Entry(
            f"ltdetr_nano_{decoder}",
            "ltdetr",
            f"LT-DETR, embedded, {named}, 128x128",
            ("model=ltdetr_nano", chosen),
            trained=True,
        ),
        Entry(
            f"ltdetr_{decoder}",
            "ltdetr",
            f"LT-DETR, ConvNeXt-Tiny, {named}, 640x640",
            ("model=ltdetr", chosen, *_ON_PICTURES),
        ),
        Entry(
            f"ltdetr_vit_{decoder}",
            "ltdetr",
            f"LT-DETR, ViT-Tiny, {named}, 640x640",
            ("model=ltdetr_vit", chosen, *_ON_PICTURES),
        ),
    ]


def _lightly_train() -> list[Entry]:
    return [
        Entry(
            f"lightly_train_{decoder}",
            "lightly_train",
            f"LT-DETR, DINOv3 ViT-Tiny, {named}, 640x640",
            (
                "model=lightly_train",
                f"decoder={decoder}",
                "model.options.name=dinov3/vitt16-ltdetr",
                "model.options.random=true",
                *_ON_PICTURES,
            ),
            optional=True,
        )
        for decoder, named in (("dfine", "D-FINE"), ("rtdetrv2", "RT-DETRv2"))
    ]


def _optional(choice: str, name: str, architecture: str, *overrides: str) -> Entry:
    key = "model_name" if choice == "timm" else "name"
    chosen = (f"model={choice}", f"model.options.kwargs.{key}={name}", *overrides, *_ON_PICTURES)
    return Entry(f"{choice}_{name}", choice.removesuffix("_classifier"), architecture, chosen, optional=True)


ENTRIES = [
    *_ltdetr("dfine"),
    *_ltdetr("rtdetrv2"),
    _hugging_face("rt_detr", "RT-DETR, ResNet-18, 640x640", _RT_DETR_R18),
    _hugging_face("rt_detr_v2", "RT-DETRv2, ResNet-18, 640x640", _RT_DETR_R18),
    _hugging_face("d_fine", "D-FINE-N, HGNetv2-B0, 640x640", _NANO),
    _hugging_face("deimv2", "DEIMv2-N, HGNetv2-B0, 640x640", _NANO),
    _hugging_face("lw_detr", "LW-DETR-tiny, 640x640", _LW_DETR_TINY),
    _hugging_face("rf_detr", "RF-DETR-nano, DINOv2-S in windows, 384x384", _RF_DETR_NANO, 384),
    _hugging_face("detr", "DETR, ResNet-50, 640x640", {"backbone_config": _RESNET50}),
    _hugging_face("conditional_detr", "Conditional DETR, ResNet-50, 640x640", {"backbone_config": _RESNET50}),
    _hugging_face(
        "deformable_detr",
        "Deformable DETR, ResNet-50, 640x640",
        {"backbone_config": _RESNET50 | {"out_features": ["stage2", "stage3", "stage4"]}},
    ),
    _hugging_face("yolos", "YOLOS-tiny, 512x512", _YOLOS_TINY, 512),
    *_lightly_train(),
    _optional("torchvision", "ssdlite320_mobilenet_v3_large", "SSDlite, MobileNetV3-Large, 320x320"),
    _optional("torchvision", "fcos_resnet50_fpn", "FCOS, ResNet-50, 640x640", "model.image_size=[640,640]"),
    _optional("torchvision_classifier", "resnet18", "ResNet-18, 224x224"),
    _optional("timm", "mobilenetv3_small_050", "MobileNetV3-Small 0.5, 224x224"),
    Entry(
        "torch",
        "torch",
        "a residual network of our own, 100 classes, 224x224",
        (
            "model=torch",
            "model.options.factory=benchmarks.zoo_models:residual",
            "model.image_size=[224,224]",
            "model.outputs=[{name: logits, kind: classes}]",
            *_ON_PICTURES,
        ),
    ),
    Entry(
        "onnx",
        "onnx",
        "the embedded D-FINE's traced file, 128x128",
        (
            "model=onnx",
            f"model.checkpoint={FOLDER}/{TRACED}.onnx",
            "model.image_size=[128,128]",
            *("data=digits", "data.calibration_samples=32", "data.verification_samples=64"),
        ),
        trained=True,
    ),
    _classifier("resnet", "ResNet-18, 224x224", _RESNET18 | {"model_type": "resnet", "out_features": None}),
    _classifier("vit", "ViT-tiny, 224x224", _VIT_TINY),
]


def residual() -> Any:
    """A module of one's own, as a user has it: the factory of the row `torch`."""
    from tests.measuring.half_networks import convolutional

    return convolutional()[0]


def write_configurations(folder: Path) -> None:
    """The configurations of all entries of `transformers`, each in a folder of its own."""
    import transformers

    for entry in ENTRIES:
        if entry.shape is None:
            continue
        model_type, changes = entry.shape
        kept = {key: value for key, value in changes.items() if value is not None and key != "model_type"}
        place = folder / model_type
        transformers.AutoConfig.for_model(model_type, num_labels=CLASSES, **kept).save_pretrained(place)
        processor = {
            **{"do_resize": True, "size": {"height": entry.size, "width": entry.size}},
            **{"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True},
            **{"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
        }
        (place / "preprocessor_config.json").write_text(json.dumps(processor))
