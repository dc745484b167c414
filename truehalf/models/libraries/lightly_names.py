"""Names of lightly-train, all of its private ones in this place."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.errors import StageError, failing
from truehalf.files import file_sha256

if TYPE_CHECKING:
    import torch

DETECTORS = ("LTDETRObjectDetection", "DINOv3LTDETRObjectDetection", "DINOv2LTDETRObjectDetection")
_TASKS = "lightly_train._task_models"


def version() -> str:
    return importlib.metadata.version("lightly-train")


def _private(module: str, name: str) -> Any:
    """A name of lightly-train that is not public."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        message = f"model.source: lightly-train {version()} has no {module}.{name}: pip install lightly-train==0.18.0"
        raise StageError("package-missing", message) from error


def names() -> list[str]:
    """Every LT-DETR that is registered, but those that lightly-train does not list itself."""
    names: list[str] = detector().list_model_names()
    return names


def detector() -> Any:
    return _private(f"{_TASKS}.ltdetr_object_detection.task_model", "LTDETRObjectDetection")


def made(name: str, classes: Mapping[int, str], size: tuple[int, int], **further: Any) -> Any:
    """A network with random weights.

    Args:
        name: as lightly-train registers it.
        classes: names by number.
        size: height and width of the images.
        further: other arguments of its class, such as decoder_name.
    """
    return detector()(model_name=name, classes=dict(classes), image_size=size, load_weights=False, **further)


def decoder_of(network: Any) -> str:
    name: str = network._config.transformer.decoder_name
    return name


def ignored_of_encoder(network: Any) -> set[str]:
    """Beginnings of names that earlier checkpoints have, and that lightly-train leaves out when it loads them."""
    names: set[str] = network.encoder.state_dict_ignore_keys
    return names


def prepare(network: Any, images: torch.Tensor) -> None:
    """What lightly-train does before it exports, and DINOv2's position embeddings as constants of this size."""
    helpers = "lightly_train._export.onnx_helpers"
    network.deploy()
    _private(helpers, "prepare_for_onnx_export")(network)
    with _private(helpers, "precalculate_for_onnx_export")():
        network(images)


def downloaded(name: str) -> Path:
    """The checkpoint of a name that lightly-train has trained, in its cache, as its list of checksums says."""
    helpers = f"{_TASKS}.task_model_helpers"
    known: dict[str, tuple[str, str]] = _private(helpers, "DOWNLOADABLE_MODEL_URL_AND_HASH")
    if name not in known:
        trained = [each for each in names() if each in known]
        raise StageError(
            "unknown-choice",
            f"model.checkpoint: lightly-train {version()} has no weights of {name!r} to download; give a checkpoint, "
            f"set model.options.random=true for seeded random weights, or name one of {', '.join(trained)}",
        )
    file, digest = known[name]
    cache = _private("lightly_train._env", "Env").LIGHTLY_TRAIN_MODEL_CACHE_DIR.value.expanduser()
    address = f"{_private(helpers, 'DOWNLOADABLE_MODEL_BASE_URL')}/{file}"
    remedy = f"download {address} where there is a network, and set model.checkpoint to the file"
    what = f"model.options.name: the weights of {name} are not in {cache}, and cannot be downloaded"
    with failing("download-fails", what, f"; {remedy}"):
        path = Path(_private(helpers, "download_checkpoint")(name))
    found = file_sha256(path)
    if found != digest:
        raise StageError(
            "wrong-file",
            f"model.options.name: {path}: expected the SHA-256 {digest}, which lightly-train {version()} has for "
            f"{name}, got {found}; delete it, and {remedy}",
        )
    return path
