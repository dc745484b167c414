"""LT-DETR itself, from lightly-train: a checkpoint of its training, or a registered name.

lightly-train is AGPL-3.0 and no part of this project; it is imported when this source is chosen, and only here. Its
public `load_model` loads pickles as programs, and imports whatever module a checkpoint names. So the detector is made
by its class, which is private; all private names (those of 0.18.0) stand at the end of this file, and nowhere else.

A checkpoint says its architecture, decoder, size, normalisation and class names by itself. What lightly-train does to a
network before it exports it (convolutions fused, layers for training dropped, gathers in place of GridSample) is done
to a copy, for the export alone.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config, DecoderName
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError, typed_line
from truehalf.models.calling import calling
from truehalf.models.checkpoints import PICKLED, read_checkpoint, read_pickle
from truehalf.models.common_faults import another_layout, declared_needlessly, half_a_size
from truehalf.models.declared import declared_inputs
from truehalf.models.model import Model, Output
from truehalf.models.weights import fill

if TYPE_CHECKING:
    import torch

_SIZE = (640, 640)  # where neither a checkpoint nor the configuration says one
_CLASSES = 80  # of random weights, where none are configured: as many as COCO has
_PREFIXES = ("ema_model.model.", "model.")  # of the network's tensors in a checkpoint; the averaged weights first
# Names that earlier releases gave to the tensors of the backbone.
_EARLIER = {f"backbone.{name}.": "backbone._model_wrapper._model." for name in ("dinov3", "dinov2", "backbone")}
_DETECTORS = ("LTDETRObjectDetection", "DINOv3LTDETRObjectDetection", "DINOv2LTDETRObjectDetection")
# Of the arguments that a checkpoint gives: those that are set here, and those by which pickles would be loaded.
_SET_HERE = ("model_name", "classes", "image_size", "load_weights", "backbone_weights")
_OF_WEIGHTS = ("weights", "pretrained")
_CONVERSION = (
    "content = torch.load('{name}', weights_only=False, map_location='cpu'); torch.save({{key: content[key] for key in "
    "('model_class_path', 'model_init_args', 'train_model')}}, 'weights.pt'), paths in content['model_init_args'] made "
    "None before. Or take exported_models/exported_best.pt, which the training wrote beside checkpoints/best.ckpt"
)


@dataclass(frozen=True)
class Options:
    """See model/lightly_train.yaml.

    Attributes:
        name: as lightly-train registers it; null: the checkpoint's own.
        random: seeded random weights; else those of the checkpoint or, without one, those that lightly-train downloads.
    """

    name: str | None
    random: bool


@dataclass(frozen=True)
class _Wanted:
    """A detector that is to be made.

    Attributes:
        name: as lightly-train registers it.
        classes: names by the number that the training gave them, in the order of the logits.
        size: height and width.
        further: other arguments of its class.
        tensors: of its network; None: random ones.
        said: what errors and notes call it.
    """

    name: str
    classes: dict[int, str]
    size: tuple[int, int]
    further: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] | None = None
    said: str = ""


def faults(config: Config) -> list[str]:
    """What is wrong with `model.*` beyond types."""
    return list(_faults(config))


def _faults(config: Config) -> Iterator[str]:
    model, options = config.model, config.model.options
    if config.decoder.name is DecoderName.none:
        yield coded("in-conflict", "decoder: expected dfine or rtdetrv2, got none")
    if model.checkpoint is None and options.name is None:
        yield coded(
            "needs-value",
            "model.checkpoint: this model needs a checkpoint of lightly-train (model.checkpoint=exported_best.pt), or "
            "a registered name: model.options.name=dinov3/vitt16-ltdetr model.options.random=true",
        )
    if model.checkpoint is not None and options.random:
        yield coded(
            "in-conflict",
            "model.options.random: model.checkpoint has weights; expected false, or model.checkpoint=null, got true",
        )
    yield from half_a_size(config, "the checkpoint's")
    for axis in config.trace.dynamic_axes.get("images", {}):
        if axis:
            yield coded(
                "axis-fixed",
                f"trace.dynamic_axes.images: axis {axis} cannot vary: lightly-train makes positions and anchors for "
                "one size; only the batch (axis 0) is dynamic",
            )
    yield from another_layout(config, "LT-DETR takes")
    yield from declared_needlessly(config)


def files(config: Config, root: Path) -> list[Path]:
    """The checkpoint, where there is one."""
    return [] if config.model.checkpoint is None else [root / config.model.checkpoint]


def open_model(config: Config, root: Path) -> Model:
    """The detector with its weights, or with seeded random ones.

    Raises:
        StageError: when lightly-train is missing, broken or of a version with other private names; when the name is not
            known or has no weights to download; when the checkpoint cannot be read as data, is of another model, or
            says another name or decoder than the configuration; when the network cannot take pictures of this size.
    """
    _check_installed()
    wanted = _wanted(config, root)
    network = _network(wanted, config)
    preprocessing = _preprocessing(network, wanted)
    notes = [f"lightly-train {_version()} (AGPL-3.0), {wanted.name}", _weights(network, wanted)]
    numbers = list(wanted.classes)
    if numbers != list(range(len(numbers))):
        notes.append(f"numbers of the classes in training, in the order of the logits: {', '.join(map(str, numbers))}")
    pictures = _pictures(network, wanted)
    module = calling(network, ["logits", "boxes"])
    return Model(
        module=module,
        inputs=declared_inputs(config, preprocessing),
        outputs=[
            Output("logits", "logits", {"activation": "sigmoid"}),
            Output("boxes", "boxes", {"format": "cxcywh", "normalized": True}),
        ],
        class_names=list(wanted.classes.values()),
        trained=wanted.tensors is not None,
        prepared=lambda: _prepared(module, pictures),
        notes=notes,
    )


# --- what is wanted ---------------------------------------------------------------------------------------------------


def _wanted(config: Config, root: Path) -> _Wanted:
    options: Options = config.model.options
    if options.name is not None:
        _check_name(options.name, "model.options.name")
    if config.model.checkpoint is not None:
        return _of_checkpoint(root / config.model.checkpoint, config, options.name)
    assert options.name is not None, "checked by faults"
    if options.random:
        classes = config.model.classes or [str(number) for number in range(_CLASSES)]
        return _of_name(options.name, classes, config)
    return _of_checkpoint(_downloaded(options.name), config, None)


def _check_name(name: str, where: str) -> None:
    if not _detector().is_supported_model(name):
        raise StageError(
            "unknown-choice",
            f"{where}: lightly-train {_version()} has no LT-DETR {name!r}; it has {', '.join(_names())}",
        )


def _of_name(name: str, classes: list[str], config: Config) -> _Wanted:
    return _Wanted(
        name=name,
        classes=dict(enumerate(classes)),
        size=_size(config, _SIZE),
        further={"decoder_name": config.decoder.name.value},
        said=f"model.options.name: {name}",
    )


def _size(config: Config, known: tuple[int, int]) -> tuple[int, int]:
    height, width = config.model.image_size
    return known if height is None or width is None else (height, width)


def _of_checkpoint(path: Path, config: Config, name: str | None) -> _Wanted:
    """What a checkpoint says; where it is tensors alone, what the configuration says.

    Args:
        name: that it has to be of; None: any.
    """
    content = read_pickle(path, _CONVERSION) if path.suffix in PICKLED and path.is_file() else None
    if not isinstance(content, Mapping) or not {"model_class_path", "model_init_args"} & set(content):
        return _of_tensors(path, config, name)
    made_by = str(content.get("model_class_path"))
    if made_by.rpartition(".")[2] not in _DETECTORS:
        raise StageError(
            "wrong-file",
            f"weights: {path}: expected a checkpoint of LT-DETR for object detection, got one of {made_by}; other "
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
        raise StageError(
            "in-conflict", f"model.options.name: {path} is of {stored!r}; expected null or this name, got {name!r}"
        )
    _check_name(stored, f"weights: {path}")
    further = {key: value for key, value in arguments.items() if key not in _SET_HERE}
    if isinstance(further.get("backbone_args"), Mapping):
        further["backbone_args"] = {k: v for k, v in further["backbone_args"].items() if k not in _OF_WEIGHTS}
    return _Wanted(
        name=stored,
        classes=_renamed(classes, config, path),
        size=_size(config, (height, width)),
        further=further,
        tensors=_of_network(tensors),
        said=f"weights: {path}",
    )


def _renamed(classes: dict[int, str], config: Config, path: Path) -> dict[int, str]:
    """`model.classes`, where there are any, in place of the checkpoint's."""
    given = config.model.classes
    if given is None:
        return classes
    if len(given) != len(classes):
        raise StageError(
            "wrong-class-count",
            f"model.classes: {path}: expected {len(classes)} names, as many as it was trained for, or null, got "
            f"{len(given)}",
        )
    return dict(zip(classes, given, strict=True))


def _of_tensors(path: Path, config: Config, name: str | None) -> _Wanted:
    """Tensors with nothing beside them."""
    tensors = read_checkpoint(path).tensors
    if name is None or not config.model.classes:
        key, needed = ("model.classes", "names") if name else ("model.options.name", "a registered name")
        raise StageError(
            "needs-value", f"{key}: {path} has tensors alone, and does not say what they are of; expected {needed}"
        )
    wanted = _of_name(name, config.model.classes, config)
    return replace(wanted, tensors=_of_network(tensors), said=f"weights: {path}")


def _of_network(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of the network, by the names that it gives them; of averaged weights and others the averaged ones."""
    prefix = next((each for each in _PREFIXES if any(name.startswith(each) for name in tensors)), "")
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    for earlier, now in _EARLIER.items():
        found = {now + n.removeprefix(earlier) if n.startswith(earlier) else n: each for n, each in found.items()}
    return found


# --- the network ------------------------------------------------------------------------------------------------------


def _network(wanted: _Wanted, config: Config) -> Any:
    """The network in eval mode, on the CPU, in FP32; random weights follow the seed."""
    import torch

    try:
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            torch.manual_seed(config.seed)
            network = made(wanted.name, wanted.classes, wanted.size, **wanted.further)
    except StageError:
        raise
    except Exception as error:  # what lightly-train and pydantic raise
        raise StageError(
            "module-fails",
            f"{wanted.said}: lightly-train {_version()} cannot make {wanted.name} with {wanted.further} at "
            f"{list(wanted.size)}: {typed_line(error)}; not every name has both decoders",
        ) from error
    decoder, asked = _decoder_of(network), config.decoder.name.value
    if decoder != asked:
        raise StageError(
            "in-conflict",
            f"decoder: {wanted.said.partition(': ')[2]} has {decoder}; set decoder={decoder}, got {asked}",
        )
    return network.to("cpu", torch.float32).eval()


def _weights(network: Any, wanted: _Wanted) -> str:
    """Fill the network; what is to be said of its weights."""
    if wanted.tensors is None:
        return "seeded random weights; none were read"
    left_out = tuple(f"encoder.{prefix}" for prefix in sorted(_ignored_of_encoder(network)))
    tensors = {name: tensor for name, tensor in wanted.tensors.items() if not name.startswith(left_out)}
    fill(network, tensors, wanted.said.removeprefix("weights: "))
    dropped = len(wanted.tensors) - len(tensors)
    without = f"; {dropped} that this network does not have are left out, as lightly-train does" if dropped else ""
    return f"weights: {len(tensors)} tensors of {Path(wanted.said).name}{without}"


def _pictures(network: Any, wanted: _Wanted) -> torch.Tensor:
    """One grey picture of the model's size, which the network has taken."""
    import torch

    pictures = torch.zeros(1, 3, *wanted.size)
    try:
        with torch.no_grad():
            network(pictures)
    except Exception as error:  # whatever the network raises
        raise StageError(
            "module-fails",
            f"model.image_size: {wanted.name} fails on pictures of {list(wanted.size)}: {typed_line(error)}; "
            "expected sides that are multiples of its strides (32, of DINOv2's backbones 28)",
        ) from error
    return pictures


def _preprocessing(network: Any, wanted: _Wanted) -> Preprocessing:
    """Mean and std are not part of lightly-train's exported graph."""
    mean, std = (tuple(float(value) for value in network.image_normalize[key]) for key in ("mean", "std"))
    if len(mean) != 3:
        raise StageError(
            "not-supported",
            f"{wanted.said}: it takes pictures of {len(mean)} channels; expected 3, as pictures here have",
        )
    return Preprocessing(size=list(wanted.size), mean=mean, std=std)


@contextlib.contextmanager
def _prepared(module: Any, pictures: torch.Tensor) -> Iterator[None]:
    """Within, `module` holds a copy of its network that lightly-train has prepared for the export.

    Tensors that are plain attributes of it are buffers there: so they follow when it is moved or halved.
    """
    import torch

    network = module.network
    prepared = copy.deepcopy(network)
    with torch.no_grad():
        _prepare(prepared, pictures)
    for part in prepared.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                delattr(part, name)
                part.register_buffer(name, value.detach(), persistent=False)
    module.network = prepared.eval()
    try:
        yield
    finally:
        module.network = network


# --- lightly-train's names; all of its private ones -------------------------------------------------------------------

_TASKS = "lightly_train._task_models"


def _check_installed() -> None:
    if importlib.util.find_spec("lightly_train") is None:
        raise StageError(
            "package-missing",
            "model.source: lightly_train needs the package lightly-train (AGPL-3.0), which is not installed: "
            'pip install "truehalf[lightly]"',
        )
    try:
        importlib.import_module("lightly_train")
    except Exception as error:  # ImportError of what it needs, RuntimeError of torchvision's operators
        raise StageError(
            "package-broken",
            f"model.source: lightly-train is installed and cannot be imported: {typed_line(error)}; "
            "torch and torchvision have to be of one build and fit each other: pip install --force-reinstall both from "
            "one index, or see `make test-lightly`",
        ) from error


def _version() -> str:
    return importlib.metadata.version("lightly-train")


def _private(module: str, name: str) -> Any:
    """A name of lightly-train that is not public."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise StageError(
            "package-missing",
            f"model.source: lightly-train {_version()} has no {module}.{name}; known here is 0.18.0: "
            'pip install "lightly-train==0.18.0"',
        ) from error


def _names() -> list[str]:
    """Every LT-DETR that is registered, but those that lightly-train does not list itself."""
    names: list[str] = _detector().list_model_names()
    return names


def _detector() -> Any:
    return _private(f"{_TASKS}.ltdetr_object_detection.task_model", "LTDETRObjectDetection")


def made(name: str, classes: Mapping[int, str], size: tuple[int, int], **further: Any) -> Any:
    """A network with random weights.

    Args:
        name: as lightly-train registers it.
        classes: names by number.
        size: height and width of the pictures.
        further: other arguments of its class, such as decoder_name.
    """
    return _detector()(model_name=name, classes=dict(classes), image_size=size, load_weights=False, **further)


def _decoder_of(network: Any) -> str:
    name: str = network._config.transformer.decoder_name
    return name


def _ignored_of_encoder(network: Any) -> set[str]:
    """Beginnings of names that earlier checkpoints have, and that lightly-train leaves out when it loads them."""
    names: set[str] = network.encoder.state_dict_ignore_keys
    return names


def _prepare(network: Any, pictures: torch.Tensor) -> None:
    """What lightly-train does before it exports, and DINOv2's position embeddings as constants of this size."""
    helpers = "lightly_train._export.onnx_helpers"
    network.deploy()
    _private(helpers, "prepare_for_onnx_export")(network)
    with _private(helpers, "precalculate_for_onnx_export")():
        network(pictures)


def _downloaded(name: str) -> Path:
    """The checkpoint of a name that lightly-train has trained, in its cache, as its list of checksums says."""
    helpers = f"{_TASKS}.task_model_helpers"
    known: dict[str, tuple[str, str]] = _private(helpers, "DOWNLOADABLE_MODEL_URL_AND_HASH")
    if name not in known:
        trained = [each for each in _names() if each in known]
        raise StageError(
            "unknown-choice",
            f"model.checkpoint: lightly-train {_version()} has no weights of {name!r} to download; give a checkpoint, "
            f"set model.options.random=true for seeded random weights, or name one of {', '.join(trained)}",
        )
    file, digest = known[name]
    cache = _private("lightly_train._env", "Env").LIGHTLY_TRAIN_MODEL_CACHE_DIR.value.expanduser()
    address = f"{_private(helpers, 'DOWNLOADABLE_MODEL_BASE_URL')}/{file}"
    remedy = f"download {address} where there is a network, and set model.checkpoint to the file"
    try:
        path = Path(_private(helpers, "download_checkpoint")(name))
    except Exception as error:  # what urllib and the disk raise
        raise StageError(
            "download-fails",
            f"model.options.name: the weights of {name} are not in {cache}, and cannot be downloaded: "
            f"{typed_line(error)}; {remedy}",
        ) from error
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != digest:
        raise StageError(
            "wrong-file",
            f"model.options.name: {path}: expected the SHA-256 {digest}, which lightly-train {_version()} has for "
            f"{name}, got {found}; delete it, and {remedy}",
        )
    return path
