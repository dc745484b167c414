"""Checkpoints and names of lightly-train as a wanted network: classes, size, tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.config.schema import Config
from truehalf.errors import StageError
from truehalf.models.checkpoints import PICKLED, read_checkpoint, read_pickle
from truehalf.models.declared import named_classes
from truehalf.models.libraries.lightly_names import DETECTORS, detector, downloaded, names, version

if TYPE_CHECKING:
    import torch

_SIZE = (640, 640)  # where neither a checkpoint nor the configuration says one
_CLASSES = 80  # of random weights, where none are configured: as many as COCO has
_PREFIXES = ("ema_model.model.", "model.")  # of the network's tensors in a checkpoint; the averaged weights first
# Names that earlier releases gave to the tensors of the backbone.
_EARLIER = {f"backbone.{name}.": "backbone._model_wrapper._model." for name in ("dinov3", "dinov2", "backbone")}
# Of the arguments that a checkpoint gives: those that are set here, and those by which pickles would be loaded.
_SET_HERE = ("model_name", "classes", "image_size", "load_weights", "backbone_weights")
_OF_WEIGHTS = ("weights", "pretrained")
_CONVERSION = (
    "content = torch.load('{name}', weights_only=False, map_location='cpu'); torch.save({{key: content[key] for key in "
    "('model_class_path', 'model_init_args', 'train_model')}}, 'weights.pt'), paths in content['model_init_args'] made "
    "None before. Or take exported_models/exported_best.pt, which the training wrote beside checkpoints/best.ckpt"
)


@dataclass(frozen=True)
class Wanted:
    """A detector that is to be made.

    Attributes:
        name: as lightly-train registers it.
        classes: names by the number that the training gave them, in the order of the logits.
        size: height and width.
        further: other arguments of its class.
        tensors: of its network; None: random ones.
        label: what errors and notes call it.
    """

    name: str
    classes: dict[int, str]
    size: tuple[int, int]
    further: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] | None = None
    label: str = ""


def described(config: Config, root: Path) -> Wanted:
    options = config.model.options
    if options.name is not None:
        _check_name(options.name, "model.options.name")
    if config.model.checkpoint is not None:
        return _of_checkpoint(root / config.model.checkpoint, config, options.name)
    assert options.name is not None, "checked by problems"
    if options.random:
        classes = config.model.classes or [str(number) for number in range(_CLASSES)]
        return _of_name(options.name, classes, config)
    return _of_checkpoint(downloaded(options.name), config, None)


def _check_name(name: str, where: str) -> None:
    if not detector().is_supported_model(name):
        message = f"{where}: lightly-train {version()} has no LT-DETR {name!r}; it has {', '.join(names())}"
        raise StageError("unknown-choice", message)


def _of_name(name: str, classes: Iterable[str], config: Config) -> Wanted:
    return Wanted(
        name=name,
        classes=dict(enumerate(classes)),
        size=_size(config, _SIZE),
        further={"decoder_name": config.decoder.name.value},
        label=f"model.options.name: {name}",
    )


def _size(config: Config, known: tuple[int, int]) -> tuple[int, int]:
    height, width = config.model.image_size
    return known if height is None or width is None else (height, width)


def _of_checkpoint(path: Path, config: Config, name: str | None) -> Wanted:
    """What a checkpoint says; where it holds only tensors, what the configuration says.

    Args:
        name: that it has to be of; None: any.
    """
    content = read_pickle(path, _CONVERSION) if path.suffix in PICKLED and path.is_file() else None
    if not isinstance(content, Mapping) or not {"model_class_path", "model_init_args"} & set(content):
        return _of_tensors(path, config, name)
    model_class = str(content.get("model_class_path"))
    if model_class.rpartition(".")[2] not in DETECTORS:
        raise StageError(
            "wrong-file",
            f"weights: {path}: expected a checkpoint of LT-DETR for object detection, got one of {model_class}; other "
            "models of lightly-train can be made by a function of yours (model=torch)",
        )
    try:
        arguments = dict(content["model_init_args"])
        stored = str(arguments["model_name"])
        classes = {int(number): str(called) for number, called in arguments["classes"].items()}
        height, width = (int(side) for side in arguments["image_size"])
        tensors = dict(content["train_model"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StageError(
            "file-unreadable",
            f"weights: {path}: expected model_init_args with model_name, classes and image_size, and train_model with "
            f"tensors, as training writes them, but {type(error).__name__}: {error}; export it again",
        ) from error
    if name not in (None, stored):
        message = f"model.options.name: {path} is of {stored!r}; expected null or this name, got {name!r}"
        raise StageError("in-conflict", message)
    _check_name(stored, f"weights: {path}")
    further = {key: value for key, value in arguments.items() if key not in _SET_HERE}
    if isinstance(further.get("backbone_args"), Mapping):
        further["backbone_args"] = {k: v for k, v in further["backbone_args"].items() if k not in _OF_WEIGHTS}
    return Wanted(
        name=stored,
        classes=_renamed(classes, config, path),
        size=_size(config, (height, width)),
        further=further,
        tensors=_of_network(tensors),
        label=f"weights: {path}",
    )


def _renamed(classes: dict[int, str], config: Config, path: Path) -> dict[int, str]:
    """`model.classes`, where there are any, in place of the checkpoint's."""
    given = named_classes(config, len(classes), str(path))
    return classes if given is None else dict(zip(classes, given, strict=True))


def _of_tensors(path: Path, config: Config, name: str | None) -> Wanted:
    """Tensors with nothing beside them."""
    tensors = read_checkpoint(path).tensors
    if name is None or not config.model.classes:
        key, needed = ("model.classes", "names") if name else ("model.options.name", "a registered name")
        message = f"{key}: {path} has only tensors, and does not say what they are of; expected {needed}"
        raise StageError("needs-value", message)
    wanted = _of_name(name, config.model.classes, config)
    return replace(wanted, tensors=_of_network(tensors), label=f"weights: {path}")


def _of_network(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of the network, by the names that it gives them; of averaged weights and others the averaged ones."""
    prefix = next((each for each in _PREFIXES if any(name.startswith(each) for name in tensors)), "")
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    for earlier, now in _EARLIER.items():
        found = {now + n.removeprefix(earlier) if n.startswith(earlier) else n: each for n, each in found.items()}
    return found
