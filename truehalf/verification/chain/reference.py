"""The frozen reference: outputs of the FP32 model (torch, or ONNX Runtime where it is a file) on the verification
samples, made once, for every file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.data.arrays import read_arrays, write_arrays
from truehalf.data.samples import Sample, digest_of
from truehalf.errors import StageError, failing
from truehalf.files import read_json, write_json
from truehalf.io_spec.checks import check_reference
from truehalf.io_spec.decode import Detections
from truehalf.io_spec.in_file import names_of
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject
from truehalf.verification.measured import UNTRAINED, Measured
from truehalf.verification.metrics.decoded import found_in
from truehalf.verification.metrics.half_steps import HalfSteps
from truehalf.verification.metrics.precision import Precision, precision
from truehalf.verification.near_ties import without_near_ties
from truehalf.verification.open_file import OpenFile, opened
from truehalf.verification.rerun import Rerun
from truehalf.verification.runs import Arrays, Part, Run, outputs_of, parts_of

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
        file: the FP32 file, run once more on moved inputs, and on what a candidate decides on; None: there is none.
        moved: see Rerun.kept.
        kept_precision: average precision of all samples, where it was measured when the reference was frozen.
    """

    samples: Sequence[Sample]
    names: list[str]
    sha256: list[str]
    outputs: Outputs
    spec: IoSpec
    found: list[Detections]
    truth: list[Detections] | None
    unusable: str | None
    file: ModelFile | None = None
    kept_precision: Precision | None = None
    moved: dict[object, list[list[Arrays]]] = field(default_factory=dict, repr=False, compare=False)

    def subset(self, rows: Sequence[int]) -> Reference:
        """The reference on some of the samples, in this order."""
        return replace(
            self,
            samples=[self.samples[i] for i in rows],
            names=[self.names[i] for i in rows],
            sha256=[self.sha256[i] for i in rows],
            outputs={name: value[list(rows)] for name, value in self.outputs.items()},
            found=[self.found[i] for i in rows],
            truth=None if self.truth is None else [self.truth[i] for i in rows],
            kept_precision=None,
        )

    def precision(self, count: int | None = None) -> Precision:
        """Average precision of the FP32 model on the first samples; None: on all."""
        if count in (None, len(self.names)) and self.kept_precision is not None:
            return self.kept_precision
        return precision(self, self.found[:count])

    def beside(self, file: ModelFile | None) -> Reference:
        """The reference with its FP32 file."""
        return replace(self, file=file)

    def measured(
        self, outputs: Outputs, options: VerifyConfig, samples: int | None = None, file: OpenFile | None = None
    ) -> Measured:
        """Outputs of a file on the first samples, measured beside those of the FP32 model.

        Args:
            outputs: [samples, ...] by name.
            samples: how many; None: as many as `outputs` holds.
            file: whose outputs these are, which is asked for tensors inside it; None: it shows none.
        """
        count = len(next(iter(outputs.values()), self.names)) if samples is None else samples
        expected = {name: value[:count] for name, value in self.outputs.items()}
        run = Run(self.names[:count], count, expected, outputs, self.sha256[:count])
        return self.measured_run(run, range(len(self.names)), options, self.found, file)

    def measured_run(
        self,
        run: Run,
        rows: Sequence[int],
        options: VerifyConfig,
        known: Sequence[Detections],
        file: OpenFile | None = None,
    ) -> Measured:
        """A run on these samples, measured; near ties inside are settled (truehalf.verification.near_ties).

        Args:
            rows: positions of the samples.
            known: what detections are compared with.
            file: see `measured`.
        """
        rerun = self._rerun(rows[: run.rows], options, file)
        half_steps = HalfSteps() if rerun is None else rerun.half_steps([run])

        def measure(runs: Sequence[Run], given: int) -> Measured:
            still = known if runs[0].reference is run.reference else None  # but for decisions inside
            return Measured(runs, self.spec, options, still, self.unusable, given, half_steps)

        return without_near_ties([run], rerun, measure)

    def _rerun(self, rows: Sequence[int], options: VerifyConfig, file: OpenFile | None) -> Rerun | None:
        """The FP32 file, to be run once more on these samples; None where there is none."""
        if self.file is None:
            return None
        own = functools.cache(lambda file=self.file: opened(file, options.evaluation.value))  # few runs need it
        samples = [self.samples[i] for i in rows] if [*rows] != [*range(len(rows))] else self.samples[: len(rows)]

        def parts(run: Run) -> Iterator[Part]:
            return (part for part, _ in parts_of(samples, options.batch, "verify: half a step of the input"))

        return Rerun(self.spec, own, file, parts, self.moved)

    @property
    def index(self) -> list[JsonObject]:
        """{name, sha256, truth} of each sample, the true boxes as [x1, y1, x2, y2, label, score]; None without."""
        truth = [None] * len(self.names) if self.truth is None else map(_rows, self.truth)
        rows = zip(self.names, self.sha256, truth, strict=True)
        return [dict(zip(("name", "sha256", "truth"), row, strict=True)) for row in rows]


class _Frozen(Sequence[Sample]):
    """Samples that a reference was frozen on, each compared with what it was then as it is read or made again.

    A slice of them holds none either.
    """

    def __init__(
        self, samples: Sequence[Sample], names: list[str], digests: list[str], index: Path, rows: range | None = None
    ) -> None:
        self._samples, self._names, self._digests, self._index = samples, names, digests, index
        self._rows = range(len(names)) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position):  # type: ignore[no-untyped-def]
        row = self._rows[position]
        if isinstance(row, range):
            return _Frozen(self._samples, self._names, self._digests, self._index, row)
        sample, name = self._samples[row], self._names[row]
        if (sample.name, digest_of(sample.arrays)) != (name, self._digests[row]):
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

    names: list[str] = []
    digests: list[str] = []
    truth: list[Detections | None] = []

    def parts() -> Iterator[Part]:
        for part, group in parts_of(samples, batch, "reference: FP32 model"):
            digests.extend(digest_of(sample.arrays) for sample in group)
            truth.extend(_truth(sample) for sample in group)
            names.extend(part.names)
            yield part

    def run(part: Part) -> Outputs:
        remedy = "; if it takes no other batch than the traced one, set verify.batch to that"
        what = f"the FP32 model fails on {part.rows} samples from {part.names[0]} on"
        with failing("module-fails", what, remedy), torch.no_grad():
            values = model(*(torch.from_numpy(part.feed[item.name]) for item in spec.inputs))
        named = zip(names_of(spec.outputs), values, strict=True)
        outputs = {
            name: (value.float() if value.is_floating_point() else value).detach().numpy() for name, value in named
        }
        for name, value in outputs.items():
            _refuse_unusable(name, value, part)
        return outputs

    return _reference(samples, names, digests, outputs_of(parts(), run), truth, spec)


def write_reference(folder: Path, reference: Reference, adversarial: Reference | str, batch: int) -> None:
    """The frozen outputs, reference.npz and adversarial.npz, and samples.json: what belongs to their rows, and the
    samples of a run that fit into memory.
    """
    index: dict[str, Any] = {"batch": batch}
    for name, frozen in (("reference", reference), ("adversarial", adversarial)):
        index[name] = frozen if isinstance(frozen, str) else frozen.index
        if isinstance(frozen, Reference):
            write_arrays(folder / f"{name}.npz", frozen.outputs)
    index["precision"] = reference.precision()
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
    index = (known := read_json(path))[name]
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
    frozen = _reference(kept, names, digests, outputs, [_of_rows(rows) for rows in truth], spec)
    return replace(frozen, kept_precision=cast("Precision", known.get("precision"))) if name == "reference" else frozen


def _reference(
    samples: Sequence[Sample],
    names: list[str],
    digests: list[str],
    outputs: Outputs,
    truth: Sequence[Detections | None],
    spec: IoSpec,
) -> Reference:
    """What was frozen, with what follows from it; labels count where every sample has them.

    Raises:
        StageError: as check_reference.
    """
    check_reference(outputs, spec)
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


def _refuse_unusable(name: str, value: np.ndarray, part: Part) -> None:
    if value.shape[:1] != (part.rows,):
        raise StageError(
            "wrong-shape",
            f"output {name!r} of the FP32 model is {list(value.shape)} for {part.rows} samples; expected as many on "
            "its first axis; leave it out with model.drop_outputs, or return a row for each sample",
        )
    for sample, one in zip(part.names, value, strict=True):
        bad = int((~np.isfinite(one)).sum())
        if bad:
            raise StageError(
                "not-finite",
                f"the FP32 model is no reference: output {name!r} holds {bad} NaN or Inf of {one.size} values on "
                f"sample {sample}; expected finite values. Check the weights and the inputs",
            )


def _truth(sample: Sample) -> Detections | None:
    if sample.boxes is None or sample.labels is None:
        return None
    crowds = np.zeros(len(sample.labels), bool) if sample.crowds is None else sample.crowds
    return Detections(sample.boxes, sample.labels, (~crowds).astype(np.float32))


def _rows(truth: Detections) -> list[list[float]]:
    rows: list[list[float]] = np.column_stack([truth.boxes_px, truth.labels, truth.scores]).tolist()
    return rows


def _of_rows(rows: list[list[float]] | None) -> Detections | None:
    if rows is None:
        return None
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4].astype(np.float32), table[:, 4].astype(np.int64), table[:, 5].astype(np.float32))
