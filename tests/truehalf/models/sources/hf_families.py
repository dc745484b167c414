"""The smallest real architecture of each family of detectors that `transformers` has, and of a few classifiers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMES = {0: "cat", 1: "dog", 2: "bird", 3: "fish", 4: "horse"}
PROCESSOR = {
    "do_resize": True,
    "size": {"height": 64, "width": 64},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.3, 0.25],
}
_RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
_LAST_OF_RESNET = _RESNET | {"out_features": ["stage4"]}
_RT_DETR_RESNET = _RESNET | {"model_type": "rt_detr_resnet"}
_HGNET = {
    "model_type": "hgnet_v2",
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 8, 16, 24],
    "stage_mid_channels": [8, 8, 8, 8],
    "stage_out_channels": [8, 16, 24, 32],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage2", "stage3", "stage4"],
}
_LW_DETR_VIT = {
    "model_type": "lw_detr_vit",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "mlp_ratio": 2,
    "image_size": 64,
    "pretrain_image_size": 64,
    "window_block_indices": [0],
    "num_windows": 4,
    "out_indices": [1, 2],
}
_RF_DETR_DINOV2 = {
    "model_type": "rf_detr_dinov2",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "mlp_ratio": 2,
    "image_size": 64,
    "patch_size": 8,
    "num_windows": 2,
    "out_indices": [1, 2],
}
_DETR = {
    "d_model": 32,
    "encoder_layers": 1,
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_layers": 2,
    "decoder_ffn_dim": 32,
    "decoder_attention_heads": 2,
    "num_queries": 10,
}
_RT_DETR = {
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [16, 24, 32],
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "d_model": 32,
    "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "num_queries": 10,
}
_LW_DETR = {
    "d_model": 32,
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_self_attention_heads": 2,
    "decoder_cross_attention_heads": 2,
    "num_queries": 10,
    "group_detr": 2,
    "c2f_num_blocks": 1,
}
DETECTORS: dict[str, dict[str, Any]] = {
    "rt_detr": _RT_DETR | {"backbone_config": _RT_DETR_RESNET},
    "rt_detr_v2": _RT_DETR | {"backbone_config": _RT_DETR_RESNET},
    "d_fine": _RT_DETR | {"backbone_config": _HGNET},
    "deimv2": _RT_DETR | {"backbone_config": _HGNET},
    "lw_detr": _LW_DETR | {"backbone_config": _LW_DETR_VIT, "projector_scale_factors": [2.0, 0.5]},
    "rf_detr": _LW_DETR | {"backbone_config": _RF_DETR_DINOV2},
    "detr": _DETR | {"backbone_config": _LAST_OF_RESNET},
    "conditional_detr": _DETR | {"backbone_config": _LAST_OF_RESNET},
    "deformable_detr": _DETR | {"backbone_config": _RESNET, "num_feature_levels": 4, "d_model": 64},
    "dab-detr": {
        "backbone_config": _LAST_OF_RESNET,
        "hidden_size": 32,
        "encoder_layers": 1,
        "encoder_ffn_dim": 32,
        "encoder_attention_heads": 2,
        "decoder_layers": 2,
        "decoder_ffn_dim": 32,
        "decoder_attention_heads": 2,
        "num_queries": 10,
    },
    "table-transformer": _DETR | {"backbone_config": _LAST_OF_RESNET},
    "yolos": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": [64, 64],
        "num_detection_tokens": 10,
    },
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "resnet": {key: value for key, value in _RESNET.items() if key not in ("model_type", "out_features")},
    "vit": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 64,
    },
}


def configuration(model_type: str) -> Any:
    """A configuration of `transformers` with five classes."""
    import transformers

    shape = (DETECTORS | CLASSIFIERS)[model_type]
    names = {"id2label": NAMES, "label2id": {name: number for number, name in NAMES.items()}}
    return transformers.AutoConfig.for_model(model_type, **shape, **names)


def network(model_type: str, seed: int = 0) -> Any:
    """The model of that configuration, in eval mode, with seeded weights whose scores are apart.

    `transformers` begins RT-DETR's convolutions and batch norms so small that all queries score alike.
    """
    import torch
    import transformers

    detects = model_type in DETECTORS
    auto: Any = transformers.AutoModelForObjectDetection if detects else transformers.AutoModelForImageClassification
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = auto.from_config(configuration(model_type))
        for part in made.modules():
            if isinstance(part, (torch.nn.Conv2d, torch.nn.BatchNorm2d)):
                part.reset_parameters()
    return made.eval()


def saved(folder: Path, model_type: str, **processor: Any) -> Any:
    """That model as a folder, with weights and a processor's configuration; returns the model."""
    made = network(model_type)
    made.save_pretrained(folder)
    write_processor(folder, **processor)
    return made


def write_processor(folder: Path, **changes: Any) -> None:
    content = PROCESSOR | changes
    kept = {key: value for key, value in content.items() if value is not None}
    (folder / "preprocessor_config.json").write_text(json.dumps(kept))
