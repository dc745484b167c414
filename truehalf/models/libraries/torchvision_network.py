"""Networks of torchvision, by name: its builders, weights and the state that a checkpoint brings."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.config.schema import Config
from truehalf.config.typed import did_you_mean
from truehalf.errors import StageError, first_line
from truehalf.models.checkpoints import read_checkpoint
from truehalf.models.model import Task
from truehalf.models.weights import load_weights

if TYPE_CHECKING:
    import torch

_TRACKED = "num_batches_tracked"


@dataclass(frozen=True)
class Options:
    """See model/torchvision.yaml.

    Attributes:
        task: where the name is looked for.
        name: as torchvision.models.list_models() has it.
        weights: of the model's weights in torchvision: COCO_V1, IMAGENET1K_V2, or DEFAULT; null: none of these.
        candidates: of a detector, how many an image has before NMS; null of a classifier.
        key: where in the checkpoint's mapping the state dict is; null: where it is found.
        prefix: taken off every name in the checkpoint.
    """

    task: Task
    name: str | None
    weights: str | None
    candidates: int | None
    key: str | None
    prefix: str | None


def check_name(options: Options) -> None:
    """Refuse what is no model of this task, or none of one stage."""
    name = options.name or ""
    names = {task: _names(task) for task in Task}
    if name not in names[options.task]:
        other = next((task for task in Task if name in names[task]), None)
        if other is not None:
            choice = "torchvision" if other is Task.detection else "torchvision_classifier"
            raise StageError("in-conflict", f"model.options.task: {name} is a model for {other.value}: model={choice}")
        raise StageError(
            "unknown-choice",
            f"model.options.name: torchvision has no model {name!r} for {options.task.value}"
            f"{did_you_mean(name, names[options.task]) or '.'} It has "
            f"{', '.join(names[options.task])}",
        )
    if options.task is Task.detection and "rcnn" in name:
        one_stage = [each for each in names[options.task] if "rcnn" not in each]
        raise StageError(
            "not-supported",
            f"model.options.name: {name} has two stages with NMS between them: how many boxes reach the second one "
            "depends on the image, and so does the size of every tensor after it, which no graph of fixed sizes can "
            f"hold. Take a detector of one stage ({', '.join(one_stage)}), or export it yourself and give the file: "
            "model=onnx model.checkpoint=<file>",
        )


def _names(task: Task) -> list[str]:
    import torchvision

    models = torchvision.models
    return list(models.list_models(module=models.detection if task is Task.detection else models))


def known_weights(options: Options) -> Any:
    """The enumeration of the model's weights."""
    import torchvision

    return torchvision.models.get_model_weights(options.name)


def chosen_weights(options: Options, known: Any) -> Any:
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


def opened_network(config: Config, root: Path, weights: Any) -> tuple[torch.nn.Module, list[str]]:
    """The network in eval mode, in FP32, and a note on its weights."""
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
        if (number := number_of_classes(config)) is not None:
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


def settle(module: torch.nn.Module, size: list[int], seed: int) -> None:
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
    """Download weights into torch's cache where they are not there yet, and read them as data: only tensors."""
    import torch

    folder = Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / weights.url.rpartition("/")[2]
    try:
        weights.get_state_dict(progress=False, check_hash=True, map_location="cpu", weights_only=True)
    except Exception as error:  # of the network, of a full disk, of a file that is cut off or is no file of tensors
        reason = first_line(error)
        if path.is_file():
            raise StageError(
                "file-unreadable",
                f"model.options.weights: {path}: cannot be read as {weights}: {reason}; delete it to download it again",
            ) from error
        raise StageError(
            "download-fails",
            f"model.options.weights: {weights} is not in torch's cache and cannot be downloaded: {reason}. Where there "
            f"is a network, download {weights.url}; put it here as {path} (TORCH_HOME moves the cache)",
        ) from error


def number_of_classes(config: Config) -> int | None:
    """What a network that is not filled with torchvision's weights is made for; None: what it has by itself.

    The first class of SSD is background, which is no class of the model.
    """
    if config.model.classes is None:
        return None
    return len(config.model.classes) + str(config.model.options.name).startswith("ssd")
