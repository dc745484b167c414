"""The one comparison: outputs of a reference and of a candidate become measures, findings and a row for each sample.

Every door (`compare`, stages of a chain, other batches, adversarial inputs, engines, the quick check of a conversion)
runs two files on samples and asks here. What is compared is what the I/O spec declares (truehalf.io_spec.outputs):

    detections      matched one to one and rank by rank, by the gates (truehalf.verification.gates); a label flip fails
                    whatever the others forgive
    classification  the yardstick, and the same best class on every sample
    tensors         the yardstick (truehalf.verification.metrics.yardstick), and decisions of an output's kind

NaN and Inf at the same places in both files are values like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.io_spec.boxes import box_format_problem
from truehalf.io_spec.checks import check_values
from truehalf.io_spec.decode import Detections, confident, decode
from truehalf.io_spec.outputs import (
    CLASSIFICATION,
    DECLARE,
    DETECTIONS,
    OF_CLASSES,
    Outputs,
    classes_of,
    columns_in,
    columns_of,
    detecting,
    finds_anchors,
    finds_top_k,
    holds_columns,
    images_and_rows,
    is_of_one_image,
    plain_outputs,
    read_columns,
    skipped_outputs,
    task_of,
    with_other_columns,
)
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.findings import (
    FAILED,
    NOT_VERIFIED,
    PASSED,
    VERIFIED,
    Finding,
    not_checked,
    verdict_of,
    worst_of,
)
from truehalf.verification.gates import GATES, Gate, evaluate, worst_by
from truehalf.verification.metrics.average_precision import Precision, precision, self_precision, why_no_drop
from truehalf.verification.metrics.detections import (
    DetectionSummary,
    Matching,
    match,
    near_labels,
    of_objects,
    summarize,
    with_tied_labels,
)
from truehalf.verification.metrics.half_steps import Response
from truehalf.verification.metrics.kinds import (
    CLASSES,
    SEQUENCE,
    ClassAgreement,
    classification_metrics,
    decided,
    kinds_of,
    without_turned,
)
from truehalf.verification.metrics.outputs import OutputErrors, counted_errors, output_errors
from truehalf.verification.metrics.tensors import absolute_error, in_rows, pair_queries, query_outputs
from truehalf.verification.reaction import reactions
from truehalf.verification.runs import Run
from truehalf.verification.samples import SampleFacts, facts_by_sample, worst_samples
from truehalf.verification.user_metrics import judge_metrics

UNTRAINED = coded(
    "weights-random", "the weights are random (the I/O spec says trained: false), so what the model finds means nothing"
)
UNLIKE = coded("not-comparable", "outputs that have not the reference's shape cannot be compared with it")
_OF_AGREEMENT = ("detections", "classes", "tensors", "nonfinite")
_COUNTS = ("matched_fraction", "reference", "matched", "missed", "extra", "label_flips")
_SPREADS = ("box_error_px", "score_error", "rank_error")
_LEVELS = ("p50", "p99", "max")
_SELF = ("self_ap50", "self_ap50_95", "low_self_ap50_95_drop")
_NUMBERS = ("matched_fraction", "reference", "extra", "tensor_rms", "nonfinite", "max_abs_error", "samples")
Pairs = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class ReferenceFacts:
    """Facts of a reference beside its outputs.

    Attributes:
        truth: true boxes by sample; None: there are no labels.
        precision: its average precision against them; None: to be measured.
        response: of its outputs to half a step of the inputs.
        kinds: of outputs (truehalf.verification.metrics.kinds); None: those of the I/O spec.
        decided_on: how many inner tensors of the candidate it has decided on (truehalf.verification.near_ties).
        count: detections that it has by itself, where it has decided on some; None: those in its outputs.
    """

    truth: Sequence[Detections] | None = None
    precision: Precision | None = None
    response: Response = field(default_factory=Response)
    kinds: Mapping[str, str] | None = None
    decided_on: int = 0
    count: int | None = None


class Agreement(TypedDict, total=False):
    """State, reason and numbers of a comparison of outputs alone, as at another batch; at a batch its size, and the
    samples of the run that fails.
    """

    state: str
    reason: str
    matched_fraction: float | None
    reference: int | None
    extra: int | None
    tensor_rms: float | None
    nonfinite: int
    max_abs_error: dict[str, float]
    samples: int | list[str]
    batch: int


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    Attributes:
        task: "detections", "classification" or "tensors".
        spec: declares what the outputs are.
        measures: numbers by name, as truehalf.verification.report.Report has them in JSON.
        findings: on the outputs, gates first.
        samples: a row for each.
        outputs: errors by output; one that takes part in detections passes when these do.
        detections: by sample, those of the reference and of the candidate; empty where none were compared.
        runs: as they were compared.
        are_alike: all outputs have the reference's shape.
    """

    task: str
    spec: IoSpec
    measures: dict[str, Any]
    findings: list[Finding]
    samples: list[SampleFacts]
    outputs: dict[str, OutputErrors]
    detections: list[tuple[Detections, Detections]]
    runs: Sequence[Run]
    are_alike: bool

    @property
    def worst(self) -> int | None:
        """Position of the sample that differs most; None where none does."""
        worst = worst_samples(self.samples, 1)
        return worst[0] if worst and any(self.samples[worst[0]].badness) else None

    @property
    def may_be_ties(self) -> bool:
        """True if an output or a gate fails, and not by new NaN or Inf, which no decision of the reference explains."""
        failed = {each.check for each in self.findings if each.state == FAILED}
        return bool(failed & {*_OF_AGREEMENT, "average_precision"}) and not self.measures["nonfinite"]

    def agreement(self, empty_is_same: bool = False) -> Agreement:
        """Summarize a comparison of outputs alone: state, reason and numbers.

        Args:
            empty_is_same: where the reference finds nothing, the same is found if the candidate finds nothing, either.
        """
        found = [each for each in self.findings if each.check in _OF_AGREEMENT and each.decides]
        if empty_is_same and self.measures["reference"] == 0:
            found = [each for each in found if each.state != NOT_VERIFIED]
        state = worst_of(each.state for each in found)
        why = dict.fromkeys(str(each.facts.get("why", each.reason)) for each in found if each.state == state)
        reasons = [] if state == VERIFIED else list(why)
        if state != NOT_VERIFIED and (self.task != DETECTIONS or self.measures["detections"] is not None):
            reasons.insert(0, self._summary())
        numbers: Agreement = {name: self.measures[name] for name in _NUMBERS}  # type: ignore[assignment]
        return {"state": state, "reason": "; ".join(reasons), **numbers}

    def _summary(self) -> str:
        numbers = self.measures
        if self.task == DETECTIONS:
            again = f"{numbers['matched']} of {numbers['reference']} detections are matched"
            return f"{again}, {numbers['extra']} are extra"
        said = f"the outputs differ by {numbers['tensor_rms'] or 0.0:.2%} (rms)"
        classes = numbers["classification"]
        return f"{said}, {classes['label_flips']} of {classes['samples']} best classes" if classes else said


def compare_outputs(
    runs: Sequence[Run],
    spec: IoSpec,
    options: VerifyConfig,
    facts: ReferenceFacts | None = None,
    outputs_only: bool = False,
) -> Comparison:
    """Measure and judge outputs of a candidate beside those of a reference.

    Args:
        runs: at least one: names of samples, and both files' outputs on them.
        spec: declares what the outputs are.
        options: thresholds, gates, the user's own metrics.
        facts: of the reference.
        outputs_only: compare outputs alone: no average precision, no reaction to the input, no metrics of the user, and
            nothing is asked of the I/O spec.
    """
    seen = _Both(runs, spec, options, facts or ReferenceFacts(), outputs_only)
    findings = sorted(seen.findings(), key=lambda finding: "gate" not in finding.facts)
    names = {*seen.runs[0].reference}
    return Comparison(
        task=seen.task,
        spec=spec,
        measures=seen.measures,
        findings=findings,
        samples=seen.samples,
        outputs=seen.judged_outputs(findings),
        detections=seen.detections,
        runs=seen.runs,
        are_alike=all(names == {*_alike(run)} for run in seen.runs),
    )


class _Both:
    """Outputs of both files, decoded and matched.

    Attributes:
        plain: names of the outputs that are judged by themselves; in `runs` one with a row for each query has them as
            queries were paired.
        rows: by run int64 [images, queries], the candidate's row of each of the reference's; empty without queries, and
            where their shapes differ.
        in_place: of `plain`, outputs beside queries whose rows kept their places where the queries changed theirs.
        detections: by sample, those of the reference and of the candidate.
        tied_labels: of a softmax detector, how many of the candidate's labels were another in a near tie; these are
            the reference's in `detections`.
        matchings: of these.
        decodable: True if the outputs of all runs have shapes that detections have.
    """

    def __init__(
        self, runs: Sequence[Run], spec: IoSpec, options: VerifyConfig, facts: ReferenceFacts, outputs_only: bool
    ) -> None:
        self.spec, self.options, self.facts, self.outputs_only = spec, options, facts, outputs_only
        self.gates, self.task = options.gates, task_of(spec)
        self.untrained = None if spec.trained else UNTRAINED
        self.taking = detecting(spec)
        self.runs = [_with_other_columns(run, spec) for run in runs]
        self.plain = self._judged_alone()
        self.kinds = kinds_of(spec, None) if facts.kinds is None else facts.kinds
        self.rows: list[np.ndarray] = []
        self.in_place: set[str] = set()
        names = query_outputs(spec)
        if names and all({*names} <= {*_alike(run)} for run in self.runs):
            self.rows = [pair_queries(run.reference, run.candidate, names) for run in self.runs]
            self.runs = [self._with_rows(run, rows) for run, rows in zip(self.runs, self.rows, strict=True)]
        self.decodable = all(_decodable(run.reference, run.candidate, spec) for run in self.runs)
        self.detections: list[tuple[Detections, Detections]] = []
        self.tied_labels = 0
        for run in self.runs if self.decodable and self.task == DETECTIONS else ():
            self._decode(run)
        thresholds = options.score_threshold, options.iou_threshold
        self.matchings: list[Matching] = [match(*pair, *thresholds) for pair in self.detections]
        self.of_anchors = bool(self.detections) and finds_anchors(spec, self.runs[0].reference)
        if self.of_anchors:
            both = zip(self.matchings, self.detections, strict=True)
            self.matchings = [of_objects(one, *pair, options.score_threshold) for one, pair in both]

    def _decode(self, run: Run) -> None:
        expected, candidates = (decode(side, self.spec, run.size) for side in (run.reference, run.candidate))
        tied = near_labels(run.reference, self.spec)
        for number, (reference, candidate) in enumerate(zip(expected, candidates, strict=True)):
            settled, count = candidate, 0
            if tied:
                settled, count = with_tied_labels(reference, candidate, tied[number], self.options.iou_threshold)
            self.detections.append((reference, settled))
            self.tied_labels += count

    def _judged_alone(self) -> list[str]:
        """List the reference's outputs that make up no detections; without counts of the scores above 0 of each image,
        [N] or [N, 1], that count in both files: of those the detections say all.
        """
        names = plain_outputs(self.spec, self.runs[0].reference)
        if not finds_top_k(self.spec):
            return names
        sides = [side for run in self.runs for side in (run.reference, run.candidate)]
        return [name for name in names if not all(_counts(side, name, self.spec) for side in sides)]

    # --- queries

    def _beside_queries(self, run: Run) -> list[str]:
        """List outputs that are no detections and hold a row for each query, as masks and embeddings do."""
        of_queries = {np.shape(run.reference.get(name, 0))[:2] for name in query_outputs(self.spec)}
        return [name for name in self.plain if np.shape(run.reference[name])[:2] in of_queries]

    def _with_rows(self, run: Run, rows: np.ndarray) -> Run:
        """Put outputs beside queries in the rows in which these were paired; rows of queries that rounding may rightly
        replace by others become the reference's. An output stays as it is where its rows kept their places.
        """
        moved = dict(run.candidate)
        of_queries = [name for name in self._beside_queries(run) if name in _alike(run)]
        if not of_queries:
            return run
        free = ~self._confident(run.reference) & ~self._confident(self._paired(run, rows))
        other_place = (rows != np.arange(rows.shape[1])) & ~free
        for name in of_queries:
            values = run.reference[name]
            if values.dtype.kind in "SUO":
                continue
            paired = in_rows(moved[name], rows)
            far, as_it_stands = (absolute_error(values, each)[other_place].sum() for each in (paired, moved[name]))
            if far > as_it_stands:
                self.in_place.add(name)
            else:
                axes = (1,) * (values.ndim - 2)
                moved[name] = np.where(free.reshape(free.shape + axes), values, paired)
        return replace(run, candidate=moved)

    def _paired(self, run: Run, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: in_rows(run.candidate[name], rows) for name in query_outputs(self.spec)}

    def _confident(self, outputs: Outputs) -> np.ndarray:
        return confident(outputs, self.spec, self.options.score_threshold)

    # --- measures

    @cached_property
    def meaningless(self) -> str | None:
        """Reason why detections are not judged; None if they are."""
        return self.untrained or (None if self.decodable else UNLIKE) or self.misread

    @cached_property
    def misread(self) -> str | None:
        """Reason why the reference's boxes are not as the I/O spec declares; None of outputs that are not finite, which
        are reported as not finite.
        """
        if self.outputs_only or not self.taking:
            return None
        if not all(np.isfinite(run.reference[name]).all() for run in self.runs for name in self.taking):
            return None
        sides = [(run.reference, run.size) for run in self.runs]
        return box_format_problem(sides, self.spec, self.options.score_threshold)

    @cached_property
    def summary(self) -> DetectionSummary | None:
        """Metrics of detections; None where they mean nothing."""
        if self.task != DETECTIONS or self.untrained or not self.decodable:
            return None
        judged = [] if self.outputs_only or self.misread else self.detections
        likeness = self_precision(judged, self.spec, self.options.score_threshold, self.facts.truth is not None)
        return {**summarize(self.matchings, self.facts.count), **likeness}

    @cached_property
    def classification(self) -> ClassAgreement | None:
        """Agreement of best classes; None of other models, other shapes, and as many classes as the input decides."""
        name = classes_of(self.spec) if self.task == CLASSIFICATION else ""
        if not name or not all(name in _alike(run) for run in self.runs):
            return None
        if len({run.reference[name].shape[1:] for run in self.runs}) > 1:
            return None
        reference = np.concatenate([run.reference[name] for run in self.runs])
        candidate = np.concatenate([run.candidate[name] for run in self.runs])
        draws = self._response(name).draws
        return classification_metrics(reference, candidate, lambda: [np.concatenate(draw) for draw in draws()])

    @cached_property
    def errors(self) -> dict[str, OutputErrors]:
        """By output, of all runs. Of boxes and scores only shapes, NaN and Inf, and errors of the rows whose score
        reaches the threshold, once paired: detections judge their values.
        """
        found = {}
        for name in self.runs[0].reference:
            if name in skipped_outputs(self.spec):
                continue
            if any(name not in run.candidate for run in self.runs):
                first = np.asarray(self.runs[0].reference[name])
                found[name] = OutputErrors(str(first.dtype), first.size, passed=False, reason=UNLIKE)
                continue
            pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in self.runs]
            places = [run.places for run in self.runs]
            if name in self.taking:
                found[name] = counted_errors(name, pairs, places, self._sure(name))
            elif name not in self.plain:
                found[name] = replace(counted_errors(name, pairs, places), passed=True)
            else:
                response = self._response(name)
                kind = self.kinds.get(name)
                kept = without_turned(kind, pairs)
                of_classes = kind in (CLASSES, SEQUENCE)
                errors = output_errors(name, kept, places, self.gates.tensor_rms_max, response, of_classes)
                found[name] = self._with_decisions(name, pairs, errors, response)
        return found

    def _sure(self, name: str) -> Pairs | None:
        """Select rows of an output of queries whose score reaches the threshold, as they were paired; None of other
        outputs.
        """
        if not self.rows or name not in query_outputs(self.spec):
            return None
        found = []
        for run, rows in zip(self.runs, self.rows, strict=True):
            where = self._confident(run.reference)
            found.append((run.reference[name][where], in_rows(run.candidate[name], rows)[where]))
        return found

    def _with_decisions(self, name: str, pairs: Pairs, errors: OutputErrors, response: Response) -> OutputErrors:
        """Judge an output as what it is, where its values pass; the best classes of a classifier have a gate."""
        kind = self.kinds.get(name)
        finite = errors.nan + errors.inf + errors.nan_reference + errors.inf_reference == 0
        is_float = all(each.dtype.kind == "f" for pair in pairs for each in pair)
        of_gate = self.task == CLASSIFICATION and name == classes_of(self.spec)
        if kind is None or not errors.passed or not finite or not is_float or of_gate:
            return errors
        references, candidates = ([pair[side] for pair in pairs] for side in (0, 1))
        made = decided(kind, references, candidates, self.options.score_threshold, response.draws)
        if made is None:
            return errors
        sentence = f"{errors.reason}; {made.sentence}"
        reason = sentence if made.passed else coded("outputs-differ", sentence)
        return replace(errors, passed=made.passed, reason=reason)

    def _response(self, name: str) -> Response:
        """Response of an output to half a step of the inputs; empty for an output whose rows were paired."""
        paired_rows = {each for run in self.runs for each in self._beside_queries(run)}

        def draws() -> list[list[np.ndarray]]:
            found = []
            for draw in self.facts.response.draws() if name not in paired_rows else ():
                sides = [[np.asarray(with_other_columns(side, self.spec)[name]) for side in pair] for pair in draw]
                references = [np.asarray(run.reference[name]) for run in self.runs]
                if all(np.shape(side) == r.shape for pair, r in zip(sides, references, strict=True) for side in pair):
                    found.append([_moved_as(r, *pair) for r, pair in zip(references, sides, strict=True)])
            return found

        return Response(self.facts.response.of, draws)

    @cached_property
    def samples(self) -> list[SampleFacts]:
        """A row for each sample."""
        classes = classes_of(self.spec) if self.classification else ""
        return facts_by_sample(self.runs, self.plain, self.matchings, classes)

    @cached_property
    def precisions(self) -> tuple[Precision, Precision]:
        """Average precision against true labels, of the reference and of the candidate."""
        if self.outputs_only or not self.detections or self.untrained:
            nothing = Precision(ap50=None, ap50_95=None, reason=self.untrained or UNLIKE)
            return nothing, nothing
        truth = self.facts.truth
        sides = [[pair[side] for pair in self.detections] for side in (0, 1)]
        reference = self.facts.precision or precision(sides[0], truth, self.spec, self.of_anchors)
        return reference, precision(sides[1], truth, self.spec, self.of_anchors)

    @cached_property
    def measures(self) -> dict[str, Any]:
        """Measures by name, see Comparison."""
        of_boxes: Mapping[str, Any] = self.summary or {}
        of_classes: Mapping[str, Any] = self.classification or {}
        errors = self.errors
        rms = [float("inf") if (each := errors[name].rms) is None else each for name in self.plain]
        before, after = self.precisions
        drop = None
        if before["ap50_95"] is not None and after["ap50_95"] is not None and not why_no_drop(before["ap50"]):
            drop = before["ap50_95"] - after["ap50_95"]
        return {
            "samples": sum(len(run.places) for run in self.runs),
            "nan": sum(each.nan for each in errors.values()),
            "inf": sum(each.inf for each in errors.values()),
            "nonfinite": sum(each.nonfinite_new for each in errors.values()),
            "max_abs_error": {name: each.max_abs for name, each in errors.items() if each.max_abs is not None},
            "tensor_rms": max(rms, default=None),
            "detections": self.summary,
            "classification": self.classification,
            **{name: (of_boxes or of_classes).get(name) for name in _COUNTS},
            **{f"{name}_{level}": (of_boxes.get(name) or {}).get(level) for name in _SPREADS for level in _LEVELS},
            **{name: of_boxes.get(name) for name in _SELF},
            "top1_agreement": of_classes.get("top1_agreement"),
            "ap50": after["ap50"],
            "ap50_95": after["ap50_95"],
            "ap50_fp32": before["ap50"],
            "ap50_95_fp32": before["ap50_95"],
            "ap50_95_drop": drop,
        }

    # --- findings

    def findings(self) -> Iterator[Finding]:
        """All that is found, each kind in its turn."""
        if self.task == DETECTIONS:
            yield from self._of_detections()
        elif self.task == CLASSIFICATION:
            reasons = {"label_flips": self.untrained or UNLIKE}
            flips = {} if self.untrained else {"label_flips": self.measures["label_flips"]}
            yield from evaluate(self._gates(CLASSIFICATION), self.gates, flips, reasons, self.samples)
        yield from (self._of_tensor(name) for name in self.plain)
        for name in sorted(self.in_place):
            reason = f"output {name!r} has as many rows as there are queries, which changed places; its rows did not"
            yield Finding("tensors", NOT_VERIFIED, coded("other-order", reason), no_node=True, facts={"output": name})
        yield from evaluate(self._gates(""), self.gates, self.measures, {}, self.samples)
        yield from self._near_ties()
        yield from self._nothing_compared()
        if not self.outputs_only:
            yield from judge_metrics(self.runs, self.options.metrics)
            yield from self._reactions()

    def _gates(self, task: str) -> list[Gate]:
        other = "ap50_95_drop" if self.facts.truth is None else "self_ap50_95_drop"
        skipped = self.outputs_only
        return [
            gate
            for gate in GATES
            if gate.task == task and gate.measure != other and not (skipped and "ap50" in gate.measure)
        ]

    def _of_detections(self) -> Iterator[Finding]:
        values, why = self._gate_values()
        reasons = dict.fromkeys((gate.measure for gate in GATES), why)
        reasons["ap50_95_drop"] = self.meaningless or self._why_no_drop()
        for gate in evaluate(self._gates(DETECTIONS), self.gates, values, reasons, self.samples):
            yield replace(gate, no_node=gate.state == NOT_VERIFIED and self.misread is not None)
        for name in self.taking:
            errors = self.errors[name]
            if self._is_broken(errors):
                yield Finding("detections", FAILED, errors.reason, facts={"output": name})
            elif errors.nan_reference and errors.reason and not errors.nonfinite_new:
                yield Finding("detections", NOT_VERIFIED, errors.reason, facts={"output": name})
        if self.decodable and not self.outputs_only:
            yield from self._count()
        if self.facts.truth is None and not self.outputs_only:
            yield self._without_labels()

    def _gate_values(self) -> tuple[dict[str, float | None], str]:
        """Look up the values that gates of detections hold, and say why others have none."""
        summary: Mapping[str, Any] = self.summary or {}
        if self.meaningless:
            return {}, self.meaningless
        values = {"ap50_95_drop": self.measures["ap50_95_drop"]}
        values |= {name: summary[name] for name in ("low_self_ap50_95_drop", "extra_fraction")}
        if not summary["reference"]:
            highest = max((float(found.scores.max(initial=0.0)) for found, _ in self.detections), default=0.0)
            reason = "the reference has no detection above the score threshold: nothing was compared; the threshold is "
            reason += f"{self.options.score_threshold:g}, the highest score {highest:.2g}"
            return values, coded("nothing-compared", reason)
        as_they_are = ("self_ap50_95_drop", "matched_fraction", "label_flips", "box_shift")
        values |= {name: summary[name] for name in as_they_are}
        spreads = ("score_error", "low_score_error", "rank_error", "box_error")
        p99 = {name: (summary[name] or {}).get("p99") for name in spreads}
        scores = [each for each in (p99["score_error"], p99["low_score_error"]) if each is not None]
        values |= {"score_error_p99": max(scores, default=None), "rank_error_p99": p99["rank_error"]}
        return values | {"box_error_p99": p99["box_error"]}, ""

    def _why_no_drop(self) -> str:
        before, after = self.precisions
        return after["reason"] or why_no_drop(before["ap50"])

    def _is_broken(self, errors: OutputErrors) -> bool:
        """True if an output is wrong whatever was detected: more new NaN or Inf than the gate allows; another shape,
        unless it is that of another number of detections from top-k inside the model (`_count`).
        """
        counted = self.decodable and finds_top_k(self.spec)
        return errors.nonfinite_new > self.gates.nonfinite_max or (errors.passed is False and not counted)

    def _count(self) -> Iterator[Finding]:
        """Compare numbers of detections that a file fixes. If the number varies from run to run, rounding may move
        one across a limit inside the model, and the gates judge it.
        """
        counts = [(len(expected.scores), len(found.scores)) for expected, found in self.detections]
        different = next((pair for pair in counts if pair[0] != pair[1]), None)
        if different is None or not finds_top_k(self.spec) or is_of_one_image(self.spec):
            return
        reason = f"expected {different[0]} detections an image, as the reference has, got {different[1]}"
        sides = (side for output in columns_of(self.spec).values() for side in images_and_rows(output)[1:])
        if any(isinstance(side, int) for side in sides):
            yield Finding("detections", FAILED, coded("outputs-differ", reason), explains=True)
        elif len({count for count, _ in counts}) == 1:
            reason += f"; nothing says whether the model fixes this number: {DECLARE}, with their shapes"
            yield Finding("detections", NOT_VERIFIED, coded("not-comparable", reason))

    def _without_labels(self) -> Finding:
        """Make the finding on detections of samples without true boxes; it does not decide."""
        samples = self.measures["samples"]
        reason = f"{samples} samples, compared with the FP32 model: accuracy against labels not measured"
        reason = coded("no-labels", reason)
        return Finding("average_precision", NOT_VERIFIED, reason, decides=False, facts={"why": reason})

    def _of_tensor(self, name: str) -> Finding:
        errors, floor = self.errors[name], self.gates.tensor_rms_max
        state = NOT_VERIFIED if errors.passed is None else VERIFIED if errors.passed else FAILED
        value = None if state == NOT_VERIFIED else np.inf if errors.rms is None else errors.rms
        facts = {"gate": "tensor_rms_max", "measures": "tensor_rms", "threshold": floor, "value": value, "output": name}
        facts["response"] = errors.response
        if state == NOT_VERIFIED:
            facts["why"] = errors.reason
        if state == FAILED:
            facts["worst"] = worst_by(facts_by_sample(self.runs, [name], ()), "tensor_rms")
        return Finding("tensors", state, errors.reason, facts=facts)

    def _near_ties(self) -> Iterator[Finding]:
        of_classes = self.classification["near_ties"] if self.classification else 0
        counts = {"best classes": of_classes, "classes of detections": self.tied_labels}
        for what, count in counts.items():
            if count:
                reason = f"{count} {what} differ where the FP32 model is nearly undecided"
                yield not_checked(coded("near-ties", f"{reason}: half a step of its input turns them, too"))
        if self.facts.decided_on:
            reason = "decisions inside differ among values that are nearly equal: the FP32 model outputs the same with "
            reason += f"the operands of the candidate ({self.facts.decided_on} tensors)"
            yield not_checked(coded("near-ties", reason))

    def _nothing_compared(self) -> Iterator[Finding]:
        """Yield findings on outputs that are 0 or not finite all over in the reference: no file could fail there, which
        decides if it is so of all.
        """
        empty = {}
        for name in self.runs[0].reference:
            values = [np.asarray(run.reference[name]) for run in self.runs]
            if values[0].dtype.kind != "f" or not any(value.size for value in values):
                continue
            finite = [value[np.isfinite(value)] for value in values]
            if not any(value.any() for value in finite):
                empty[name] = "but 0" if any(value.size for value in finite) else "finite"
        infinite = [name for name, what in empty.items() if what == "finite"]
        for name, what in empty.items():
            reason = f"output {name!r}: the reference outputs nothing {what} on these inputs"
            decides = what == "finite" and len(infinite) == len(self.runs[0].reference)
            yield Finding("tensors", NOT_VERIFIED, coded("nothing-compared", reason), decides=decides)

    def _reactions(self) -> list[Finding]:
        """Judge whether outputs that can be compared react to the input."""
        alike = set.intersection(*({*_alike(run)} for run in self.runs))
        names = [name for name in self.errors if name in alike or (self.decodable and name in self.taking)]
        found = reactions(self.runs, names, self.taking, self.untrained is not None)
        if len(names) < len(self.errors) and all(each.state == VERIFIED for each in found):
            return [Finding("reaction", NOT_VERIFIED, UNLIKE, decides=False)]
        return found

    def judged_outputs(self, found: Sequence[Finding]) -> dict[str, OutputErrors]:
        """Errors by output with what follows from the findings on it."""
        of_detections = [one for one in found if one.check in ("detections", "average_precision", "nonfinite")]
        good = {FAILED: False, NOT_VERIFIED: None, PASSED: True}[verdict_of(of_detections)]
        outputs = {}
        for name, errors in self.errors.items():
            states = [one for one in found if one.facts.get("output") == name and one.state != VERIFIED and one.decides]
            passed = good if name in self.taking else True
            reason = errors.reason
            if states:
                passed, reason = False if states[0].state == FAILED else None, states[0].reason
            elif name in self.taking and not good:
                reason = "it is judged as detections, and these did not pass"
            outputs[name] = replace(errors, passed=passed, reason=reason)
        return outputs


# --- shapes -----------------------------------------------------------------------------------------------------------


def _alike(run: Run) -> list[str]:
    """List the outputs that have the shape of the reference's."""
    sides = run.reference, run.candidate
    return [name for name in sides[0] if name in sides[1] and np.shape(sides[0][name]) == np.shape(sides[1][name])]


def _decodable(expected: Outputs, outputs: Outputs, spec: IoSpec) -> bool:
    """True if the outputs that make up detections or classes still do, of as many images."""
    for each in (each for each in spec.outputs if columns_in(each) or each.kind in OF_CLASSES):
        images = slice(0, 0 if each.batched is False else 1)
        if each.name not in outputs or outputs[each.name].shape[images] != expected[each.name].shape[images]:
            return False
    try:
        check_values(outputs, spec)
    except StageError:
        return False
    return True


def _counts(outputs: Outputs, name: str, spec: IoSpec) -> bool:
    if name not in outputs or not holds_columns(outputs, spec):
        return False
    count, positive = np.asarray(outputs[name]), read_columns(outputs, spec)["score"][..., 0] > 0
    return count.shape in ((len(positive),), (len(positive), 1)) and bool((count.ravel() == positive.sum(axis=1)).all())


def _moved_as(reference: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Move the reference as another run of it has moved: it may have decided on operands of the candidate."""
    if reference.dtype.kind != "f":
        return np.where(before == after, reference, after)
    with np.errstate(invalid="ignore"):
        return np.asarray(reference + (after - before))


def _with_other_columns(run: Run, spec: IoSpec) -> Run:
    """Split off columns that no detection shows, as outputs of their own."""
    reference, candidate = (with_other_columns(side, spec) for side in (run.reference, run.candidate))
    return replace(run, reference=reference, candidate=candidate)
