"""The frozen reference: outputs of the FP32 model (torch, or ONNX Runtime where it is a file) on the verification
samples, made once, for every file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.data.arrays import read_arrays, write_arrays
from truehalf.data.samples import Sample, batches, stacked
from truehalf.errors import StageError, typed_line
from truehalf.files import read_json, write_json
from truehalf.io_spec.in_file import names_of
from truehalf.io_spec.spec import IoSpec
from truehalf.progress import track
from truehalf.verification.measured import UNTRAINED, Measured
from truehalf.verification.metrics.decoded import found_in
from truehalf.verification.metrics.detections import Detections
from truehalf.verification.open_file import groups, joined
from truehalf.verification.reaction import digest
from truehalf.verification.runs import Run

if TYPE_CHECKING:
    import torch

Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reference:
    """What every file is compared with; lists go by sample.

    Attributes:
        samples: the verification samples.
        names, sha256: of each sample its name and the SHA-256 of its inputs.
        outputs: of the FP32 model, [samples, ...] by name, floats as float32.
        spec: the I/O spec.
        found: its detections.
        truth: the true boxes, or None where a sample has no labels.
        unusable: why detections mean nothing here, or None.
    """

    samples: Sequence[Sample]
    names: list[str]
    sha256: list[str]
    outputs: Outputs
    spec: IoSpec
    found: list[Detections]
    truth: list[Detections] | None
    unusable: str | None

    def subset(self, rows: Sequence[int]) -> Reference:
        """The reference on some of the samples, in this order."""
        return Reference(
            samples=[self.samples[i] for i in rows],
            names=[self.names[i] for i in rows],
            sha256=[self.sha256[i] for i in rows],
            outputs={name: value[list(rows)] for name, value in self.outputs.items()},
            spec=self.spec,
            found=[self.found[i] for i in rows],
            truth=None if self.truth is None else [self.truth[i] for i in rows],
            unusable=self.unusable,
        )

    def run(self, outputs: Outputs, samples: int | None = None) -> Run:
        """Outputs of a file on the first samples, beside those of the FP32 model.

        Args:
            outputs: [samples, ...] by name.
            samples: how many; None: as many as `outputs` holds.
        """
        count = len(next(iter(outputs.values()), self.names)) if samples is None else samples
        expected = {name: value[:count] for name, value in self.outputs.items()}
        return Run(self.names[:count], count, expected, outputs, self.sha256[:count])

    def measured(self, outputs: Outputs, options: VerifyConfig, samples: int | None = None) -> Measured:
        """A `run`, measured."""
        run = self.run(outputs, samples)
        return Measured([run], self.spec, options, self.found, self.unusable)

    @property
    def index(self) -> list[dict[str, str]]:
        """{name, sha256} of each sample."""
        return [{"name": name, "sha256": sha256} for name, sha256 in zip(self.names, self.sha256, strict=True)]


def freeze(model: torch.nn.Module, samples: Sequence[Sample], spec: IoSpec, batch: int) -> Reference:
    """Run the FP32 model on all samples.

    Args:
        model: in eval mode; takes the inputs of `spec` in order and returns its outputs in order.
        batch: samples in memory at a time.

    Raises:
        StageError: when it fails, or an output has not a row for each sample or is not finite: such a model is no
            reference.
    """
    import torch

    parts: list[Outputs] = []
    names: list[str] = []
    digests: list[str] = []
    truth: list[Detections | None] = []
    for group in track(batches(samples, batch), "reference: FP32 model", groups(samples, batch)):
        feeds = stacked(group)
        try:
            with torch.no_grad():
                values = model(*(torch.from_numpy(feeds[item.name]) for item in spec.inputs))
        except StageError:
            raise
        except Exception as error:  # whatever a module of the user's raises
            raise StageError(
                "module-fails",
                f"the FP32 model fails on {len(group)} samples from {group[0].name} on: {typed_line(error)}; "
                f"if it takes no other batch than the traced one, set verify.batch to that",
            ) from error
        named = zip(names_of(spec.outputs), values, strict=True)
        parts.append({name: (value.float() if value.is_floating_point() else value).numpy() for name, value in named})
        for name, value in parts[-1].items():
            _refuse_unusable(name, value, group)
        names += [sample.name for sample in group]
        digests += [digest(sample.feeds) for sample in group]
        truth += [_truth(sample) for sample in group]
    outputs = joined(parts)
    return _reference(samples, names, digests, outputs, truth, spec)


def write_reference(folder: Path, reference: Reference, adversarial: Reference | str, batch: int) -> None:
    """The frozen outputs, reference.npz and adversarial.npz, and samples.json: what belongs to their rows, and the
    samples of a run that fit into memory.
    """
    index: dict[str, Any] = {"batch": batch}
    for name, frozen in (("reference", reference), ("adversarial", adversarial)):
        index[name] = frozen if isinstance(frozen, str) else frozen.index
        if isinstance(frozen, Reference):
            write_arrays(folder / f"{name}.npz", frozen.outputs)
    write_json(folder / "samples.json", index)


def read_reference(folder: Path, name: str, samples: Sequence[Sample], spec: IoSpec) -> Reference | str:
    """A reference that the stage of that name has frozen; or, where it could not freeze one, why.

    Args:
        folder: artifacts/reference of a workspace.
        name: "reference" or "adversarial".
        samples, spec: what it was frozen on, made or read again.

    Raises:
        StageError: when the files are missing, or the samples are others than those that it was frozen on.
    """
    index = read_json(folder / "samples.json")[name]
    if isinstance(index, str):
        return index
    names, digests = ([str(row[key]) for row in index] for key in ("name", "sha256"))
    if [sample.name for sample in samples] != names:
        raise StageError(
            "wrong-file",
            f"{folder}/samples.json: frozen on {len(names)} samples from {names[0]} on, and the configuration says "
            f"{len(samples)}; run `dvc repro reference`",
        )
    truth = []
    for sample, frozen in zip(samples, digests, strict=True):
        if digest(sample.feeds) != frozen:
            raise StageError(
                "wrong-file",
                f"{folder}/samples.json: {sample.name} is not what it was when the reference was frozen; run "
                "`dvc repro reference`",
            )
        truth.append(_truth(sample))
    outputs = read_arrays(folder / f"{name}.npz")
    return _reference(samples, names, digests, outputs, truth, spec)


def _reference(
    samples: Sequence[Sample],
    names: list[str],
    digests: list[str],
    outputs: Outputs,
    truth: Sequence[Detections | None],
    spec: IoSpec,
) -> Reference:
    """What was frozen, with what follows from it; labels count where every sample has them."""
    labelled = [boxes for boxes in truth if boxes is not None]
    return Reference(
        samples=samples,
        names=names,
        sha256=digests,
        outputs=outputs,
        spec=spec,
        found=found_in(outputs, spec),
        truth=labelled if len(labelled) == len(samples) else None,
        unusable=None if spec.trained else UNTRAINED,
    )


def _refuse_unusable(name: str, value: np.ndarray, group: Sequence[Sample]) -> None:
    if value.shape[:1] != (len(group),):
        raise StageError(
            "wrong-shape",
            f"output {name!r} of the FP32 model is {list(value.shape)} for {len(group)} samples; expected as many on "
            "its first axis; leave it out with model.drop_outputs, or return a row for each sample",
        )
    for sample, one in zip(group, value, strict=True):
        bad = int((~np.isfinite(one)).sum())
        if bad:
            raise StageError(
                "not-finite",
                f"the FP32 model is no reference: output {name!r} holds {bad} NaN or Inf of {one.size} values on "
                f"sample {sample.name}; expected finite values. Check the weights and the inputs",
            )


def _truth(sample: Sample) -> Detections | None:
    if sample.boxes is None or sample.labels is None:
        return None
    crowds = np.zeros(len(sample.labels), bool) if sample.crowds is None else sample.crowds
    return Detections(sample.boxes, sample.labels, (~crowds).astype(np.float32))
