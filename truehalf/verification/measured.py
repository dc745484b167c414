"""Runs of a file beside those of its reference, measured as the I/O spec declares their outputs: detections matched,
rows of queries paired, errors by output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.boxes import box_format_problem, in_words, layouts_of
from truehalf.io_spec.decode import Detections, confident, decode
from truehalf.io_spec.outputs import (
    CLASSIFICATION,
    DETECTIONS,
    classes_of,
    columns_of,
    detecting,
    finds_anchors,
    plain_outputs,
    skipped_outputs,
    task_of,
    with_other_columns,
)
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.classification import ClassAgreement
from truehalf.verification.metrics.decoded import near_labels, with_tied_labels
from truehalf.verification.metrics.detections import DetectionSummary, Matching, match, of_objects, summarize
from truehalf.verification.metrics.half_steps import HalfSteps
from truehalf.verification.metrics.kinds import decided, kinds_of
from truehalf.verification.metrics.output_errors import OutputErrors, Response, errors_of_detections, output_errors
from truehalf.verification.metrics.plain_outputs import classes_in_runs, judged_alone
from truehalf.verification.metrics.precision import SelfPrecision, self_precision
from truehalf.verification.metrics.query_rows import beside_queries
from truehalf.verification.metrics.tensors import in_rows, pair_queries, query_outputs
from truehalf.verification.output_shapes import UNLIKE, comparable, decodable
from truehalf.verification.runs import Arrays, Run

UNTRAINED = coded(
    "weights-random", "the weights are random (the I/O spec says trained: false), so what the model finds means nothing"
)


@dataclass(frozen=True)
class Paired:
    """The outputs of one run whose rows are queries, paired one to one (truehalf.verification.metrics.tensors).

    Attributes:
        rows: int64 [images, queries], the candidate's row of each of the reference's.
        outputs: the candidate's, in the reference's rows.
        confident: bool [images, queries], whether the reference's score reaches the threshold.
    """

    rows: np.ndarray
    outputs: Arrays
    confident: np.ndarray


class Measured:
    """What the runs of a file hold, for every strategy that judges them (truehalf.verification.judging).

    Attributes:
        runs, spec, options: as given.
        task: of the I/O spec.
        plain: names of the outputs that are judged by themselves; in `runs` one with a row for each query has them as
            queries were paired.
        stayed: of these, outputs whose rows stand where they stood though queries changed places.
        untrained: why detections and classes mean nothing; None where the weights are trained.
        given: how many inner tensors of the candidate the reference in `runs` has decided on
            (truehalf.verification.near_ties).
        found: by sample, what the reference finds, and the candidate; empty where one side has another shape than
            detections have, and of other models.
        tied_labels: of a softmax detector, how many of the candidate's labels were another in a near tie; in `found`
            they are the reference's.
        matchings: of these.
        decodable: whether the outputs of all runs have shapes that detections have.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        spec: IoSpec,
        options: VerifyConfig,
        known: Sequence[Detections] | None = None,
        untrained: str | None = None,
        given: int = 0,
        half_steps: HalfSteps | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        """Decode and match.

        Args:
            runs: at least one.
            known: by sample, what the reference finds, where it was decoded before.
            untrained: see above; default: what the I/O spec says.
            half_steps: what they make of the reference; None: not known.
            kinds: of outputs (truehalf.verification.metrics.kinds); None: those of the I/O spec.
        """
        runs = [_with_other_columns(run, spec) for run in runs]
        self.runs, self.spec, self.options, self.task = runs, spec, options, task_of(spec)
        self.plain = judged_alone(runs, spec)
        self.untrained = untrained or (None if spec.trained else UNTRAINED)
        self.given = given
        self._half_steps = half_steps or HalfSteps()
        self._kinds = kinds_of(spec, None) if kinds is None else kinds
        self.stayed: list[str] = []
        self._self_precision: dict[bool, SelfPrecision] = {}
        if any(map(self._beside_queries, runs)) and self.paired:
            self.runs = [self._with_rows(run, one) for run, one in zip(runs, self.paired, strict=True)]
        self.decodable = all(decodable(run.reference, run.candidate, spec) for run in runs)
        self.found: list[tuple[Detections, Detections]] = []
        self.tied_labels = 0
        for run in runs if self.decodable and self.task == DETECTIONS else ():
            expected = decode(run.reference, spec, run.size) if known is None else known[: run.rows]
            tied = near_labels(run.reference, spec)
            candidates = decode(run.candidate, spec, run.size)
            for number, (ref, cand) in enumerate(zip(expected, candidates, strict=True)):
                settled, count = with_tied_labels(ref, cand, tied[number], options.iou_threshold) if tied else (cand, 0)
                self.found.append((ref, settled))
                self.tied_labels += count
        thresholds = options.score_threshold, options.iou_threshold
        self.matchings: list[Matching] = [match(*pair, *thresholds) for pair in self.found]
        if self.found and finds_anchors(spec, runs[0].reference):
            both = zip(self.matchings, self.found, strict=True)
            self.matchings = [of_objects(one, *pair, options.score_threshold) for one, pair in both]

    def _beside_queries(self, run: Run) -> list[str]:
        """Outputs that are no detections and may hold a row for each query, as masks and embeddings do."""
        of_queries = {np.shape(run.reference.get(name, 0))[:2] for name in query_outputs(self.spec)}
        return [name for name in self.plain if np.shape(run.reference[name])[:2] in of_queries]

    def _with_rows(self, run: Run, paired: Paired) -> Run:
        threshold = self.options.score_threshold
        free = ~paired.confident & ~confident(paired.outputs, self.spec, threshold)
        expected = {name: run.reference[name] for name in self._beside_queries(run)}
        moved, stayed = beside_queries(expected, run.candidate, paired.rows, free)
        self.stayed += [name for name in stayed if name not in self.stayed]
        return replace(run, candidate=moved)

    @property
    def plain_differ(self) -> bool:
        """Whether an output that is judged by itself does not pass."""
        return any(self.errors[name].passed is False for name in self.plain)

    # --- detections

    @cached_property
    def summary(self) -> DetectionSummary:
        """truehalf.verification.metrics.detections.summarize of the matchings."""
        return summarize(self.matchings)

    @cached_property
    def misinterpreted(self) -> str | None:
        """Why the reference's boxes are not what the I/O spec declares; not asked of random weights and of outputs that
        are not finite, which are reported as not finite.
        """
        taking = detecting(self.spec)
        finite = all(np.isfinite(run.reference[name]).all() for run in self.runs for name in taking)
        if self.untrained or not taking or not finite:
            return None
        return box_format_problem([(r.reference, r.size) for r in self.runs], self.spec, self.options.score_threshold)

    @property
    def read_alike(self) -> str:
        """Other formats in which the boxes would lie in the image, too, or that they do so in none; empty: in the
        declared one alone, or there is nothing to say of it.
        """
        if self.meaningless or not detecting(self.spec):
            return ""
        declared, threshold = columns_of(self.spec)["boxes"], self.options.score_threshold
        layouts = layouts_of([(run.reference, run.size) for run in self.runs], self.spec, threshold)
        others = [each for each in layouts if each != (declared.format, declared.normalized)]
        return f"{in_words(others)}, too" if others else "" if layouts else in_words([])

    @cached_property
    def meaningless(self) -> str | None:
        """Why detections are not judged; None where they are."""
        return self.untrained or (None if self.decodable else UNLIKE) or self.misinterpreted

    def self_precision(self, labelled: bool = False) -> SelfPrecision:
        """truehalf.verification.metrics.precision.self_precision; Nones where detections mean nothing."""
        if labelled and (whole := self._self_precision.get(False)):
            nothing = self_precision([], self.spec, self.options.score_threshold)
            return {**nothing, "low_self_ap50_95_drop": whole["low_self_ap50_95_drop"]}
        if labelled not in self._self_precision:
            found = [] if self.meaningless else self.found
            made = self_precision(found, self.spec, self.options.score_threshold, labelled)
            self._self_precision[labelled] = made
        return self._self_precision[labelled]

    @cached_property
    def paired(self) -> list[Paired]:
        """By run; empty without queries, and where their shapes differ."""
        names, runs = query_outputs(self.spec), self.runs
        if not names or any({*names} - {*comparable(run.reference, run.candidate)} for run in runs):
            return []
        return [_paired(run, names, self.spec, self.options.score_threshold) for run in runs]

    # --- all tasks

    @property
    def _compared(self) -> list[str]:
        return [name for name in self.runs[0].reference if name not in skipped_outputs(self.spec)]

    @cached_property
    def errors(self) -> dict[str, OutputErrors]:
        """By output, of all runs. Of boxes and scores only shapes, NaN and Inf, and errors of the rows whose score
        reaches the threshold, once paired: detections judge their values.
        """
        found = {}
        taking = {*detecting(self.spec)}
        for name in self._compared:
            if any(name not in run.candidate for run in self.runs):
                first = np.asarray(self.runs[0].reference[name])
                found[name] = OutputErrors(str(first.dtype), first.size, passed=False, reason=UNLIKE)
            elif name in taking:
                found[name] = self._of_detections(name)
            else:
                pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in self.runs]
                places = [run.names[: max(run.rows, 1)] for run in self.runs]
                floor, response = self.options.gates.tensor_rms_max, self._response(name)
                errors = output_errors(name, pairs, places, floor, response)
                found[name] = self._with_decisions(name, pairs, errors, response)
        counts = {*plain_outputs(self.spec, found)} - {*self.plain}
        return found | {name: replace(found[name], passed=True, reason="") for name in counts}

    def _with_decisions(
        self, name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]], errors: OutputErrors, response: Response
    ) -> OutputErrors:
        """Judge an output as what it is, where its values pass; the best classes of a classifier have a gate."""
        kind = self._kinds.get(name)
        finite = errors.nan + errors.inf + errors.nan_reference + errors.inf_reference == 0
        if (
            kind is None
            or not errors.passed
            or not finite
            or any(each.dtype.kind != "f" for pair in pairs for each in pair)
        ):
            return errors
        if self.task == CLASSIFICATION and name == classes_of(self.spec):
            return errors
        references, candidates = ([pair[side] for pair in pairs] for side in (0, 1))
        made = decided(kind, references, candidates, self.options.score_threshold, response.draws)
        if made is None:
            return errors
        sentence = f"{errors.reason}; {made.sentence}"
        return replace(
            errors, passed=made.passed, reason=sentence if made.passed else coded("outputs-differ", sentence)
        )

    def _of_detections(self, name: str) -> OutputErrors:
        pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in self.runs]
        paired, places = pairs, [run.names[: max(run.rows, 1)] for run in self.runs]
        if self.paired and name in query_outputs(self.spec):
            paired = [(r, one.outputs[name]) for (r, _), one in zip(pairs, self.paired, strict=True)]
        if self.untrained:
            return output_errors(name, paired, places, self.options.gates.tensor_rms_max, Response())
        if self.paired and name in query_outputs(self.spec):
            paired = [(r[one.confident], c[one.confident]) for (r, c), one in zip(paired, self.paired, strict=True)]
        return errors_of_detections(name, pairs, paired, places)

    def _response(self, name: str) -> Response:
        """Response of an output to half a step of the inputs; empty for an output whose rows were paired."""
        paired_rows = {each for run in self.runs for each in self._beside_queries(run)}

        def draws() -> list[list[np.ndarray]]:
            found = []
            for draw in self._half_steps.outputs() if name not in paired_rows else ():
                sides = [[np.asarray(with_other_columns(side, self.spec)[name]) for side in pair] for pair in draw]
                references = [np.asarray(run.reference[name]) for run in self.runs]
                if all(np.shape(side) == r.shape for pair, r in zip(sides, references, strict=True) for side in pair):
                    found.append([_moved_as(r, *pair) for r, pair in zip(references, sides, strict=True)])
            return found

        return Response(self._half_steps.of, draws)

    @cached_property
    def classification(self) -> ClassAgreement | None:
        """truehalf.verification.metrics.plain_outputs.classes_in_runs."""
        name = classes_of(self.spec) if self.task == CLASSIFICATION else ""
        return classes_in_runs(self.runs, name, self._response(name).draws) if name else None

    @cached_property
    def tensor_rms(self) -> dict[str, float | None]:
        """Error by output that is judged by itself, as a share of its scale; None where it was not measured."""
        return {name: self.errors[name].rms for name in self.plain}

    @property
    def largest_rms(self) -> float | None:
        """The largest; None without such outputs, infinite where one could not be measured."""
        values = [float("inf") if value is None else value for value in self.tensor_rms.values()]
        return max(values, default=None)


def _paired(run: Run, names: Sequence[str], spec: IoSpec, threshold: float) -> Paired:
    rows = pair_queries(run.reference, run.candidate, names)
    outputs = {name: in_rows(run.candidate[name], rows) for name in names}
    return Paired(rows, outputs, confident(run.reference, spec, threshold))


def _moved_as(reference: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The reference, moved as another run of it has moved: it may have decided on operands of the candidate."""
    if reference.dtype.kind != "f":
        return np.where(before == after, reference, after)
    with np.errstate(invalid="ignore"):
        return np.asarray(reference + (after - before))


def _with_other_columns(run: Run, spec: IoSpec) -> Run:
    """The run with columns that no detection shows as outputs of their own."""
    reference, candidate = (with_other_columns(side, spec) for side in (run.reference, run.candidate))
    return replace(run, reference=reference, candidate=candidate)
