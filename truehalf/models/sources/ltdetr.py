"""LT-DETR's shape: DINOv3 backbone (ConvNeXt or ViT), hybrid encoder, D-FINE or RT-DETRv2 decoder
(truehalf/models/architectures/ltdetr.py).

Normalisation is inside the graph: images go in as they are, RGB in 0..1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from truehalf.codes import coded
from truehalf.config.options import key
from truehalf.config.schema import Config, DecoderName
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import failing
from truehalf.models.architectures.attention_gain import scale_attention_values
from truehalf.models.architectures.ltdetr import Architecture, build
from truehalf.models.checkpoints import files as files
from truehalf.models.common_problems import declared_needlessly
from truehalf.models.model import QUERIES, Input, Model
from truehalf.models.weights import load_weights


@dataclass(frozen=True)
class Options:
    """See model/ltdetr_nano.yaml.

    Attributes:
        attention_gain_log2: n: attention values times 2^n, the output projections that follow times 2^-n.
        mean, std: of RGB in 0..1; the model normalises by itself.
    """

    mean: list[float]
    std: list[float]
    architecture: Architecture
    attention_gain_log2: int = key(..., "of attention values; the projections that follow undo it", least=0, most=60)


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
    model = config.model
    if config.decoder.name is DecoderName.none:
        yield coded("in-conflict", "decoder: expected dfine or rtdetrv2, got none")
    if any(side is None or side < 32 or side % 32 for side in model.image_size):
        message = f"model.image_size: expected multiples of 32 (the backbone's stride), got {list(model.image_size)}"
        yield coded("out-of-range", message)
    if 1 in config.trace.dynamic_axes.get("images", {}):
        yield coded("axis-fixed", "trace.dynamic_axes.images: axis 1 cannot vary: images have three channels")
    for i, profile in enumerate(config.engine.profiles or ()):
        for name, shape in dataclasses.asdict(profile["images"]).items() if "images" in profile else ():
            if any(side is not None and side % 32 for side in shape[2:]):
                message = f"engine.profiles[{i}].images.{name}: expected multiples of 32, got {list(shape)}"
                yield coded("out-of-range", message)
    if not model.classes:
        yield coded("needs-value", "model.classes: expected one or more different names, got none")
    yield from declared_needlessly(config)
    yield from _problems_of_options(config.model.options)


def _problems_of_options(options: Options) -> Iterator[str]:
    for name, values in (("mean", options.mean), ("std", options.std)):
        if len(values) != 3:
            yield coded("wrong-shape", f"model.options.{name}: expected three numbers (RGB), got {values}")
    if any(value <= 0 for value in options.std):
        yield coded("out-of-range", f"model.options.std: expected numbers above 0, got {options.std}")
    backbone = options.architecture.backbone
    if (backbone.convnext is None) == (backbone.vit is None):
        got = "both" if backbone.vit else "neither"
        message = f"model.options.architecture.backbone: expected one of convnext and vit, the other null; got {got}"
        yield coded("in-conflict" if backbone.vit else "needs-value", message)


def open_model(config: Config, root: Path) -> Model:
    """The configured detector.

    Raises:
        StageError: when sizes of the architecture do not fit each other; when the weights are missing, corrupt or of
            another architecture.
    """
    options: Options = config.model.options
    classes = list(config.model.classes or ())
    shape, decoder = options.architecture, config.decoder.name.value
    with failing("module-fails", f"model.options.architecture: no detector can be made of {shape}"):
        detector = build(shape, decoder, len(classes), config.seed, options.mean, options.std)
    if config.model.checkpoint is not None:
        load_weights(detector.get_submodule("network"), root / config.model.checkpoint)
    if options.attention_gain_log2:
        scale_attention_values(detector, options.attention_gain_log2)
    return Model(
        module=detector.eval(),
        inputs=[
            Input(
                "images",
                preprocessing=Preprocessing(size=[side or 0 for side in config.model.image_size]),
                normalized={"mean": options.mean, "std": options.std},
            )
        ],
        outputs=QUERIES,
        class_names=classes,
        trained=config.model.checkpoint is not None,
    )
