"""Two ONNX files on the same inputs: their interfaces compared with each other, and both run.

The reference runs on ONNX Runtime's CPU provider in FP32, or emulated where it holds FP16 itself; the candidate by the
evaluation asked for (truehalf.verification.open_file), and where FP16 arithmetic decides its shapes on the CPU
provider, too (truehalf.verification.float16_shapes). Where axis 0 counts samples, feeds are run in groups of `batch`,
and as a file with a fixed batch asks for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import methodcaller

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.verification import Evaluation
from truehalf.data.samples import Feeds, Samples, digest_of, refuse_nan, repeated
from truehalf.errors import StageError, refuse
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import fixed_batch
from truehalf.ir.model_forms import ModelFile
from truehalf.progress import track
from truehalf.verification import open_file
from truehalf.verification.near_ties import Rerun
from truehalf.verification.open_file import Arrays, OpenFile, evaluation_of
from truehalf.verification.runs import Part, Run, part_of

REFERENCE, CANDIDATE = "reference", "candidate"


class ModelPair:
    """A reference and a candidate of one interface, opened.

    Attributes:
        reference, candidate: the files, opened.
        batch_sizes: numbers of samples that the candidate ran with, where axis 0 counts them.
        shapes: by input with another axis that the candidate leaves free, the shapes that it ran with, without axis 0
            where that counts samples.
        shape_problem: the first run in which the candidate's shapes hang on where FP16 is rounded; else None.
        shapes_unknown: why that was not looked at though FP16 arithmetic decides shapes; else None.
    """

    def __init__(self, reference: ModelFile | OpenFile, candidate: ModelFile, evaluation: str) -> None:
        """Open both, which have one interface (`check_same_interface`); a reference may be open already.

        Raises:
            StageError: when a file cannot be read, or when ONNX Runtime cannot load it.
        """
        if not isinstance(reference, OpenFile):
            reference = _opened(reference, Evaluation.emulated_fp16.value, REFERENCE)
        self.reference = reference
        self.candidate = _opened(candidate, evaluation, CANDIDATE)
        self.batch_sizes: set[int] = set()
        self.shapes: dict[str, set[tuple[int, ...]]] = {}
        self.shape_problem: str | None = None
        self.shapes_unknown: str | None = None

    def close(self) -> None:
        """Free what runs them."""
        self.reference.close()
        self.candidate.close()

    def run(
        self,
        feeds: Feeds,
        batch: int,
        by_samples: bool,
        image: tuple[str, str] | None = None,
        of_one_image: Collection[str] = (),
    ) -> Iterator[Run]:
        """Run both files on all samples.

        Args:
            feeds: see `feeds`.
            batch: samples a run at most.
            by_samples: axis 0 of inputs and outputs counts samples; else a run has as few as the reference takes.
            image: name and layout (NCHW or NHWC) of the input that is an image.
            of_one_image: outputs whose axis 0 counts the detections of an image, so that shapes may differ.

        Raises:
            StageError: a NaN in a feed, a feed that the candidate cannot take, a run that fails.
        """
        for part in self._parts(feeds, batch, by_samples):
            reference, candidate = self.reference.run(part), self.candidate.run(part)
            self._note(part)
            if self.shape_problem is None and self.shapes_unknown is None:
                fixed = {name: array for name, array in reference.items() if name not in of_one_image}
                self.shape_problem, self.shapes_unknown = self.candidate.unrounded_shapes(
                    fixed, candidate, methodcaller("run", part), part.names[0]
                )
            beside = _digests(part.feed), _size(part.feed, image), part.number, part.start
            yield Run(part.names, part.rows, reference, candidate, *beside)

    def _parts(self, feeds: Feeds, batch: int, by_samples: bool) -> Iterator[Part]:
        """What goes into each run, checked; see `run`."""
        for number, feed in enumerate(track(feeds, "compare", len(feeds))):
            rows, names = samples_of(feed) if by_samples else 0, feeds.sample_names[number]
            if len(names) < rows:
                names = [f"{names[0]}[{i}]" for i in range(rows)]
            refuse_nan(feed, names)
            self._check_candidate(feed, 1 if rows else 0)
            for start in range(0, rows, batch):
                group = names[start : start + batch]
                yield Part(part_of(feed, start, batch), min(batch, rows - start), group, number, start)
            if not rows:
                yield Part(feed, 0, names[:1], number)

    def feeds(self, samples: Samples, batch: int, by_samples: bool) -> Feeds:
        """Inputs of the runs of `run`: images in batches, arrays in feeds as they stand, or in the batch that the
        reference fixes, filled where axis 0 of outputs may count no samples.
        """
        size = fixed_batch(self.reference.file.model) if samples.preprocessing is None else batch
        return Feeds(samples, size, fixed=not by_samples)

    def one_sample(self, feeds: Sequence[Arrays], run: Run, row: int) -> Arrays:
        """The feed of a run; where axis 0 counts samples, only number `row` of the run, as often as a file with a
        fixed batch asks for it.
        """
        feed = feeds[run.feed]
        if not run.rows:
            return feed
        copies = self.candidate.file.fixed_batch or self.reference.file.fixed_batch or 1
        return repeated(part_of(feed, run.start + row, 1), copies)

    def rerun(self, feeds: Sequence[Arrays], spec: IoSpec) -> Rerun:
        """Both files, to be run once more on what went into runs.

        Args:
            feeds: see `feeds`.
            spec: see Rerun.
        """

        def parts(run: Run) -> Iterator[Part]:
            feed = feeds[run.feed]
            yield Part(part_of(feed, run.start, run.rows) if run.rows else feed, run.rows, run.names, run.feed)

        return Rerun(spec, lambda: self.reference, self.candidate, parts)

    def _note(self, part: Part) -> None:
        """What the candidate ran with: a file with a fixed batch is fed just that many samples."""
        feed = part.feed
        if part.rows:
            self.batch_sizes.add(self.candidate.file.fixed_batch or part.rows)
        skipped = 1 if part.rows else 0
        for value in self.candidate.file.model.graph.inputs:
            sides = list(value.shape or ())[skipped:]
            if str(value.name) in feed and any(not isinstance(side, int) for side in sides):
                self.shapes.setdefault(str(value.name), set()).add(feed[str(value.name)].shape[skipped:])

    def _check_candidate(self, feed: Mapping[str, np.ndarray], first: int) -> None:
        """Refuse a feed with other sides than the candidate fixes, from axis `first` on."""
        for value in self.candidate.file.model.graph.inputs:
            shape = feed[str(value.name)].shape if value.name in feed else None
            if shape is None or value.shape is None:
                continue
            sides = list(zip(value.shape, shape, strict=False))[first:]
            if len(value.shape) != len(shape) or any(isinstance(a, int) and a != b for a, b in sides):
                wanted = [side if isinstance(side, int) else str(side.value or "?") for side in value.shape]
                wrong = f"input {value.name!r}: the candidate expects {wanted}, got {list(shape)}"
                raise StageError("wrong-shape", wrong)


# --- interfaces -------------------------------------------------------------------------------------------------------


def check_same_interface(reference: ir.Model, candidate: ir.Model) -> None:
    """Hold the inputs and outputs of two models against each other: names, order, rank and type; float16 against
    float32 is no difference, nor are sides, nor what is stated of an output's shape: a run tells which it has.

    Raises:
        StageError: listing every difference.
    """
    problems: list[str] = []
    for what in ("input", "output"):
        a, b = (_values(model, what) for model in (reference, candidate))
        names = [list(values) for values in (a, b)]
        for which, missing in (
            (CANDIDATE, [name for name in a if name not in b]),
            (REFERENCE, [name for name in b if name not in a]),
        ):
            problems += [coded("wrong-name", f"{what} {name!r}: the {which} has none of this name") for name in missing]
        if sorted(names[0]) == sorted(names[1]) and names[0] != names[1]:
            order = f"{what}s in another order: expected {', '.join(names[0])}, got {', '.join(names[1])}"
            problems.append(coded("other-order", order))
        for name in [name for name in a if name in b]:
            problems += [f"{what} {name!r}: {text}" for text in _differences(a[name], b[name], what)]
    refuse("not-comparable", "the two files differ in their inputs and outputs", problems)


def _values(model: ir.Model, what: str) -> dict[str, ir.Value]:
    values = model.graph.inputs if what == "input" else model.graph.outputs
    return {str(value.name): value for value in values if what == "output" or not value.is_initializer()}


def _differences(a: ir.Value, b: ir.Value, what: str) -> Iterator[str]:
    if what == "input" and a.shape is not None and b.shape is not None and len(a.shape) != len(b.shape):
        yield coded("wrong-shape", f"expected {len(a.shape)} axes, got {len(b.shape)}")
    types = [value.dtype.name if value.dtype is not None else None for value in (a, b)]
    plain = [{"FLOAT16": "FLOAT"}.get(name, name) if name else None for name in types]
    if None not in plain and plain[0] != plain[1]:
        yield coded("wrong-dtype", f"expected {types[0]}, got {types[1]}")


def _opened(file: ModelFile, asked: str, which: str) -> OpenFile:
    """On the backend that is asked for, whatever the file holds: nothing falls back without a word."""
    return OpenFile(file, asked if asked in open_file.BACKENDS else evaluation_of(file, asked), called=which)


# --- feeds ------------------------------------------------------------------------------------------------------------


def samples_of(feed: Mapping[str, np.ndarray]) -> int:
    """The common length of axis 0; 0 where inputs have none or differ."""
    lengths = {array.shape[0] if array.ndim else 0 for array in feed.values()}
    return lengths.pop() if len(lengths) == 1 else 0


def _digests(feed: Mapping[str, np.ndarray]) -> list[str]:
    rows = samples_of(feed)
    return [digest_of(part_of(feed, row, 1)) for row in range(rows)] if rows else [digest_of(feed)]


def _size(feed: Mapping[str, np.ndarray], image: tuple[str, str] | None) -> tuple[int, int] | None:
    name, layout = image or ("", "")
    array = feed.get(name)
    if array is None or array.ndim != 4:
        return None
    height, width = array.shape[1:3] if layout == "NHWC" else array.shape[2:4]
    return int(height), int(width)
