"""A detector or classifier of `transformers`: by id and revision on the Hugging Face hub, or from a folder.

Weights are safetensors; code that lies beside a model is never run. Preprocessing and class names are those of the
model's files, where `model` does not say others. What logits mean stands in LOGITS, by the model's type.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.errors import StageError, failing, some_of, typed_text
from truehalf.io_spec.spec import OutputSpec
from truehalf.models.calling import calling, taken, tried
from truehalf.models.declared import declared_inputs, known_of_source, outputs_of, own_decoder, problems_of_declared
from truehalf.models.hub_files import (
    CONFIGURATION,
    PROCESSOR,
    files_in,
    is_folder,
    located,
    problem_of_revision,
    read_mapping,
)
from truehalf.models.hub_processor import preprocessing_of_processor
from truehalf.models.model import QUERIES, Model, Task
from truehalf.models.weights import differences

if TYPE_CHECKING:
    import torch

_KERNELS = ("eager", "sdpa")  # attention that torch itself computes
_CLASSES = {  # of transformers, by task: what opens a model, and configurations that there is one for
    Task.detection: ("AutoModelForObjectDetection", "MODEL_FOR_OBJECT_DETECTION_MAPPING"),
    Task.classification: ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"),
}
_INTERPOLATED = "interpolate_pos_encoding"
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
    yield from known_of_source(config, "checkpoint", "inputs", *(["drop_outputs"] if model.outputs is None else []))
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
        StageError: see truehalf.models.hub_files.located and truehalf.models.hub_processor; when `transformers` does
            not know the model's type, or not for this task; when a package is missing that it needs; when weights are
            missing or wrongly shaped; when what its logits mean is not known; when it cannot take images of this
            size.
    """
    options: Options = config.model.options
    assert options.id is not None, "checked by problems"
    folder = located(options.id, options.revision, root, weights=not options.random)
    shape = _configuration(folder, options.task)
    processor = folder / PROCESSOR
    content = read_mapping(processor) if processor.is_file() else {}
    inputs = declared_inputs(config, preprocessing_of_processor(content, config, str(processor)))
    network, notes = _network(shape, folder, config)
    assert inputs[0].size is not None, "the processor's or the configuration's"
    images, returned = tried(network, inputs[0].size, f"the model ({shape.model_type})")
    outputs, takes = _outputs(returned, shape, config)
    classes = list(config.model.classes or ()) or [shape.id2label.get(i, f"LABEL_{i}") for i in range(shape.num_labels)]
    _check_classes(taken(returned, takes), outputs, classes, folder)
    module = calling(network, takes)
    return Model(
        module=module,
        inputs=inputs,
        outputs=outputs,
        class_names=classes,
        trained=not options.random,
        prepared=lambda: _positions_fixed(module, images, config),
        notes=notes,
    )


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

    varies = any(config.trace.dynamic_axes.get("images", {}))
    parts: list[Any] = [] if varies else [each for each in module.modules() if hasattr(each, _INTERPOLATED)]
    for part in parts:
        setattr(part, _INTERPOLATED, _remembering(getattr(part, _INTERPOLATED)))
    try:
        if parts:
            first = next(module.parameters(), images)
            with torch.no_grad():
                module(images.to(first.device, first.dtype))
        yield
    finally:
        for part in parts:
            delattr(part, _INTERPOLATED)  # the instance's, before the class's


def _remembering(interpolated: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap a function to return its first result, in the type and on the device of the embeddings that it is added to:
    a copy of the module may be in half precision, or on CUDA.
    """
    import torch

    seen: list[torch.Tensor] = []

    def call(*arguments: Any, **keywords: Any) -> torch.Tensor:
        if not seen:
            seen.append(interpolated(*arguments, **keywords).detach())
        like = next((each for each in arguments if isinstance(each, torch.Tensor)), seen[0])
        return seen[0].to(like.device, like.dtype)

    return call


# --- the network ------------------------------------------------------------------------------------------------------


def _configuration(folder: Path, task: Task) -> Any:
    """The model's configuration, of a type that `transformers` has for this task."""
    import transformers

    path = folder / CONFIGURATION
    content = read_mapping(path)
    kind = content.get("model_type")
    named = re.findall(r'"attn_implementation": "([^"]+)"', json.dumps(content))
    if kernels := sorted(set(named) - set(_KERNELS)):
        raise StageError(
            "code-refused",
            f"model.options.id: {path}: attn_implementation {', '.join(map(repr, kernels))} is downloaded code, "
            f"which is never run; expected {' or '.join(_KERNELS)}: take the key out of the file. The export has the "
            "same operations whichever computes them",
        )
    if kind not in transformers.CONFIG_MAPPING:
        raise StageError(
            "not-supported",
            f"model.options.id: {path}: transformers {transformers.__version__} has no model_type {kind!r}; code that "
            "lies beside a model is never run: load it in your function (model=torch)",
        )
    shape = _explained(path, lambda: transformers.AutoConfig.from_pretrained(folder, local_files_only=True))
    if type(shape) not in getattr(transformers, _CLASSES[task][1]):
        raise StageError(
            "in-conflict",
            f"model.options.task: {path}: transformers has no {task.value} of model_type {kind!r}; expected another of "
            f"{', '.join(f'model.options.task={each.value}' for each in Task)}, or your function (model=torch)",
        )
    return shape


def _network(shape: Any, folder: Path, config: Config) -> tuple[torch.nn.Module, list[str]]:
    """The network in eval mode, in FP32, and a note on its weights."""
    import torch
    import transformers

    options = config.model.options
    auto: Any = getattr(transformers, _CLASSES[options.task][0])
    if options.random:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            network = _explained(folder, lambda: auto.from_config(shape, dtype=torch.float32))
            begin_as_torch(network)
        return network.eval(), [f"{folder}: seeded random weights; none were read"]
    network, report = _explained(
        folder,
        lambda: auto.from_pretrained(
            folder,
            config=shape,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # refused below, together with all else that does not fit
            output_loading_info=True,
        ),
    )
    return network.eval(), _fitting(report, folder)


def begin_as_torch(network: torch.nn.Module) -> None:
    """Begin convolutions and batch norms as torch does.

    `transformers` begins those of RT-DETR, of its successors and of DEIMv2's adapter so small that features vanish:
    all queries score alike, which of them are taken is chance, and in FP16 nothing is left.
    """
    import torch

    for part in network.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.BatchNorm2d)):
            part.reset_parameters()


def _fitting(report: dict[str, Any], folder: Path) -> list[str]:
    """Notes on tensors that are not used; an error for those that the network lacks."""
    missing = sorted(report["missing_keys"])
    wrong = sorted(
        f"{name}: expected {list(expected)}, got {list(got)}" for name, got, expected in report["mismatched_keys"]
    )
    unexpected = sorted(report["unexpected_keys"])
    if missing or wrong:
        lines = differences(wrong, missing, unexpected)
        raise StageError(
            "wrong-file",
            f"model.options.id: {folder}: the weights are not of the model that {CONFIGURATION} describes, or not of "
            "this task; give a model whose head is trained, too\n" + "\n".join(lines),
        )
    return [f"{folder}: {len(unexpected)} tensors are not used: {some_of(unexpected, 5)}"] if unexpected else []


def _explained(where: Path, make: Callable[[], Any]) -> Any:
    """Call `make` without the output of `transformers`, and return its result; its errors become StageErrors."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    what = f"model.options.id: {where}: transformers cannot make this model"
    try:
        with contextlib.redirect_stderr(io.StringIO()), failing("module-fails", what):
            return make()
    except StageError as error:
        if isinstance(error.__cause__, ImportError):
            message = f"model.options.id: {where}: a package is missing: {typed_text(error.__cause__)}"
            raise StageError("package-missing", message) from error
        raise
    finally:
        logging.disable(disabled)
