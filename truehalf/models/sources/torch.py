"""Your torch module, made by a function of yours.

`model.options.factory` is imported from the workspace or from what is installed, because you name it; nothing else is.
Checkpoints are data: truehalf/models/checkpoints.py. The outputs are those that the module returns on one sample.

`model.options.prepare`, where you name it, is called with a deep copy of the module before it is exported (`deploy()`,
fused layers). The module itself stays as it is, and is what the exported file is compared with.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.options import problem_of_function
from truehalf.config.schema import Config, DataSource
from truehalf.config.typed import plain
from truehalf.data.arrays import npz_files
from truehalf.errors import StageError, failing
from truehalf.io_spec.inputs import channels_axis
from truehalf.io_spec.spec import InputSpec, IoSpec, OutputSpec
from truehalf.models.calling import as_network, calling, no_tensors, parameters_of, returned_by, standing_in
from truehalf.models.checkpoints import files as checkpoint_files
from truehalf.models.declared import (
    IMAGES,
    declared_inputs,
    outputs_of,
    own_decoder,
    problems_of_declared,
    takes_images,
    tensor_input,
)
from truehalf.models.model import Model
from truehalf.models.weights import load_weights
from truehalf.provenance.fingerprints import user_files
from truehalf.user_code import found_in_code, imported

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Options:
    """See model/torch.yaml.

    Attributes:
        factory: "package.module:function", called with `kwargs`; returns the module; or a module itself.
        prepare: "package.module:function", called with a copy of the module before the export; changes it in place, or
            returns another.
        key: where in the checkpoint's mapping the state dict is, such as "ema.module"; null: where it is found.
        prefix: taken off every name in the checkpoint.
        trained: whether there are weights to trust; null: whether there is a checkpoint.
    """

    factory: str | None
    kwargs: dict[str, Any]
    prepare: str | None
    key: str | None
    prefix: str | None
    trained: bool | None


def problems(config: Config) -> Iterator[str]:
    """What is wrong with `model.*` beyond types."""
    model, options = config.model, config.model.options
    if options.kwargs.get("decoder") != config.decoder.name.value:  # a factory may take `decoder: ${decoder.name}`
        yield from own_decoder(config, "module")
    if options.factory is None:
        message = "model.options.factory: expected a function: model.options.factory=my_package.my_module:build"
        yield coded("needs-value", message)
    for key in ("factory", "prepare"):
        yield from problem_of_function(f"model.options.{key}", getattr(options, key))
    if takes_images(config) and None in model.image_size:
        yield coded(
            "needs-value",
            f"model.image_size: expected [height, width], which a module does not say, got {plain(model.image_size)}",
        )
    if model.checkpoint is None and (options.key is not None or options.prefix is not None):
        message = "model.options.key, model.options.prefix: of model.checkpoint, which is null; expected null"
        yield coded("in-conflict", message)
    yield from problems_of_declared(config)


def files(config: Config, root: Path) -> list[Path]:
    """The checkpoint, and the code of what is named: truehalf.provenance.fingerprints.user_files."""
    options: Options = config.model.options
    code = user_files([name for name in (options.factory, options.prepare) if name is not None], root)
    return list(dict.fromkeys([*checkpoint_files(config, root), *code]))


def open_model(config: Config, root: Path) -> Model:
    """The module that the factory makes, with its weights.

    Raises:
        StageError: when a function cannot be imported or raises, when the factory makes no module, when the weights do
            not fit, or when what the module returns cannot be the outputs.
    """
    options: Options = config.model.options
    network = _made(options, config.seed, root)
    notes = []
    if config.model.checkpoint is not None:
        path = root / config.model.checkpoint
        notes.append(load_weights(network, path, options.key, options.prefix or ""))
    inputs = _inputs(network, config, root)
    outputs, takes, left_out = _outputs(network, inputs, config, root)
    notes += [left_out] if left_out else []
    module = calling(network, takes)
    if options.prepare is not None:
        notes.append(f"prepare: {options.prepare}, on a copy of the module, only for the export")
    return Model(
        module=module,
        inputs=inputs,
        outputs=outputs,
        class_names=list(config.model.classes or ()),
        trained=config.model.checkpoint is not None if options.trained is None else options.trained,
        prepared=lambda: _prepared(module, options, root),
        notes=notes,
    )


def _inputs(network: torch.nn.Module, config: Config, root: Path) -> list[InputSpec]:
    """As declared; where nothing is, and the samples are arrays by other names than that of the images, these: in the
    order in which forward takes them.
    """
    inputs = declared_inputs(config)
    if config.model.inputs is not None or config.data.source is not DataSource.npz:
        return inputs
    headers = npz_files(root / str(config.data.file))[0].headers
    if list(headers) == [IMAGES] and channels_axis(headers[IMAGES].shape) is not None:
        return inputs
    taken = [name for name in parameters_of(network) if name in headers] if len(headers) > 1 else list(headers)
    if len(taken) != len(headers):
        raise StageError(
            "needs-value",
            f"model.inputs: data.file holds {', '.join(headers)}, and forward takes other names, so their order is not "
            "known; declare them in the order of forward: [{name, kind, dtype, shape}]",
        )
    return [tensor_input(name, str(headers[name].dtype), headers[name].shape[1:]) for name in taken]


def _made(options: Options, seed: int, root: Path) -> torch.nn.Module:
    """The module in eval mode, on the CPU, in FP32; random weights follow the seed."""
    import torch

    assert options.factory is not None, "checked by problems"
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        network = found_in_code("model.options.factory", options.factory, root)
        if not isinstance(network, torch.nn.Module):
            network = _called(options.factory, "model.options.factory", root, **options.kwargs)
    return as_network(network, f"model.options.factory: {options.factory}")


def _outputs(
    network: torch.nn.Module, inputs: list[InputSpec], config: Config, root: Path
) -> tuple[list[OutputSpec], list[str], str]:
    """Outputs, what to take for each of what the module returns on a sample to trace on, and what was left out."""
    from truehalf.data.run_samples import run_samples
    from truehalf.data.samples import filled

    spec = IoSpec(tuple(inputs), class_names=tuple(config.model.classes or ()))
    sample = filled(run_samples("trace", config, root, spec)[:1], config.trace.batch)
    feed = {each.name: sample[each.name] for each in inputs}
    remedy = "; model.inputs and model.image_size say what goes in"
    returned = returned_by(network, feed, "model.options.factory", remedy)
    outputs, takes = outputs_of(config, returned)
    if clashing := [each.name for each in outputs if each.name in feed]:
        raise StageError(
            "given-twice",
            f"model.outputs: the module returns {', '.join(clashing)}, and an input has this name; give outputs other "
            "names in model.outputs, each with `take`",
        )
    return outputs, takes, "" if config.model.outputs or config.model.drop_outputs else no_tensors(returned)


@contextlib.contextmanager
def _prepared(module: Any, options: Options, root: Path) -> Iterator[None]:
    """Within, `module` holds a prepared copy of its network."""
    if options.prepare is None:
        yield
        return
    import torch

    remedy = ". It is not changed itself; prepare it in the factory"
    with failing("not-supported", "model.options.prepare: the module cannot be copied", remedy):
        copied = copy.deepcopy(module.network)
    returned = _called(options.prepare, "model.options.prepare", root, copied)
    if returned is not None and not isinstance(returned, torch.nn.Module):
        raise StageError(
            "wrong-return",
            f"model.options.prepare: {options.prepare} returned a {type(returned).__name__}; expected a "
            "torch.nn.Module, or nothing where it changes the one that it gets",
        )
    with standing_in(module, copied if returned is None else returned):
        yield


def _called(name: str, key: str, root: Path, /, *arguments: Any, **keywords: Any) -> Any:
    """What the named function returns.

    Raises:
        StageError: when there is no such function, or it raises.
    """
    function = imported(key, name, root)
    with failing("function-fails", f"{key}: {name} raised"):
        return function(*arguments, **keywords)
