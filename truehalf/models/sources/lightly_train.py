"""LT-DETR itself, from lightly-train: a checkpoint of its training, or a registered name with random weights.

lightly-train is AGPL-3.0 and no part of this project; it is imported when this source is chosen, and only here. Its
public `load_model` loads pickles as programs, and imports whatever module a checkpoint names. So the detector is made
by its class, which is private; all private names (those of 0.18.0) stand at the end of this file, and nowhere else.

A checkpoint says its architecture, decoder, size, normalisation and class names by itself. What lightly-train does to a
network before it exports it (convolutions fused, layers for training dropped, gathers in place of GridSample) is done
to a copy, only for the export.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config, DecoderName
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError, failing
from truehalf.models.calling import calling, standing_in, tried
from truehalf.models.checkpoints import files as files
from truehalf.models.checkpoints import read_pickle
from truehalf.models.declared import declared_inputs, known_of_source
from truehalf.models.model import QUERIES, Model
from truehalf.models.weights import fill

if TYPE_CHECKING:
    import torch

_SIZE = (640, 640)  # where neither a checkpoint nor the configuration says one
_CLASSES = 80  # of random weights, where none are configured: as many as COCO has
_PREFIXES = ("ema_model.model.", "model.")  # of the network's tensors in a checkpoint; the averaged weights first
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
        name: as lightly-train registers it; null: as the checkpoint says.
        random: seeded random weights; else those of the checkpoint.
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
        label: what errors and notes call it.
        tensors: of its network; None: random ones.
    """

    name: str
    classes: dict[int, str]
    size: tuple[int, int]
    further: dict[str, Any]
    label: str
    tensors: dict[str, torch.Tensor] | None = None


def problems(config: Config) -> Iterator[str]:
    """Yield what is wrong with `model.*` beyond types."""
    model, options = config.model, config.model.options
    if config.decoder.name is DecoderName.none:
        yield coded("in-conflict", "decoder: expected dfine or rtdetrv2, got none")
    if model.checkpoint is None and not (options.name and options.random):
        yield coded(
            "needs-value",
            "model.checkpoint: this model needs a checkpoint of lightly-train (model.checkpoint=exported_best.pt; of a "
            "name that it has trained, the file in its cache), or a registered name with random weights: "
            "model.options.name=dinov3/vitt16-ltdetr model.options.random=true",
        )
    if model.checkpoint is not None and options.random:
        yield coded(
            "in-conflict",
            "model.options.random: model.checkpoint has weights; expected false, or model.checkpoint=null, got true",
        )
    for axis in config.trace.dynamic_axes.get("images", {}):
        if axis:
            yield coded(
                "axis-fixed",
                f"trace.dynamic_axes.images: axis {axis} cannot vary: lightly-train makes positions and anchors for "
                "one size; only the batch (axis 0) is dynamic",
            )
    yield from known_of_source(config, "inputs", "outputs", "drop_outputs")


def open_model(config: Config, root: Path) -> Model:
    """Open the detector with its weights, or with seeded random ones.

    Raises:
        StageError: when lightly-train is missing, broken or of a version with other private names; when the name is not
            known; when the checkpoint cannot be read as data, is of another model, or says another name or decoder than
            the configuration; when the network cannot take images of this size.
    """
    _check_installed()
    wanted = _wanted(config, root)
    if not _detector().is_supported_model(wanted.name):
        known = ", ".join(_detector().list_model_names())
        message = f"{wanted.label}: lightly-train {_version()} has no LT-DETR {wanted.name!r}; it has {known}"
        raise StageError("unknown-choice", message)
    network = _network(wanted, config)
    mean, std = (tuple(float(value) for value in network.image_normalize[key]) for key in ("mean", "std"))
    if len(mean) != 3:
        message = f"{wanted.label}: it takes images of {len(mean)} channels; expected 3, as images here have"
        raise StageError("not-supported", message)
    notes = [f"lightly-train {_version()} (AGPL-3.0), {wanted.name}", "seeded random weights; none were read"]
    if wanted.tensors is not None:
        ignored = tuple(f"encoder.{key}" for key in network.encoder.state_dict_ignore_keys)  # as lightly-train does
        tensors = {name: tensor for name, tensor in wanted.tensors.items() if not name.startswith(ignored)}
        fill(network, tensors, wanted.label.removeprefix("weights: "))
        numbers = ", ".join(map(str, wanted.classes))
        notes[1] = f"weights: {len(tensors)} tensors of {Path(wanted.label).name}, whose classes are numbered {numbers}"
    remedy = "; expected sides that are multiples of its strides (32, of DINOv2's backbones 28)"
    images, _ = tried(network, wanted.size, wanted.name, remedy)
    module = calling(network, ["logits", "boxes"])
    return Model(
        module=module,
        inputs=declared_inputs(config, Preprocessing(size=list(wanted.size), mean=mean, std=std)),
        outputs=QUERIES,
        class_names=list(wanted.classes.values()),
        trained=wanted.tensors is not None,
        prepared=lambda: _prepared(module, images),
        notes=notes,
    )


def _check_installed() -> None:
    """Refuse where lightly-train is missing or cannot be imported, with what to install.

    torchvision's operators are compiled against one build of torch. Beside another one (a CPU build beside a CUDA
    build, or another release) its import ends with "operator torchvision::nms does not exist".
    """
    called = "model.source: lightly-train (AGPL-3.0) is"
    if importlib.util.find_spec("lightly_train") is None:
        raise StageError("package-missing", f"{called} not installed: pip install 'truehalf[lightly]'")
    remedy = (
        ". torch and torchvision have to be of releases that belong together and of one build, both for the CPU or "
        "both for the same CUDA; install the two in one command: pip install --force-reinstall torch torchvision"
    )
    with failing("package-missing", f"{called} installed and cannot be imported", remedy):
        importlib.import_module("lightly_train")


def _wanted(config: Config, root: Path) -> _Wanted:
    """Read what a checkpoint says; where there is none, what the configuration says."""
    options, model = config.model.options, config.model
    height, width = model.image_size
    size = None if height is None or width is None else (height, width)
    if model.checkpoint is not None:
        return _of_checkpoint(root / model.checkpoint, config, size)
    classes = model.classes or [str(number) for number in range(_CLASSES)]
    further = {"decoder_name": config.decoder.name.value}
    label = f"model.options.name: {options.name}"
    return _Wanted(options.name, dict(enumerate(classes)), size or _SIZE, further, label)


def _of_checkpoint(path: Path, config: Config, size: tuple[int, int] | None) -> _Wanted:
    if not path.is_file():
        raise StageError("file-missing", f"weights: {path}: no such file; expected exported_best.pt of a training")
    content = read_pickle(path, _CONVERSION)
    try:
        model_class, arguments = str(content["model_class_path"]), dict(content["model_init_args"])
        stored = str(arguments["model_name"])
        classes = {int(number): str(called) for number, called in arguments["classes"].items()}
        height, width = (int(side) for side in arguments["image_size"])
        tensors = dict(content["train_model"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StageError(
            "file-unreadable",
            f"weights: {path}: expected model_class_path, model_init_args with model_name, classes and image_size, and "
            f"train_model with tensors, as training writes them, but {type(error).__name__}: {error}; export it again",
        ) from error
    if not model_class.endswith("LTDETRObjectDetection"):
        raise StageError(
            "wrong-file",
            f"weights: {path}: expected a checkpoint of LT-DETR for object detection, got one of {model_class}; other "
            "models of lightly-train can be made by a function of yours (model=torch)",
        )
    name, given = config.model.options.name, config.model.classes
    if name not in (None, stored):
        message = f"model.options.name: {path} is of {stored!r}; expected null or this name, got {name!r}"
        raise StageError("in-conflict", message)
    further = {key: value for key, value in arguments.items() if key not in _SET_HERE}
    if isinstance(further.get("backbone_args"), Mapping):
        further["backbone_args"] = {k: v for k, v in further["backbone_args"].items() if k not in _OF_WEIGHTS}
    if given is not None and len(given) != len(classes):
        message = f"model.classes: {path} has {len(classes)}; expected as many names or null, got {len(given)}"
        raise StageError("wrong-class-count", message)
    classes = classes if given is None else dict(zip(classes, given, strict=True))
    return _Wanted(stored, classes, size or (height, width), further, f"weights: {path}", _of_network(tensors))


def _of_network(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Keep the network's tensors, by the names that it gives them; the averaged ones where there are both."""
    prefix = next((each for each in _PREFIXES if any(name.startswith(each) for name in tensors)), "")
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _network(wanted: _Wanted, config: Config) -> Any:
    """Make the network in eval mode, on the CPU, in FP32; random weights follow the seed."""
    import torch

    what = f"{wanted.label}: lightly-train {_version()} cannot make {wanted.name} with {wanted.further} at "
    with (
        failing("module-fails", f"{what}{list(wanted.size)}", "; not every name has both decoders"),
        torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))),
    ):
        torch.manual_seed(config.seed)
        network = made(wanted.name, wanted.classes, wanted.size, **wanted.further)
    decoder, asked = network._config.transformer.decoder_name, config.decoder.name.value
    if decoder != asked:
        message = f"decoder: {wanted.label.partition(': ')[2]} has {decoder}; set decoder={decoder}, got {asked}"
        raise StageError("in-conflict", message)
    return network.to("cpu", torch.float32).eval()


@contextlib.contextmanager
def _prepared(module: Any, images: torch.Tensor) -> Iterator[None]:
    """Within, `module` holds a copy of its network that lightly-train has prepared for the export, with DINOv2's
    position embeddings as constants of this size.

    Tensors that are plain attributes of it are buffers there: so they follow when it is moved or halved.
    """
    import torch

    prepared = copy.deepcopy(module.network)
    helpers = "lightly_train._export.onnx_helpers"
    prepared.deploy()
    _private(helpers, "prepare_for_onnx_export")(prepared)
    with torch.no_grad(), _private(helpers, "precalculate_for_onnx_export")():
        prepared(images)
    for part in prepared.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                delattr(part, name)
                part.register_buffer(name, value.detach(), persistent=False)
    with standing_in(module, prepared):
        yield


# --- private names of lightly-train -----------------------------------------------------------------------------------


def made(name: str, classes: Mapping[int, str], size: tuple[int, int], **further: Any) -> Any:
    """Make a network with random weights.

    Args:
        name: as lightly-train registers it.
        classes: names by number.
        size: height and width of the images.
        further: other arguments of its class, such as decoder_name.
    """
    return _detector()(model_name=name, classes=dict(classes), image_size=size, load_weights=False, **further)


def _detector() -> Any:
    return _private("lightly_train._task_models.ltdetr_object_detection.task_model", "LTDETRObjectDetection")


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        message = f"model.source: lightly-train {_version()} has no {module}.{name}: pip install lightly-train==0.18.0"
        raise StageError("package-missing", message) from error


def _version() -> str:
    return importlib.metadata.version("lightly-train")
