"""LT-DETR's shape: DINOv3-ConvNeXt backbone, hybrid encoder, D-FINE or RT-DETRv2 decoder (stages/models/ltdetr.py).

Normalisation is inside the graph: pictures go in as they are, RGB in 0..1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conf.schema import Config, DecoderName
from stages.data.preprocessing import Preprocessing
from stages.models import ltdetr
from stages.models.model import Input, Model, Output
from stages.models.weights import load_weights


@dataclass(frozen=True)
class ArchitectureOptions:
    """See stages.models.ltdetr.Architecture."""

    backbone_widths: list[int]
    backbone_depths: list[int]
    layer_scale_init: float
    d_model: int
    ffn_dim: int
    heads: int
    decoder_layers: int
    num_queries: int
    num_denoising: int


@dataclass(frozen=True)
class Options:
    """See model/ltdetr_nano.yaml.

    Attributes:
        attention_gain_log2: n: attention values times 2^n, the output projections that follow times 2^-n.
        mean, std: of RGB in 0..1; the model normalises by itself.
    """

    attention_gain_log2: int
    mean: list[float]
    std: list[float]
    architecture: ArchitectureOptions


def faults(config: Config) -> list[str]:
    """What is wrong with `model.*` beyond types."""
    return [*_faults_of_keys(config), *_faults_of_options(config.model.options)]


def _faults_of_keys(config: Config) -> Iterator[str]:
    model = config.model
    if config.decoder.name is DecoderName.none:
        yield "decoder: expected dfine or rtdetrv2, got none"
    if any(side is None or side < 32 or side % 32 for side in model.image_size):
        yield (
            "model.image_size: expected [height, width], multiples of 32 (the backbone's stride), got "
            f"{model.image_size}"
        )
    for axis in config.trace.dynamic_axes.get("images", {}):
        if axis:
            yield (
                f"trace.dynamic_axes.images: axis {axis} cannot vary: positions and anchors are baked for "
                "model.image_size; only the batch (axis 0) is dynamic"
            )
    if not model.classes:
        yield "model.classes: expected one or more different names, got none"
    if model.inputs is not None or model.outputs is not None or model.drop_outputs:
        yield "model.inputs, model.outputs, model.drop_outputs: are known of this source; expected null, null and []"


def _faults_of_options(options: Options) -> Iterator[str]:
    for name, values in (("mean", options.mean), ("std", options.std)):
        if len(values) != 3:
            yield f"model.options.{name}: expected three numbers (RGB), got {values}"
    if any(value <= 0 for value in options.std):
        yield f"model.options.std: expected numbers above 0, got {options.std}"
    if not 0 <= options.attention_gain_log2 <= 60:
        yield f"model.options.attention_gain_log2: expected 0 to 60, got {options.attention_gain_log2}"
    shape = options.architecture
    for name, widths in (("backbone_widths", shape.backbone_widths), ("backbone_depths", shape.backbone_depths)):
        if len(widths) != 4 or any(value < 1 for value in widths):
            yield (
                f"model.options.architecture.{name}: expected four positive integers (ConvNeXt's stages), got {widths}"
            )
    for name in ("d_model", "ffn_dim", "heads", "decoder_layers", "num_queries"):
        if getattr(shape, name) < 1:
            yield f"model.options.architecture.{name}: expected 1 or more, got {getattr(shape, name)}"
    if shape.num_denoising < 0:
        yield f"model.options.architecture.num_denoising: expected 0 or more, got {shape.num_denoising}"
    if shape.heads > 0 and shape.d_model % shape.heads:
        yield f"model.options.architecture.d_model: expected a multiple of heads ({shape.heads}), got {shape.d_model}"


def files(config: Config, root: Path) -> list[Path]:
    """The checkpoint, where there is one."""
    return [] if config.model.checkpoint is None else [root / config.model.checkpoint]


def open_model(config: Config, root: Path) -> Model:
    """The configured detector.

    Raises:
        StageError: when the weights are missing, corrupt or of another architecture.
    """
    options: Options = config.model.options
    classes = config.model.classes or []
    shape = dataclasses.asdict(options.architecture)
    arch = ltdetr.architecture(config.decoder.name.value, classes, options.mean, options.std, shape)
    detector = ltdetr.build(arch, config.seed)
    if config.model.checkpoint is not None:
        load_weights(detector.get_submodule("network"), root / config.model.checkpoint)
    if options.attention_gain_log2:
        ltdetr.scale_attention_values(detector, options.attention_gain_log2)
    return Model(
        module=detector.eval(),
        inputs=[
            Input(
                "images",
                preprocessing=Preprocessing(size=[side or 0 for side in config.model.image_size]),
                normalized={"mean": options.mean, "std": options.std},
            )
        ],
        outputs=[
            Output("logits", "logits", {"activation": "sigmoid"}),
            Output("boxes", "boxes", {"format": "cxcywh", "normalized": True}),
        ],
        class_names=classes,
        trained=config.model.checkpoint is not None,
    )
