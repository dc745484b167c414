"""Reference of a run, and its verification: the configured torch model on samples that no other stage has seen, frozen
and read again, and the files in a run's workspace held against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.config.schema import Config
from truehalf.data.fitting import adversarial_samples
from truehalf.data.run_samples import run_samples
from truehalf.errors import StageError
from truehalf.files import read_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.profiles import completed
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.machine import device_lock
from truehalf.verification.activation_memory import fitting_batch
from truehalf.verification.chain.chain import Making, verify
from truehalf.verification.chain.reference import Reference, freeze, read_reference
from truehalf.verification.chain.stage import Judge, measured_with
from truehalf.verification.open_file import BACKENDS
from truehalf.verification.report import Report

if TYPE_CHECKING:
    import torch


def freeze_configured(module: torch.nn.Module, config: Config, root: Path, spec: IoSpec, slim_path: Path) -> Judge:
    """Run the torch model on the samples that files are verified with.

    Args:
        module: the configured model.
        config: of the run.
        root: its workspace.
        spec: the I/O spec of its files.
        slim_path: the slimmed file, whose activations say which batch fits into memory.

    Raises:
        StageError: a sample that cannot be read, or a model that fails on it.
    """
    samples = run_samples("verification", config, root, spec)
    batch = fitting_batch(load_model(slim_path), samples[0], config.verify.batch, config.verify.memory_gb)
    reference, adversarial = freeze(module, samples, spec, batch), _adversarial(module, config, spec, batch)
    return Judge(reference, adversarial, replace(config.verify, batch=batch))


def read_frozen(folder: Path, config: Config, root: Path, spec: IoSpec) -> Judge:
    """Read the result of `freeze_configured` from the files that `write_reference` wrote.

    Args:
        folder: artifacts/reference of the workspace.
        config, root, spec: see freeze_configured.

    Raises:
        StageError: when it is missing, or the samples of the configuration are others.
    """
    samples = run_samples("verification", config, root, spec)
    reference = read_reference(folder, "reference", samples, spec)
    if isinstance(reference, str):
        raise StageError("file-missing", f"{folder}: holds no reference ({reference}); run `dvc repro reference`")
    adversarial = read_reference(folder, "adversarial", adversarial_samples(config, spec), spec)
    batch = read_json(folder / "samples.json")["batch"]
    return Judge(reference, adversarial, replace(config.verify, batch=batch))


def _adversarial(model: torch.nn.Module, config: Config, spec: IoSpec, batch: int) -> Reference | str:
    """Freeze the reference on the adversarial samples, or say why there is none: an FP32 model that fails there itself
    is no error of a file.
    """
    samples = adversarial_samples(config, spec)
    if not samples:
        return "none are made for inputs that are no images"
    try:
        return freeze(model, samples, spec, batch)
    except StageError as error:
        return str(error)


def batch_sizes(config: Config, spec: IoSpec) -> list[int]:
    """1, and the first axes of opt and max of every optimization profile, in ascending order."""
    profiles = completed(config.engine.profiles, spec.inputs)
    shapes = [shapes for profile in profiles for shapes in profile.values()]
    return sorted({1, *(shape[0] for each in shapes for shape in (each["opt"], each["max"]) if shape)})


def verify_configured(
    config: Config, root: Path, files: Mapping[str, ModelFile], out: Path, left_open: Sequence[str]
) -> Report:
    """Hold the files of a run against the reference in its workspace.

    Args:
        config: of the run.
        root: its workspace.
        files: ONNX file by stage, see truehalf.verification.chain.chain.verify.
        out: folder for the verdict, its details and plots.
        left_open: see truehalf.verification.chain.chain.Making.

    Raises:
        StageError: when a file of an earlier stage is missing, or the samples of the configuration are others.
    """
    artifacts = root / "artifacts"
    spec = read_spec(artifacts / "trace" / "io_spec.json")
    judge = read_frozen(artifacts / "reference", config, root, spec)
    making = Making(
        batch_sizes=batch_sizes(config, spec),
        pinned=config.precision.node_block_list,
        left_open=left_open,
        measured=measured_with(judge.options, artifacts / "reference" / "measured.json"),
    )
    on_device = judge.options.evaluation.value in BACKENDS
    with device_lock() if on_device else nullcontext():  # where engines are timed
        return verify(judge, files, out, making)
