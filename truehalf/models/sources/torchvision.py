"""A detector or classifier of torchvision, by name; weights by name, from a file, or random.

Detectors of one stage (SSD, RetinaNet, FCOS) put out their candidates before NMS, see
truehalf.models.architectures.candidates. Detectors of two stages (Faster, Mask and Keypoint R-CNN) are refused: NMS
lies between their stages, so the number of boxes that the second one takes depends on the picture, and so does the size
of every tensor behind it.

Weights by name are those that torchvision's own functions load, from torch's cache, which is filled on demand. They are
read as data first, tensors alone.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError, first_line, typed_line
from truehalf.models.architectures.candidates import candidates
from truehalf.models.calling import calling
from truehalf.models.checkpoints import read_checkpoint
from truehalf.models.common_faults import (
    another_layout,
    declared_needlessly,
    half_a_size,
    key_of_no_checkpoint,
    own_decoder,
    two_kinds_of_weights,
)
from truehalf.models.declared import declared_inputs
from truehalf.models.extras import extra
from truehalf.models.model import Input, Model, Output
from truehalf.models.weights import load_weights

if TYPE_CHECKING:
    import torch

MOST_CANDIDATES = 3840  # of TensorRT's TopK
_STRIDE = 32  # of the features of RetinaNet and FCOS: sides are its multiples
_TRACKED = "num_batches_tracked"


class Task(Enum):
    detection = "detection"
    classification = "classification"


@dataclass(frozen=True)
class Options:
    """See model/torchvision.yaml.

    Attributes:
        task: where the name is looked for.
        name: as torchvision.models.list_models() has it.
        weights: of the model's weights in torchvision: COCO_V1, IMAGENET1K_V2, or DEFAULT; null: none of these.
        candidates: of a detector, how many a picture has before NMS; null of a classifier.
        key: where in the checkpoint's mapping the state dict is; null: where it is found.
        prefix: taken off every name in the checkpoint.
    """

    task: Task
    name: str | None
    weights: str | None
    candidates: int | None
    key: str | None
    prefix: str | None


def faults(config: Config) -> list[str]:
    """What is wrong with `model.*` beyond types."""
    return [*_faults_of_keys(config), *_faults_of_task(config)]


def _faults_of_keys(config: Config) -> Iterator[str]:
    options = config.model.options
    yield from own_decoder(config)
    if not options.name:
        yield coded(
            "needs-value",
            "model.options.name: expected the name of a model of torchvision, such as model.options.name=ssd300_vgg16",
        )
    yield from two_kinds_of_weights(config)
    yield from key_of_no_checkpoint(config)
    yield from half_a_size(config, "the weights'")
    yield from another_layout(config, "models of torchvision take")
    yield from declared_needlessly(config)


def _faults_of_task(config: Config) -> Iterator[str]:
    model, options = config.model, config.model.options
    if options.task is Task.classification:
        if options.candidates is not None:
            yield coded(
                "in-conflict",
                f"model.options.candidates: of detectors; expected null of a classifier, got {options.candidates}",
            )
        return
    if options.candidates is None or not 1 <= options.candidates <= MOST_CANDIDATES:
        yield coded(
            "out-of-range",
            f"model.options.candidates: expected 1 to {MOST_CANDIDATES} (what TensorRT's TopK takes), got "
            f"{options.candidates}",
        )
    given = [key for key in ("range", "mean", "std") if getattr(model.preprocessing, key) is not None]
    if given:
        yield coded(
            "in-conflict",
            f"model.preprocessing.{', '.join(given)}: a detector of torchvision normalises RGB in 0..1 by itself, "
            "inside the graph; expected null",
        )
    for axis in config.trace.dynamic_axes.get("images", {}):
        if axis:
            yield coded(
                "axis-fixed",
                f"trace.dynamic_axes.images: axis {axis} cannot vary: anchors are baked for model.image_size; only the "
                "batch (axis 0) is dynamic",
            )


def files(config: Config, root: Path) -> list[Path]:
    """The checkpoint, where there is one; weights by name are those of the installed torchvision."""
    return [] if config.model.checkpoint is None else [root / config.model.checkpoint]


def open_model(config: Config, root: Path) -> Model:
    """The model with its weights, or with seeded random ones.

    Raises:
        StageError: when torchvision is not installed or does not fit torch; when it has no such model or weights, or
            the model cannot be a graph of fixed sizes; when weights can neither be found nor downloaded, or do not fit;
            when `model.classes` are not as many as the weights have; when the size is not known or not possible.
    """
    extra("torchvision")
    options: Options = config.model.options
    assert options.name is not None, "checked by faults"
    _check_name(options)
    known = _known_weights(options)
    weights = _weights(options, known)
    detector = options.task is Task.detection
    network, notes = _network(config, root, weights)
    inputs = [_input_of_detector(config, network)] if detector else _inputs_of_classifier(config, known, weights, notes)
    assert inputs[0].preprocessing is not None and inputs[0].preprocessing.size is not None
    size = inputs[0].preprocessing.size
    if detector:
        module = _explained_size(options.name, size, lambda: candidates(network, size, options.candidates or 0))
        if weights is None and config.model.checkpoint is None:
            _settle(module, size, config.seed)
        scores = Output("scores", "logits", {"activation": "identity"})
        outputs = [scores, Output("boxes", "boxes", {"format": "xyxy", "normalized": False})]
        notes.append(
            "outputs are candidates before NMS: several boxes of one object; average precision of them is below that "
            "of the detector with NMS, in FP32 and in FP16"
        )
    else:
        module, outputs = calling(network, ["0"]), [Output("logits", "classes")]
    count = _explained_size(options.name, size, lambda: _classes_of_output(module, size))
    return Model(
        module=module,
        inputs=inputs,
        outputs=outputs,
        class_names=_class_names(config, weights, count),
        trained=weights is not None or config.model.checkpoint is not None,
        notes=notes,
    )


# --- the model's name and weights -------------------------------------------------------------------------------------


def _check_name(options: Options) -> None:
    """Refuse what is no model of this task, or none of one stage."""
    name = options.name or ""
    names = {task: _names(task) for task in Task}
    if name not in names[options.task]:
        other = next((task for task in Task if name in names[task]), None)
        if other is not None:
            choice = "torchvision" if other is Task.detection else "torchvision_classifier"
            raise StageError("in-conflict", f"model.options.task: {name} is a model for {other.value}: model={choice}")
        near = difflib.get_close_matches(name, names[options.task], n=3)
        said = f"; did you mean {' or '.join(near)}?" if near else ""
        raise StageError(
            "unknown-choice",
            f"model.options.name: torchvision has no model {name!r} for {options.task.value}{said} It has "
            f"{', '.join(names[options.task])}",
        )
    if options.task is Task.detection and "rcnn" in name:
        one_stage = [each for each in names[options.task] if "rcnn" not in each]
        raise StageError(
            "not-supported",
            f"model.options.name: {name} has two stages with NMS between them: how many boxes reach the second one "
            "depends on the picture, and so does the size of every tensor behind it, which no graph of fixed sizes can "
            f"hold. Take a detector of one stage ({', '.join(one_stage)}), or export it yourself and give the file: "
            "model=onnx model.checkpoint=<file>",
        )


def _names(task: Task) -> list[str]:
    import torchvision

    models = torchvision.models
    return list(models.list_models(module=models.detection if task is Task.detection else models))


def _known_weights(options: Options) -> Any:
    """The enumeration of the model's weights."""
    import torchvision

    return torchvision.models.get_model_weights(options.name)


def _weights(options: Options, known: Any) -> Any:
    """The named one; None where none is named."""
    if options.weights is None:
        return None
    name = options.weights.rpartition(".")[2]
    if name not in known.__members__:
        raise StageError(
            "unknown-choice",
            f"model.options.weights: {options.name} has no weights {options.weights!r} in torchvision; expected "
            f"{', '.join(known.__members__)} or null",
        )
    return known[name]


def _network(config: Config, root: Path, weights: Any) -> tuple[torch.nn.Module, list[str]]:
    """The network in eval mode, in FP32, and what is to be said of its weights."""
    import torch
    import torchvision

    options: Options = config.model.options
    checkpoint = None if config.model.checkpoint is None else root / config.model.checkpoint
    build = torchvision.models.get_model_builder(options.name)
    keywords: dict[str, Any] = {"weights": weights, "progress": False}
    if weights is not None:
        _fetched(weights)
    else:
        if "weights_backbone" in inspect.signature(build).parameters:
            keywords["weights_backbone"] = None
        if (number := _number_of_classes(config)) is not None:
            keywords["num_classes"] = number
        if options.name in ("googlenet", "inception_v3"):  # a warning of theirs asks for it
            keywords["init_weights"] = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network: torch.nn.Module = build(**keywords).eval()
    if weights is not None:
        return network, [f"weights: {weights} of torchvision {torchvision.__version__}"]
    if checkpoint is None:
        return network, [f"{options.name}: seeded random weights; none were read"]
    tensors = read_checkpoint(checkpoint, options.key).tensors
    _count_batches_as(network, {name.removeprefix(options.prefix or "") for name in tensors})
    return network, [load_weights(network, checkpoint, options.key, options.prefix or "")]


def _settle(module: torch.nn.Module, size: list[int], seed: int) -> None:
    """Give the batch norms of random weights the statistics of noise.

    Untrained ones pass on what comes in, which grows small layer by layer: all anchors score alike then, which of them
    are taken is chance, and in FP16 nothing is left.
    """
    import torch

    norms: list[Any] = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        module(torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(seed)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _count_batches_as(network: torch.nn.Module, names: set[str]) -> None:
    """Drop the counters of batches that a file does not have: of detectors whose batch norms were frozen in training,
    which count none. They mean nothing in eval mode.
    """
    for path, part in network.named_modules():
        if getattr(part, _TRACKED, None) is not None and f"{path}.{_TRACKED}" not in names:
            part.num_batches_tracked = None


def _fetched(weights: Any) -> None:
    """Download weights into torch's cache where they are not there yet, and read them as data: tensors alone."""
    import torch

    folder = Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / weights.url.rpartition("/")[2]
    try:
        weights.get_state_dict(progress=False, check_hash=True, map_location="cpu", weights_only=True)
    except Exception as error:  # of the network, of a full disk, of a file that is cut off or is no file of tensors
        said = first_line(error)
        if path.is_file():
            raise StageError(
                "file-unreadable",
                f"model.options.weights: {path}: cannot be read as {weights}: {said}; delete it, and it is downloaded "
                "again",
            ) from error
        raise StageError(
            "download-fails",
            f"model.options.weights: {weights} is not in torch's cache and cannot be downloaded: {said}. Where there "
            f"is a network, download {weights.url}; put it here as {path} (TORCH_HOME moves the cache)",
        ) from error


# --- classes ----------------------------------------------------------------------------------------------------------


def _number_of_classes(config: Config) -> int | None:
    """What a network that is not filled with torchvision's weights is made for; None: what it has by itself.

    The first class of SSD is background, which is no class of the model.
    """
    if config.model.classes is None:
        return None
    return len(config.model.classes) + str(config.model.options.name).startswith("ssd")


def _class_names(config: Config, weights: Any, count: int) -> list[str]:
    """Those that are configured, or the weights' (of SSD without background, which is the first), or numbers."""
    names = config.model.classes
    if names is None and weights is None:
        return [str(number) for number in range(count)]
    if names is None:
        return [str(name) for name in weights.meta["categories"]][-count:]
    if len(names) != count:
        raise StageError(
            "wrong-class-count",
            f"model.classes: {weights} has {count}; expected as many names or null, got {len(names)}",
        )
    return list(names)


# --- what goes in -----------------------------------------------------------------------------------------------------


def _input_of_detector(config: Config, network: torch.nn.Module) -> Input:
    """Normalisation is inside the graph, with the detector's own mean and std."""
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
            f"model.image_size: {name} takes pictures of any size (the shorter side {transform.min_size[0]}, the "
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
    assert inputs[0].preprocessing is not None and inputs[0].preprocessing.size is not None
    height, width = inputs[0].preprocessing.size
    notes.append(
        f"preprocessing: {chosen} resizes the shorter side to {transforms.resize_size[0]} and cuts {side} x {side} "
        f"out of the middle; here the whole picture is resized to {height} x {width}"
    )
    return inputs


def _classes_of_output(module: torch.nn.Module, size: list[int]) -> int:
    """How many there are in the first output for a picture of this size."""
    import torch

    with torch.no_grad():
        return int(module(torch.zeros(1, 3, *size))[0].shape[-1])


def _explained_size(name: str, size: list[int], make: Any) -> Any:
    """What `make` returns; its errors as ours: what is left that can go wrong is the size."""
    try:
        return make()
    except Exception as error:
        raise StageError(
            "module-fails", f"model.image_size: {name} fails on pictures of {size}: {typed_line(error)}"
        ) from error
