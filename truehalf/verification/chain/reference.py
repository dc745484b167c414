"""The frozen reference: outputs of the FP32 model (torch, or ONNX Runtime where it is a file) on the verification
samples, made once, for every file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.data.arrays import read_arrays, write_arrays
from truehalf.data.samples import Sample, batches, digest_of, stacked
from truehalf.errors import StageError, failing
from truehalf.files import read_json, write_json
from truehalf.io_spec.checks import check_reference
from truehalf.io_spec.decode import Detections, decode
from truehalf.io_spec.in_file import names_of
from truehalf.io_spec.outputs import DETECTIONS, finds_anchors, task_of
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject
from truehalf.progress import track
from truehalf.verification.comparison import UNTRAINED, Comparison, ReferenceFacts
from truehalf.verification.metrics.average_precision import Precision, precision
from truehalf.verification.metrics.kinds import kinds_of
from truehalf.verification.near_ties import Rerun, compare_without_ties
from truehalf.verification.open_file import OpenFile, opened
from truehalf.verification.runs import Arrays, Part, Run, as_read, joined, part_of, run_both

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
        detections: those in its outputs; empty of a model that is no detector.
        truth: the true boxes, or None where a sample has no labels.
        file: the FP32 file, run once more on moved inputs, and on what a candidate decides on; None: there is none.
        moved: see Rerun.kept.
        kept_precision: average precision of all samples, where it was measured when the reference was frozen.
    """

    samples: Sequence[Sample]
    names: list[str]
    sha256: list[str]
    outputs: Outputs
    spec: IoSpec
    detections: list[Detections]
    truth: list[Detections] | None
    file: ModelFile | None = None
    kept_precision: Precision | None = None
    moved: dict[object, list[Arrays]] = field(default_factory=dict, repr=False, compare=False)

    def subset(self, rows: Sequence[int]) -> Reference:
        """Select some of the samples, in this order."""
        if [*rows] == [*range(len(self.names))]:
            return self
        places = slice(rows.start, rows.stop) if isinstance(rows, range) else list(rows)
        return replace(
            self,
            samples=self.samples[places] if isinstance(places, slice) else [self.samples[i] for i in rows],
            names=[self.names[i] for i in rows],
            sha256=[self.sha256[i] for i in rows],
            outputs={name: value[places] for name, value in self.outputs.items()},
            detections=[self.detections[i] for i in rows] if self.detections else [],
            truth=None if self.truth is None else [self.truth[i] for i in rows],
            kept_precision=None,
        )

    def precision(self) -> Precision:
        """Measure the average precision of the FP32 model."""
        if self.kept_precision is not None:
            return self.kept_precision
        reason = "the model outputs no boxes with scores and classes" if task_of(self.spec) != DETECTIONS else None
        reason = reason if self.spec.trained else UNTRAINED
        if reason:
            return Precision(ap50=None, ap50_95=None, reason=reason)
        return precision(self.detections, self.truth, self.spec, finds_anchors(self.spec, self.outputs))

    def runs(self, candidate: Callable[[Part], Arrays], batch: int, label: str, lanes: int = 1) -> list[Run]:
        """Run a candidate on all samples, beside the frozen outputs.

        Args:
            candidate: computes outputs of a part.
            batch: samples of a run.
            label: of the progress.
            lanes: how many runs go beside each other.
        """

        def frozen(part: Part) -> Arrays:
            start = part.place[1]
            return part_of(self.outputs, start, part.rows)

        def made(part: Part) -> Arrays:
            return {name: np.atleast_1d(as_read(value)) for name, value in candidate(part).items()}

        starts = range(0, len(self.names), batch)
        parts = (self._part(start, batch) for start in track(starts, label, len(starts)))
        return list(run_both(parts, frozen, made, lanes))

    def _part(self, start: int, size: int) -> Part:
        names = self.names[start : start + size]
        rows = range(start, start + len(names))
        return Part(names, len(names), lambda: stacked([self.samples[row] for row in rows]), (0, start))

    def compare(
        self, runs: Sequence[Run], options: VerifyConfig, file: OpenFile | None = None, outputs_only: bool = False
    ) -> Comparison:
        """Compare runs of a file with the FP32 model; near ties inside are settled.

        Args:
            file: whose runs these are, which is asked for tensors inside it; None: it shows none.
            outputs_only: see truehalf.verification.comparison.compare_outputs.
        """
        spec = with_shapes(self.spec, {name: ("N", *value.shape[1:]) for name, value in self.outputs.items()})
        facts = ReferenceFacts(
            truth=self.truth,
            precision=None if outputs_only or not self.detections else self.precision(),
            kinds=kinds_of(self.spec, None if self.file is None else self.file.model),
        )
        rerun = None
        if self.file is not None:
            own = functools.cache(partial(opened, self.file, options.evaluation.value))  # few runs need it
            rerun = Rerun(self.spec, own, file, self.moved)
        return compare_without_ties(runs, rerun, spec, options, facts, outputs_only)

    @property
    def index(self) -> list[JsonObject]:
        """{name, sha256, truth} of each sample, the true boxes as [x1, y1, x2, y2, label, score]; None without."""
        truth = [None] * len(self.names) if self.truth is None else map(_rows, self.truth)
        rows = zip(self.names, self.sha256, truth, strict=True)
        return [dict(zip(("name", "sha256", "truth"), row, strict=True)) for row in rows]


def with_shapes(spec: IoSpec, shapes: Mapping[str, Sequence[int | str]]) -> IoSpec:
    """Fill in shapes of outputs where the spec says none."""
    shaped = {each.name: tuple(shapes[each.name]) for each in spec.outputs if not each.shape and each.name in shapes}
    outputs = (replace(each, shape=shaped.get(each.name, each.shape)) for each in spec.outputs)
    return replace(spec, outputs=tuple(outputs))


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
        StageError: when it fails, or an output has not a row for each sample, or nothing finite on one: such a model is
            no reference.
    """
    import torch

    names: list[str] = []
    digests: list[str] = []
    truth: list[Detections | None] = []
    made = []
    for group in track(batches(samples, batch), "reference: FP32 model", -(-len(samples) // batch)):
        feed = stacked(group)
        remedy = "; if it takes no other batch than the traced one, set verify.batch to that"
        what = f"the FP32 model fails on {len(group)} samples from {group[0].name} on"
        with failing("module-fails", what, remedy), torch.no_grad():
            values = model(*(torch.from_numpy(feed[item.name]) for item in spec.inputs))
        outputs = {name: _array(value) for name, value in zip(names_of(spec.outputs), values, strict=True)}
        for name, value in outputs.items():
            _refuse_unusable(name, value, [sample.name for sample in group])
        made.append(outputs)
        names += [sample.name for sample in group]
        digests += [digest_of(sample.arrays) for sample in group]
        truth += map(_truth, group)
    return _reference(samples, names, digests, joined(made), truth, spec)


def _array(value: torch.Tensor) -> np.ndarray:
    return np.asarray((value.float() if value.is_floating_point() else value).detach())


def write_reference(folder: Path, reference: Reference, adversarial: Reference | str, batch: int) -> None:
    """Write the frozen outputs (reference.npz, adversarial.npz), and samples.json: the index of their rows, and the
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
    """Read a reference that the stage of that name has frozen; or the reason why it could not freeze one.

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
    """Make a Reference of frozen outputs; labels count where every sample has them.

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
        detections=decode(outputs, spec) if task_of(spec) == DETECTIONS else [],
        truth=labelled if len(labelled) == len(samples) else None,
    )


def _refuse_unusable(name: str, value: np.ndarray, samples: Sequence[str]) -> None:
    if value.shape[:1] != (len(samples),):
        raise StageError(
            "wrong-shape",
            f"output {name!r} of the FP32 model is {list(value.shape)} for {len(samples)} samples; expected as many on "
            "its first axis; leave it out with model.drop_outputs, or return a row for each sample",
        )
    for sample, one in zip(samples, value, strict=True):
        if one.size and not np.isfinite(one).any():
            raise StageError(
                "not-finite",
                f"the FP32 model is no reference: output {name!r} holds nothing but NaN and Inf on sample {sample}; "
                "expected finite values beside masks. Check the weights and the inputs",
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
