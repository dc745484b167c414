"""Verification of a run: its files, its reference and its conversion, from the artifacts of its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from truehalf.config.schema import Config
from truehalf.files import read_json
from truehalf.io_spec.in_file import read_spec
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.machine import device_lock
from truehalf.verification.chain.chain import Making, verify
from truehalf.verification.chain.configured import batch_sizes, read_frozen
from truehalf.verification.chain.held_against import measured_with
from truehalf.verification.open_file import BACKENDS
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.report import Report


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
    whole = read_frozen(artifacts / "reference", config, root, spec)
    frozen, options = whole.first(config.verify.first_samples), whole.options(config.verify)
    ranges = read_json(artifacts / "calibrate" / "ranges.json")
    making = Making(
        adversarial=frozen.adversarial,
        batch_sizes=batch_sizes(config, spec),
        decisions=read_json(artifacts / "fp16" / "decisions.json"),
        left_out=frozen.left_out,
        pinned=config.precision.node_block_list,
        left_open=left_open,
        of_samples=len(whole.reference.names),
        measured=measured_with(options, artifacts / "reference" / "measured.json"),
        conversion=Reconversion.of(config.precision, config.engine, spec, ranges),
    )
    with device_lock("cuda") if options.evaluation.value in BACKENDS else nullcontext():  # where engines are timed
        return verify(frozen.reference, files, out, options, making)
