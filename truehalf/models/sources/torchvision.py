"""A detector or classifier of torchvision, by name; weights by name, from a file, or random.

Detectors of one stage (SSD, RetinaNet, FCOS) output their candidates before NMS, see
truehalf.models.architectures.candidates. Detectors of two stages (Faster, Mask and Keypoint R-CNN) are refused: NMS
lies between their stages, so the number of boxes that the second one takes depends on the image, and so does the size
of every tensor after it.

Weights by name are those that torchvision's functions load, from torch's cache, which is filled on demand. They are
read as data first, only tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError, failing
from truehalf.io_spec.spec import OutputSpec
from truehalf.models import common_problems
from truehalf.models.architectures.candidates import candidates
from truehalf.models.calling import calling, tried
from truehalf.models.checkpoints import files as files
from truehalf.models.declared import declared_inputs, named_classes
from truehalf.models.extras import extra
from truehalf.models.libraries.torchvision_network import (
    Options,
    check_name,
    chosen_weights,
    known_weights,
    opened_network,
    settle,
)
from truehalf.models.model import Input, Model, Task

if TYPE_CHECKING:
    import torch

MOST_CANDIDATES = 3840  # of TensorRT's TopK
_STRIDE = 32  # of the features of RetinaNet and FCOS: sides are its multiples


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
    options = config.model.options
    yield from common_problems.own_decoder(config)
    if not options.name:
        yield coded(
            "needs-value",
            "model.options.name: expected the name of a model of torchvision, such as model.options.name=ssd300_vgg16",
        )
    yield from common_problems.by_name(config, "the weights'", "models of torchvision take")
    yield from _problems_of_task(config)


def _problems_of_task(config: Config) -> Iterator[str]:
    model, options = config.model, config.model.options
    if options.task is Task.classification:
        if options.candidates is not None:
            message = f"model.options.candidates: of detectors; expected null of a classifier, got {options.candidates}"
            yield coded("in-conflict", message)
        return
    if options.candidates is None or not 1 <= options.candidates <= MOST_CANDIDATES:
        message = f"model.options.candidates: expected 1 to {MOST_CANDIDATES} (TensorRT), got {options.candidates}"
        yield coded("out-of-range", message)
    given = [key for key in ("range", "mean", "std") if getattr(model.preprocessing, key) is not None]
    if given:
        message = f"model.preprocessing.{', '.join(given)}: a detector normalises RGB 0..1 itself; expected null"
        yield coded("in-conflict", message)
    for axis in config.trace.dynamic_axes.get("images", {}):
        if axis:
            message = f"trace.dynamic_axes.images: axis {axis} cannot vary: anchors fix model.image_size; axis 0 can"
            yield coded("axis-fixed", message)


def open_model(config: Config, root: Path) -> Model:
    """The model with its weights, or with seeded random ones.

    Raises:
        StageError: when torchvision is not installed or does not fit torch; when it has no such model or weights, or
            the model cannot be a graph of fixed sizes; when weights can neither be found nor downloaded, or do not fit;
            when `model.classes` are not as many as the weights have; when the size is not known or not possible.
    """
    extra("torchvision")
    options: Options = config.model.options
    assert options.name is not None, "checked by problems"
    check_name(options)
    known = known_weights(options)
    weights = chosen_weights(options, known)
    detector = options.task is Task.detection
    network, notes = opened_network(config, root, weights)
    inputs = [_input_of_detector(config, network)] if detector else _inputs_of_classifier(config, known, weights, notes)
    size = inputs[0].size
    if detector:
        with failing("module-fails", f"model.image_size: {options.name} fails on images of {size}"):
            module = candidates(network, size, options.candidates or 0)
        if weights is None and config.model.checkpoint is None:
            settle(module, size, config.seed)
        scores = OutputSpec("scores", "logits", activation="identity")
        outputs = [scores, OutputSpec("boxes", "boxes", format="xyxy", normalized=False)]
        notes.append(
            "outputs are candidates before NMS: several boxes of one object; average precision of them is below that "
            "of the detector with NMS, in FP32 and in FP16"
        )
    else:
        module, outputs = calling(network, ["0"]), [OutputSpec("logits", "classes")]
    count = int(tried(module, size, options.name)[1][0].shape[-1])
    return Model(
        module=module,
        inputs=inputs,
        outputs=outputs,
        class_names=_class_names(config, weights, count),
        trained=weights is not None or config.model.checkpoint is not None,
        notes=notes,
    )


# --- classes ----------------------------------------------------------------------------------------------------------


def _class_names(config: Config, weights: Any, count: int) -> list[str]:
    """Those that are configured, or the weights' (of SSD without background, which is the first), or numbers."""
    known = map(str, range(count) if weights is None else weights.meta["categories"])
    return named_classes(config, count, str(weights)) or list(known)[-count:]


# --- what goes in -----------------------------------------------------------------------------------------------------


def _input_of_detector(config: Config, network: torch.nn.Module) -> Input:
    """Normalisation is inside the graph, with the detector's mean and std."""
    transform: Any = network.transform
    fixed = transform.fixed_size
    resize = "stretch" if fixed is not None else "letterbox"
    size = None if fixed is None else [fixed[1], fixed[0]]  # of width and height
    (declared,) = declared_inputs(config, Preprocessing(size=size, resize=resize))
    assert declared.preprocessing is not None
    name, size = config.model.options.name, declared.preprocessing.size
    if size is None:
        raise StageError(
            "needs-value",
            f"model.image_size: {name} takes images of any size (the shorter side {transform.min_size[0]}, the "
            f"longer one at most {transform.max_size}), and a traced model has one; set model.image_size=[height, "
            f"width], multiples of {_STRIDE}, such as [{transform.min_size[0]}, {transform.min_size[0]}]",
        )
    if fixed is None and any(side % _STRIDE for side in size):
        raise StageError("out-of-range", f"model.image_size: {name} takes multiples of {_STRIDE}, got {size}")
    normalized = {"mean": list(transform.image_mean), "std": list(transform.image_std)}
    return Input(declared.name, preprocessing=declared.preprocessing, normalized=normalized)


def _inputs_of_classifier(config: Config, known: Any, weights: Any, notes: list[str]) -> list[Input]:
    """By the transforms of the weights; without any by those that the model has by default."""
    chosen = weights or known.DEFAULT
    transforms: Any = chosen.transforms()
    side = transforms.crop_size[0]
    if weights is None:
        notes.append(f"preprocessing: that of {chosen}, where model.preprocessing does not say another")
    inputs = declared_inputs(
        config,
        Preprocessing(
            size=[side, side],
            mean=tuple(transforms.mean),
            std=tuple(transforms.std),
            resample=transforms.interpolation.value,
        ),
    )
    height, width = inputs[0].size
    notes.append(
        f"preprocessing: {chosen} resizes the shorter side to {transforms.resize_size[0]} and cuts {side} x {side} "
        f"out of the middle; here the whole image is resized to {height} x {width}"
    )
    return inputs
