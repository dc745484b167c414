"""Reference of a run: the configured torch model on samples that no other stage has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.config.schema import Config
from truehalf.config.verification import VerifyConfig
from truehalf.data.samples import adversarial_samples, readable, verification_samples
from truehalf.errors import StageError
from truehalf.io_spec.profile_shapes import completed
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import load_model
from truehalf.verification.chain.batch_memory import fitting_batch
from truehalf.verification.chain.reference import Reference, freeze

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Frozen:
    """The reference of a run, and how it was computed.

    Attributes:
        reference: outputs of the torch model on the samples of verification.
        adversarial: the same on the adversarial samples, or why there is none.
        options: config.verify, with a batch that fits into the memory that it allows.
        left_out: what is wrong with each sample that was left out.
    """

    reference: Reference
    adversarial: Reference | str
    options: VerifyConfig
    left_out: list[str]


def freeze_configured(module: torch.nn.Module, config: Config, root: Path, spec: IoSpec, slim_path: Path) -> Frozen:
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
    samples = verification_samples(config, root, spec)
    left_out: list[str] = []
    if config.verify.skip_corrupt:
        samples, left_out = readable(samples)
    batch = fitting_batch(load_model(slim_path), samples[0], config.verify.batch, config.verify.memory_gb)
    reference = freeze(module, samples, spec, batch)
    adversarial = _adversarial(module, config, spec, batch)
    return Frozen(reference, adversarial, replace(config.verify, batch=batch), left_out)


def _adversarial(model: torch.nn.Module, config: Config, spec: IoSpec, batch: int) -> Reference | str:
    """The reference on the adversarial samples; or why there is none: that FP32 itself fails there is no error of a
    file.
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
