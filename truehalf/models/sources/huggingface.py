"""A detector or classifier of `transformers`: by id and revision on the Hugging Face hub, or from a folder.

Weights are safetensors; code that lies beside a model is never run. Preprocessing and class names are those of the
model's files, where `model` does not say others. What logits mean stands in LOGITS, by the model's type.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.config.typed import plain
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError
from truehalf.io_spec.spec import OutputSpec
from truehalf.models.calling import calling, taken, tried
from truehalf.models.common_problems import another_layout, half_a_size, own_decoder
from truehalf.models.declared import declared_inputs, outputs_of, problems_of_declared
from truehalf.models.hub.files import PROCESSOR, files_in, is_folder, located, problem_of_revision, read_mapping
from truehalf.models.hub.processor import preprocessing_of_processor
from truehalf.models.libraries.transformers_network import configuration, opened_network
from truehalf.models.model import QUERIES, Model, Task

if TYPE_CHECKING:
    import torch

_SIGMOID = {"activation": "sigmoid"}
_SOFTMAX = {"activation": "softmax", "no_object": True}
# How post_process_object_detection of each family's image processor (transformers 5.23) makes scores of logits. The
# processor is that of the family, or the one that models/auto/auto_mappings.py gives it: Conditional DETR's for
# DAB-DETR, DETR's for Table Transformer, Deformable DETR's for LW-DETR, RT-DETR's for RT-DETRv2, D-FINE and DEIMv2.
# All take `pred_boxes` as cxcywh in 0..1.
LOGITS: dict[str, dict[str, Any]] = {
    "conditional_detr": _SIGMOID,
    "d_fine": _SIGMOID,
    "dab-detr": _SIGMOID,
    "deformable_detr": _SIGMOID,
    "deimv2": _SIGMOID,
    "detr": _SOFTMAX,
    "lw_detr": _SIGMOID,
    "rf_detr": _SIGMOID,
    "rt_detr": _SIGMOID,
    "rt_detr_v2": _SIGMOID,
    "table-transformer": _SOFTMAX,
    "yolos": _SOFTMAX,
}


@dataclass(frozen=True)
class Options:
    """See model/huggingface.yaml.

    Attributes:
        task: which of the model's classes in `transformers` is opened.
        id: owner/name on the hub, or a folder by its path (./mine, /data/mine).
        revision: commit or tag of an id of the hub; null of a folder.
        random: seeded random weights; no file with weights is read.
    """

    task: Task
    id: str | None
    revision: str | None
    random: bool


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
    model, options = config.model, config.model.options
    yield from own_decoder(config)
    if not options.id:
        yield coded(
            "needs-value",
            "model.options.id: this model needs an id of the Hugging Face hub or a folder: model.options.id=owner/name "
            "model.options.revision=<commit>, or model.options.id=./mine",
        )
    elif problem := problem_of_revision(options.id, options.revision):
        yield f"model.options.revision: {problem}"
    if model.checkpoint is not None:
        message = f"model.checkpoint: weights are those of model.options.id; expected null, got {model.checkpoint!r}"
        yield coded("in-conflict", message)
    yield from half_a_size(config, "the processor's")
    yield from another_layout(config, "models of transformers take")
    if model.inputs is not None:
        yield coded("in-conflict", "model.inputs: one of images, known of this source; expected null")
    if model.outputs is None and model.drop_outputs:
        message = f"model.drop_outputs: logits and boxes are all needed; expected [], got {plain(model.drop_outputs)}"
        yield coded("in-conflict", message)
    yield from problems_of_declared(config)


def files(config: Config, root: Path) -> list[Path]:
    """Of a folder its configurations and weights; of the hub nothing: the revision says it all.

    Raises:
        StageError: when there is no such folder, or not what is needed in it.
    """
    options: Options = config.model.options
    if options.id is None or not is_folder(options.id):
        return []
    weights = not options.random
    return files_in(located(options.id, None, root, weights=weights), weights=weights)


def open_model(config: Config, root: Path) -> Model:
    """The model with its weights, or with seeded random ones.

    Raises:
        StageError: see truehalf.models.hub.files.located and truehalf.models.hub.processor; when `transformers` does
            not know the model's type, or not for this task; when a package is missing that it needs; when weights are
            missing or wrongly shaped; when what its logits mean is not known; when it cannot take images of this
            size.
    """
    options: Options = config.model.options
    assert options.id is not None, "checked by problems"
    folder = located(options.id, options.revision, root, weights=not options.random)
    shape = configuration(folder, options.task)
    inputs = declared_inputs(config, _preprocessing(folder, config))
    network, notes = opened_network(shape, folder, config)
    images, returned = tried(network, inputs[0].size, f"the model ({shape.model_type})")
    outputs, takes = _outputs(returned, shape, config)
    classes = list(config.model.classes or ()) or [shape.id2label.get(i, f"LABEL_{i}") for i in range(shape.num_labels)]
    _check_classes(taken(returned, takes), outputs, classes, folder)
    module = calling(network, takes, ["pixel_values"])
    return Model(
        module=module,
        inputs=inputs,
        outputs=outputs,
        class_names=classes,
        trained=not options.random,
        prepared=lambda: _positions_fixed(module, images, config),
        notes=notes,
    )


# --- the model's files ------------------------------------------------------------------------------------------------


def _preprocessing(folder: Path, config: Config) -> Preprocessing:
    path = folder / PROCESSOR
    content = read_mapping(path) if path.is_file() else None
    return preprocessing_of_processor(content, config, str(path))


# --- what goes in and comes out ---------------------------------------------------------------------------------------


def _outputs(returned: Any, shape: Any, config: Config) -> tuple[list[OutputSpec], list[str]]:
    """The outputs, and the field of each in what the network returns."""
    if config.model.outputs is not None:
        return outputs_of(config, returned)
    if config.model.options.task is Task.classification:
        return [OutputSpec("logits", "classes")], ["logits"]
    logits, boxes = QUERIES
    return [replace(logits, **_meaning(shape)), boxes], ["logits", "pred_boxes"]


def _meaning(shape: Any) -> dict[str, Any]:
    """What the logits of a detector are."""
    known = LOGITS.get(shape.model_type)
    if known is not None and getattr(shape, "use_focal_loss", True):
        return known
    what = f"model_type {shape.model_type!r}" + ("" if known is None else " trained without focal loss")
    raise StageError(
        "needs-value",
        f"model.outputs: what the logits of {what} mean is not known here; known are {', '.join(LOGITS)}. Declare the "
        "outputs, for instance: model.outputs=[{name: logits, kind: logits, activation: sigmoid}, {name: boxes, "
        "kind: boxes, take: pred_boxes, format: cxcywh, normalized: true}]",
    )


def _check_classes(returned: tuple[Any, ...], outputs: list[OutputSpec], classes: Sequence[str], folder: Path) -> None:
    """As many names as the logits have classes, beside one for no object."""
    for declared, tensor in zip(outputs, returned, strict=True):
        if declared.kind not in ("logits", "classes"):
            continue
        count = tensor.shape[-1] - bool(declared.no_object)
        if count != len(classes):
            message = f"model.classes: {folder}: expected {count} names (output {declared.name!r}), got {len(classes)}"
            raise StageError("wrong-class-count", message)


@contextlib.contextmanager
def _positions_fixed(module: torch.nn.Module, images: torch.Tensor, config: Config) -> Iterator[None]:
    """Within, position embeddings that are interpolated to the size of the images are constants of that size.

    While it is traced, a model interpolates them in the graph, whatever the size, and the TorchScript exporter has no
    translation of that with antialiasing (RF-DETR). Where height or width may vary they are left as they are.
    """
    import torch

    parts: list[Any] = [part for part in module.modules() if callable(getattr(part, "interpolate_pos_encoding", None))]
    if any(axis for axis in config.trace.dynamic_axes.get("images", {})):
        parts = []
    first = next(module.parameters(), images)
    seen: dict[int, torch.Tensor] = {}

    def recording(number: int, interpolated: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*arguments: Any, **keywords: Any) -> torch.Tensor:
            seen[number] = interpolated(*arguments, **keywords).detach()
            return seen[number]

        return call

    for number, part in enumerate(parts):
        part.interpolate_pos_encoding = recording(number, part.interpolate_pos_encoding)
    try:
        if parts:
            with torch.no_grad():
                module(images.to(first.device, first.dtype))
        for number, part in enumerate(parts):
            if number in seen:
                part.interpolate_pos_encoding = _constant(seen[number])
        yield
    finally:
        for part in parts:
            del part.interpolate_pos_encoding  # the instance's, before the class's


def _constant(positions: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Gives the positions in the type and on the device of the embeddings that they are added to: a copy of the module
    may be in half precision, or on CUDA.
    """
    import torch

    def call(*arguments: Any, **_: Any) -> torch.Tensor:
        like = next((each for each in arguments if isinstance(each, torch.Tensor)), positions)
        return positions.to(like.device, like.dtype)

    return call
