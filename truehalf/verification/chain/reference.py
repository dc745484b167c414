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
from truehalf.errors import StageError, failing
from truehalf.files import read_json, write_json
from truehalf.io_spec.in_file import names_of
from truehalf.io_spec.spec import IoSpec
from truehalf.json_values import JsonObject
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
    def index(self) -> list[JsonObject]:
        """{name, sha256, truth} of each sample, the true boxes as [x1, y1, x2, y2, label, score]; None without."""
        truth = [None] * len(self.names) if self.truth is None else map(_rows, self.truth)
        rows = zip(self.names, self.sha256, truth, strict=True)
        return [dict(zip(("name", "sha256", "truth"), row, strict=True)) for row in rows]


class _Frozen(Sequence[Sample]):
    """Samples that a reference was frozen on, each compared with what it was then as it is read or made again."""

    def __init__(self, samples: Sequence[Sample], names: list[str], digests: list[str], index: Path) -> None:
        self._samples, self._names, self._digests, self._index = samples, names, digests, index

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, position):  # type: ignore[no-untyped-def]
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        sample, name = self._samples[position], self._names[position]
        if (sample.name, digest(sample.feeds)) != (name, self._digests[position]):
            raise StageError(
                "wrong-file",
                f"{self._index}: {sample.name} is not what {name} was when the reference was frozen; run `dvc repro "
                "reference`",
            )
        return sample


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
        remedy = "; if it takes no other batch than the traced one, set verify.batch to that"
        what = f"the FP32 model fails on {len(group)} samples from {group[0].name} on"
        with failing("module-fails", what, remedy), torch.no_grad():
            values = model(*(torch.from_numpy(feeds[item.name]) for item in spec.inputs))
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
        samples, spec: what it was frozen on. A sample is made or read again where it is asked for, and a StageError
            where it is another then.

    Raises:
        StageError: when the files are missing, or as many samples are no longer there.
    """
    path = folder / "samples.json"
    index = read_json(path)[name]
    if isinstance(index, str):
        return index
    names, digests, truth = ([row[key] for row in index] for key in ("name", "sha256", "truth"))
    if len(samples) != len(names):
        raise StageError(
            "wrong-file",
            f"{path}: frozen on {len(names)} samples from {names[0]} on, and the configuration says {len(samples)}; "
            "run `dvc repro reference`",
        )
    outputs, kept = read_arrays(folder / f"{name}.npz"), _Frozen(samples, names, digests, path)
    return _reference(kept, names, digests, outputs, [_of_rows(rows) for rows in truth], spec)


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


def _rows(truth: Detections) -> list[list[float]]:
    rows: list[list[float]] = np.column_stack([truth.boxes, truth.labels, truth.scores]).tolist()
    return rows


def _of_rows(rows: list[list[float]] | None) -> Detections | None:
    if rows is None:
        return None
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4].astype(np.float32), table[:, 4].astype(np.int64), table[:, 5].astype(np.float32))
