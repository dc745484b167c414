"""LT-DETR itself, from lightly-train: a checkpoint of its training, or a registered name.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.schema import Config, DecoderName
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError, failing
from truehalf.models.calling import calling, tried
from truehalf.models.checkpoints import files as files
from truehalf.models.common_problems import another_layout, declared_needlessly, half_a_size
from truehalf.models.declared import declared_inputs
from truehalf.models.extras import extra
from truehalf.models.libraries.lightly_checkpoint import Wanted, described
from truehalf.models.libraries.lightly_names import decoder_of, ignored_of_encoder, made, prepare, version
from truehalf.models.model import QUERIES, Model
from truehalf.models.weights import fill

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Options:
    """See model/lightly_train.yaml.

    Attributes:
        name: as lightly-train registers it; null: as the checkpoint says.
        random: seeded random weights; else those of the checkpoint or, without one, those that lightly-train downloads.
    """

    name: str | None
    random: bool


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
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


def open_model(config: Config, root: Path) -> Model:
    """The detector with its weights, or with seeded random ones.

    Raises:
        StageError: when lightly-train is missing, broken or of a version with other private names; when the name is not
            known or has no weights to download; when the checkpoint cannot be read as data, is of another model, or
            says another name or decoder than the configuration; when the network cannot take images of this size.
    """
    extra("lightly_train", "lightly", "lightly-train (AGPL-3.0)")
    wanted = described(config, root)
    network = _network(wanted, config)
    preprocessing = _preprocessing(network, wanted)
    notes = [f"lightly-train {version()} (AGPL-3.0), {wanted.name}", _weights(network, wanted)]
    numbers = list(wanted.classes)
    if numbers != list(range(len(numbers))):
        notes.append(f"numbers of the classes in training, in the order of the logits: {', '.join(map(str, numbers))}")
    remedy = "; expected sides that are multiples of its strides (32, of DINOv2's backbones 28)"
    images, _ = tried(network, wanted.size, wanted.name, remedy)
    module = calling(network, ["logits", "boxes"])
    return Model(
        module=module,
        inputs=declared_inputs(config, preprocessing),
        outputs=QUERIES,
        class_names=list(wanted.classes.values()),
        trained=wanted.tensors is not None,
        prepared=lambda: _prepared(module, images),
        notes=notes,
    )


# --- the network ------------------------------------------------------------------------------------------------------


def _network(wanted: Wanted, config: Config) -> Any:
    """The network in eval mode, on the CPU, in FP32; random weights follow the seed."""
    import torch

    what = f"{wanted.label}: lightly-train {version()} cannot make {wanted.name} with {wanted.further} at "
    with (
        failing("module-fails", f"{what}{list(wanted.size)}", "; not every name has both decoders"),
        torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))),
    ):
        torch.manual_seed(config.seed)
        network = made(wanted.name, wanted.classes, wanted.size, **wanted.further)
    decoder, asked = decoder_of(network), config.decoder.name.value
    if decoder != asked:
        message = f"decoder: {wanted.label.partition(': ')[2]} has {decoder}; set decoder={decoder}, got {asked}"
        raise StageError("in-conflict", message)
    return network.to("cpu", torch.float32).eval()


def _weights(network: Any, wanted: Wanted) -> str:
    """Fill the network; a note on its weights."""
    if wanted.tensors is None:
        return "seeded random weights; none were read"
    left_out = tuple(f"encoder.{prefix}" for prefix in sorted(ignored_of_encoder(network)))
    tensors = {name: tensor for name, tensor in wanted.tensors.items() if not name.startswith(left_out)}
    fill(network, tensors, wanted.label.removeprefix("weights: "))
    dropped = len(wanted.tensors) - len(tensors)
    without = f"; {dropped} that this network does not have are left out, as lightly-train does" if dropped else ""
    return f"weights: {len(tensors)} tensors of {Path(wanted.label).name}{without}"


def _preprocessing(network: Any, wanted: Wanted) -> Preprocessing:
    """Mean and std are not part of lightly-train's exported graph."""
    mean, std = (tuple(float(value) for value in network.image_normalize[key]) for key in ("mean", "std"))
    if len(mean) != 3:
        message = f"{wanted.label}: it takes images of {len(mean)} channels; expected 3, as images here have"
        raise StageError("not-supported", message)
    return Preprocessing(size=list(wanted.size), mean=mean, std=std)


@contextlib.contextmanager
def _prepared(module: Any, images: torch.Tensor) -> Iterator[None]:
    """Within, `module` holds a copy of its network that lightly-train has prepared for the export.

    Tensors that are plain attributes of it are buffers there: so they follow when it is moved or halved.
    """
    import torch

    network = module.network
    prepared = copy.deepcopy(network)
    with torch.no_grad():
        prepare(prepared, images)
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
