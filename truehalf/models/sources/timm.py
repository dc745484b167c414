"""A classifier of timm, by name; weights by pretrained tag, from a file, or random.

Preprocessing is that of the pretrained configuration which belongs to the tag; without a tag, of the model's default
one. Weights by tag come from the hub's cache, filled on demand. timm reads them as data, only tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config, Resample
from truehalf.config.typed import did_you_mean
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError, typed_line
from truehalf.io_spec.spec import OutputSpec
from truehalf.models import common_problems
from truehalf.models.calling import calling, tried
from truehalf.models.checkpoints import files as files
from truehalf.models.declared import declared_inputs, named_classes
from truehalf.models.extras import extra, quiet
from truehalf.models.model import Input, Model
from truehalf.models.weights import load_weights

if TYPE_CHECKING:
    import torch

_RESIZES = {"center": "stretch", "squash": "stretch", "border": "letterbox"}  # timm's crop_mode, at crop_pct 1


@dataclass(frozen=True)
class Options:
    """See model/timm.yaml.

    Attributes:
        name: as timm.list_models() has it, without a tag.
        weights: pretrained tag of it, such as a1_in1k; null: none.
        key: where in the checkpoint's mapping the state dict is; null: where it is found.
        prefix: taken off every name in the checkpoint.
    """

    name: str | None
    weights: str | None
    key: str | None
    prefix: str | None


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
    options = config.model.options
    yield from common_problems.own_decoder(config)
    if not options.name:
        message = "model.options.name: expected the name of a model of timm, such as model.options.name=resnet18"
        yield coded("needs-value", message)
    elif "." in options.name:
        name, _, tag = options.name.partition(".")
        message = f"model.options.name: the tag is apart: model.options.name={name} model.options.weights={tag}"
        yield coded("bad-syntax", message)
    elif not options.name.replace("_", "").isalnum():
        message = f"model.options.name: expected a name as timm.list_models() has it, got {options.name!r}"
        yield coded("bad-syntax", message)
    yield from common_problems.by_name(config, "the model's", "models of timm take")


def open_model(config: Config, root: Path) -> Model:
    """The classifier with its weights, or with seeded random ones.

    Raises:
        StageError: when timm is not installed or cannot be imported; when it has no such model or tag; when weights can
            neither be found nor downloaded, or do not fit; when `model.classes` are not as many as the weights have;
            when the model fails on images of this size, or takes others than RGB.
    """
    extra("timm")
    options: Options = config.model.options
    assert options.name is not None, "checked by problems"
    known = _pretrained(options)
    inputs, notes = _inputs(config, known)
    network, note = _network(config, root, known, inputs[0].size)
    count = _classes_of_output(network, options.name, inputs[0].size)
    return Model(
        module=calling(network, ["0"]),
        inputs=inputs,
        outputs=[OutputSpec("logits", "classes")],
        class_names=_class_names(config, known, count),
        trained=options.weights is not None or config.model.checkpoint is not None,
        notes=[note, *notes],
    )


# --- the model and its weights ----------------------------------------------------------------------------------------


def _pretrained(options: Options) -> Any:
    """timm's pretrained configuration of the name, and of the tag where one is given."""
    import timm

    if not timm.is_model(options.name):
        hint = did_you_mean(options.name or "", timm.list_models()) or "; timm.list_models() has all names"
        message = f"model.options.name: timm {timm.__version__} has no model {options.name!r}{hint}"
        raise StageError("unknown-choice", message)
    tags = [name.partition(".")[2] for name in timm.list_pretrained(f"{options.name}.*")]
    if options.weights is not None and options.weights not in tags:
        raise StageError(
            "unknown-choice",
            f"model.options.weights: timm {timm.__version__} has no weights {options.weights!r} of {options.name}; "
            f"expected {', '.join(tags) or 'none: it has no weights of this model'}{' or null' if tags else ''}",
        )
    tagged = options.name if options.weights is None else f"{options.name}.{options.weights}"
    return timm.get_pretrained_cfg(tagged)


def _network(config: Config, root: Path, known: Any, size: list[int]) -> tuple[torch.nn.Module, str]:
    """The network in eval mode, in FP32, and a note on its weights."""
    import timm
    import torch

    options: Options = config.model.options
    keywords: dict[str, Any] = {"pretrained": options.weights is not None, "exportable": True}
    if options.weights is None and config.model.classes is not None:
        keywords["num_classes"] = len(config.model.classes)
    if known.fixed_input_size and size != list(known.input_size[1:]):
        keywords["img_size"] = tuple(size)  # such as a ViT's, whose positions are made for one size
    tagged = str(options.name) if options.weights is None else f"{options.name}.{options.weights}"
    with torch.random.fork_rng(devices=[]), quiet("timm", "huggingface_hub"):  # which log downloads and retries
        torch.manual_seed(config.seed)
        try:
            network: torch.nn.Module = timm.create_model(tagged, **keywords).eval()
        except Exception as error:  # of the network, of the hub's client, of timm's assertions on sizes
            raise StageError(
                "module-fails" if options.weights is None else "download-fails",
                _refusal(tagged, known, keywords, error),
            ) from error
    if options.weights is not None:
        place = f", from {known.hf_hub_id} on the Hugging Face hub" if known.hf_hub_id else ""
        return network, f"weights: {tagged} of timm {timm.__version__}{place}"
    if config.model.checkpoint is None:
        return network, f"{tagged}: seeded random weights; none were read"
    return network, load_weights(network, root / config.model.checkpoint, options.key, options.prefix or "")


def _refusal(tagged: str, known: Any, keywords: dict[str, Any], error: Exception) -> str:
    reason = typed_line(error)
    if not keywords["pretrained"]:
        return f"model.image_size: timm cannot make {tagged} with {keywords}: {reason}"
    if not known.hf_hub_id:
        return (
            f"model.options.weights: {tagged} cannot be loaded: {reason}; download {known.url} and set model.checkpoint"
        )
    from huggingface_hub import constants

    return (
        f"model.options.weights: {tagged}: not in the hub's cache ({constants.HF_HUB_CACHE}; HF_HOME moves it), and "
        f"the hub did not give it: {reason}. Where there is a network: hf download {known.hf_hub_id} "
        "model.safetensors; copy the cache here, or download with --local-dir ./mine, copy that folder, and set "
        "model.checkpoint=./mine/model.safetensors model.options.weights=null"
    )


def _classes_of_output(network: torch.nn.Module, name: str, size: list[int]) -> int:
    """Number of classes of the network's output for an image of this size."""
    import torch

    _, returned = tried(network, size, name)
    if not isinstance(returned, torch.Tensor) or returned.ndim != 2:
        raise StageError(
            "not-supported",
            f"model.options.name: {name} does not return class logits [N, classes] but a {type(returned).__name__}"
            f"{f' of {returned.ndim} axes' if isinstance(returned, torch.Tensor) else ''}; for other outputs, "
            "model=torch takes a function of yours",
        )
    return int(returned.shape[1])


def _class_names(config: Config, known: Any, count: int) -> list[str]:
    """Those that are configured; of weights by tag the tag's, where timm knows them; else numbers."""
    names = named_classes(config, count, f"{config.model.options.name} with these weights")
    if names is not None:
        return names
    if config.model.options.weights is not None:
        from timm.data import ImageNetInfo, infer_imagenet_subset

        if known.label_names and len(known.label_names) == count:
            return [str(name) for name in known.label_names]
        if subset := infer_imagenet_subset({"num_classes": count}):
            info = ImageNetInfo(subset)
            return [info.index_to_description(number) for number in range(count)]
    return [str(number) for number in range(count)]


# --- what goes in -----------------------------------------------------------------------------------------------------


def _inputs(config: Config, known: Any) -> tuple[list[Input], list[str]]:
    """By timm's data configuration, and what it does that is not done here."""
    from timm.data import resolve_data_config

    data = resolve_data_config(pretrained_cfg=known.to_dict())
    channels, height, width = data["input_size"]
    if channels != 3:
        raise StageError(
            "not-supported",
            f"model.options.name: {config.model.options.name} takes images of {channels} channels; expected 3 (RGB)",
        )
    resample = data["interpolation"] if data["interpolation"] in [each.value for each in Resample] else "bilinear"
    mode, share = data["crop_mode"], data["crop_pct"]
    inputs = declared_inputs(
        config,
        Preprocessing(
            size=[height, width],
            mean=tuple(data["mean"]),
            std=tuple(data["std"]),
            resize=_RESIZES.get(mode, "stretch"),
            resample=resample,
        ),
    )
    notes = []
    if config.model.options.weights is None:
        notes.append(
            f"preprocessing: that of {known.architecture}.{known.tag}, where model.preprocessing says no other"
        )
    if mode == "center" or share < 1:
        notes.append(
            f"preprocessing: timm resizes so that {share:.1%} of the shorter side are seen and cuts the middle out "
            f"(crop_mode {mode}); here the whole image is seen"
        )
    return inputs, notes
