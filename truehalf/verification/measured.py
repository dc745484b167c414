"""Runs of a file beside those of its reference, measured as the I/O spec declares their outputs: detections matched,
rows of queries paired, errors by output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.boxes import box_format_problem, in_words, layouts_of
from truehalf.io_spec.decode import Detections, confident, decode
from truehalf.io_spec.outputs import (
    DETECTIONS,
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
from truehalf.verification.metrics.output_errors import OutputErrors, output_errors
from truehalf.verification.metrics.plain_outputs import classes_in_runs, errors_by_sample, judged_alone, masked_in
from truehalf.verification.metrics.precision import SelfPrecision, self_precision
from truehalf.verification.metrics.query_rows import beside_queries, rows_beyond, without_last_places
from truehalf.verification.metrics.scales import COLUMNS, masked_by_scale
from truehalf.verification.metrics.score_errors import share_beyond
from truehalf.verification.metrics.tensors import absolute_error, in_rows, pair_queries, query_outputs
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


@dataclass(frozen=True)
class Queries:
    """Outputs of queries by the tensor rule, paired one to one; nothing where no rows could be paired.

    Attributes:
        errors: by output.
        masked: by output, the error in a column that the scale of the others masks.
        confident_beyond: by output, the share of the queries above the score threshold that are beyond the tensor rule.
        beyond: by sample, how many queries are.
    """

    errors: dict[str, OutputErrors] = field(default_factory=dict)
    masked: dict[str, str] = field(default_factory=dict)
    confident_beyond: dict[str, float] = field(default_factory=dict)
    beyond: list[int] = field(default_factory=list)


class Measured:
    """What the runs of a file hold, for every strategy that judges them (truehalf.verification.judging).

    Attributes:
        runs, spec, options: as given.
        task: of the I/O spec.
        plain: names of the outputs that are judged by themselves; in `runs` one with a row for each query has them as
            queries were paired.
        stayed: of these, outputs whose rows stand where they stood though queries changed places.
        untrained: why detections and classes mean nothing; None where the weights are trained.
        ties: by output, how many indices were others in a near tie (truehalf.verification.ties); in `runs` they are the
            reference's.
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
        ties: Mapping[str, int] | None = None,
    ) -> None:
        """Decode and match.

        Args:
            runs: at least one.
            known: by sample, what the reference finds, where it was decoded before.
            untrained: see above; default: what the I/O spec says.
        """
        runs = [_with_other_columns(run, spec) for run in runs]
        self.runs, self.spec, self.options, self.task = runs, spec, options, task_of(spec)
        self.plain = judged_alone(runs, spec)
        self.untrained = untrained or (None if spec.trained else UNTRAINED)
        self.ties = ties or {}
        self.stayed: list[str] = []
        self._self_precision: dict[bool, SelfPrecision] = {}
        if any(map(self._beside_queries, runs)) and self.paired:
            self.runs = [self._with_rows(run, one) for run, one in zip(runs, self.paired, strict=True)]
        self.decodable = all(decodable(run.reference, run.candidate, spec) for run in runs)
        self.found: list[tuple[Detections, Detections]] = []
        self.tied_labels = 0
        for run in runs if self.decodable and self.task == DETECTIONS else ():
            expected = decode(run.reference, spec, run.size) if known is None else known[: run.rows]
            tied = near_labels(run.reference, spec, options.tie_margin)
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
        free = ~paired.confident & ~confident(paired.outputs, self.spec, self.options.score_threshold)
        beyond = []
        for name, other in paired.outputs.items():
            limit = self._by_tensor_rule(name, [(run.reference[name], other)], [run]).limit
            beyond.append(rows_beyond(run.reference[name], other, limit))
        expected = {name: run.reference[name] for name in self._beside_queries(run)}
        free &= np.logical_or.reduce(beyond)
        moved, stayed = beside_queries(expected, run.candidate, paired.rows, free)
        self.stayed += [name for name in stayed if name not in self.stayed]
        return replace(run, candidate=moved)

    @property
    def plain_differ(self) -> bool:
        """Whether an output that is judged by itself does not pass."""
        return any(self.errors[name].passed is False or self.masked.get(name) for name in self.plain)

    @cached_property
    def masked(self) -> dict[str, str]:
        """By output that is judged by itself and passes the tensor rule, what that does not see
        (truehalf.verification.metrics.plain_outputs.masked_in); empty: nothing.
        """
        tolerance, passing = (
            self.options.gates.tensor_error_max,
            (name for name in self.plain if self.errors[name].passed),
        )
        return {name: masked_in(name, self.runs, tolerance) for name in passing}

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

    @cached_property
    def queries(self) -> Queries:
        """Outputs of queries by the tensor rule."""
        found = Queries()
        if not self.paired or self.task != DETECTIONS:
            return found
        names, threshold = query_outputs(self.spec), self.options.score_threshold
        both = list(zip(self.runs, self.paired, strict=True))
        held = [without_last_places(self.spec, run.reference, one.outputs, threshold) for run, one in both]
        sure = np.concatenate([one.confident.ravel() for one in self.paired])
        beyond: list[list[np.ndarray]] = []  # by output and run
        for name in names:
            pairs = [(run.reference[name], one.outputs[name]) for run, one in both]
            judged = [(run.reference[name], other[name]) for run, other in zip(self.runs, held, strict=True)]
            errors = self._by_tensor_rule(name, pairs, self.runs)
            tolerance, places = self.options.gates.tensor_error_max, [run.names for run in self.runs]
            has_values = pairs[0][0].ndim > 2  # [N, n] has but rows
            if has_values and (masked := masked_by_scale(name, judged, tolerance, places, COLUMNS)):
                found.masked[name] = masked
            kept = [
                np.concatenate([pair[side][one.confident] for pair, (_, one) in zip(pairs, both, strict=True)])
                for side in (0, 1)
            ]
            beyond.append([rows_beyond(*pair, errors.limit) for pair in judged])
            of_all = np.concatenate([rows.ravel() for rows in beyond[-1]])
            found.confident_beyond[name] = share_beyond(of_all[sure], 0) or 0.0
            found.errors[name] = replace(
                errors,
                paired=True,
                queries_beyond=float(of_all.mean()) if of_all.size else 0.0,
                confident_max_abs=float(absolute_error(*kept).max()) if kept[0].size else None,
            )
        of_runs = (np.logical_or.reduce(rows) for rows in zip(*beyond, strict=True))
        return replace(found, beyond=[int(count) for rows in of_runs for count in rows.sum(axis=1)])

    # --- all tasks

    @property
    def _compared(self) -> list[str]:
        return [name for name in self.runs[0].reference if name not in skipped_outputs(self.spec)]

    @cached_property
    def errors(self) -> dict[str, OutputErrors]:
        """By output, of all runs; of queries after pairing them."""
        found = {}
        compared = {name: self.runs[0].reference[name] for name in self._compared}
        for name, first in compared.items():
            if all(name in run.candidate for run in self.runs):
                pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in self.runs]
                found[name] = self.queries.errors.get(name) or self._by_tensor_rule(name, pairs, self.runs)
            else:
                found[name] = OutputErrors(str(np.asarray(first).dtype), np.size(first), passed=False, reason=UNLIKE)
        counts = {*plain_outputs(self.spec, found)} - {*self.plain}
        return found | {name: replace(found[name], passed=True, reason="") for name in counts}

    @cached_property
    def classification(self) -> ClassAgreement | None:
        """truehalf.verification.metrics.plain_outputs.classes_in_runs."""
        return classes_in_runs(self.runs, self.spec, self.options.tie_margin)

    @cached_property
    def tensor_errors(self) -> dict[str, float]:
        """By output that is judged by itself, see truehalf.verification.metrics.plain_outputs."""
        return {name: float(errors_by_sample(self.runs, [name]).max(initial=0.0)) for name in self.plain}

    @property
    def tensor_error(self) -> float | None:
        """The largest; None without such outputs."""
        return max(self.tensor_errors.values(), default=None)

    def _by_tensor_rule(
        self, name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]], runs: Sequence[Run]
    ) -> OutputErrors:
        places = [run.names[0] for run in runs]
        return output_errors(name, pairs, self.options.gates.tensor_error_max, places)


def _paired(run: Run, names: Sequence[str], spec: IoSpec, threshold: float) -> Paired:
    rows = pair_queries(run.reference, run.candidate, names)
    outputs = {name: in_rows(run.candidate[name], rows) for name in names}
    return Paired(rows, outputs, confident(run.reference, spec, threshold))


def _with_other_columns(run: Run, spec: IoSpec) -> Run:
    """The run with columns that no detection shows as outputs of their own."""
    reference, candidate = (with_other_columns(side, spec) for side in (run.reference, run.candidate))
    return replace(run, reference=reference, candidate=candidate)
