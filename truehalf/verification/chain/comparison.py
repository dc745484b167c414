"""All runs of two files, measured and judged by the task that the I/O spec declares (rules:
truehalf.verification.chain.compare).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.outputs import CLASSIFICATION, DETECTIONS, TENSORS, check_values, classes_of, detecting
from truehalf.verification import gates
from truehalf.verification.chain.reference import UNTRAINED
from truehalf.verification.checks import reaction_findings
from truehalf.verification.declared_boxes import box_format_problem
from truehalf.verification.findings import FAILED, NOT_VERIFIED, PASSED, VERIFIED, Finding, verdict_of
from truehalf.verification.localize.worst_sample import badness, facts_by_sample, worst_samples
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.detections import summarize
from truehalf.verification.metrics.output_errors import OutputErrors, output_errors
from truehalf.verification.metrics.plain_outputs import classes_in_runs, hidden_in
from truehalf.verification.metrics.precision import self_precision
from truehalf.verification.metrics.query_rows import rows_beyond, without_last_places
from truehalf.verification.metrics.row_order import in_another_order
from truehalf.verification.metrics.scales import hidden_columns
from truehalf.verification.metrics.score_errors import share_beyond
from truehalf.verification.metrics.tensors import query_outputs, tensor_errors
from truehalf.verification.reaction import Reached, observed, reactions
from truehalf.verification.runs import Run

QUERIES_BEYOND = 0.05  # of a good file: rounding keeps other queries in the last places, 3 in 60 of an image at most
# Of the queries above the score threshold, one left out: rounding puts 1 % beyond, and of few images up to a quarter.
CONFIDENT_BEYOND = 0.25
_STATES = {True: VERIFIED, False: FAILED, None: NOT_VERIFIED}


@dataclass
class Judged:
    """What was found: errors by output, metrics of the task, and the findings."""

    outputs: dict[str, OutputErrors]
    detections: dict[str, Any] | None = None
    classification: dict[str, Any] | None = None
    findings: list[Finding] = field(default_factory=list)


class Comparison:
    """All runs of the two files, by the task that the spec declares."""

    def __init__(self, runs: list[Run], spec: Mapping[str, Any], task: str, options: VerifyConfig) -> None:
        """Decode what is to be decoded.

        Args:
            runs: at least one.
            spec, task: of truehalf.io_spec.outputs.
            options: gates, of which tensor_error_max is the tolerance of the tensor rule; which detections count, and
                when two are the same.

        Raises:
            StageError: when the reference's outputs have not the ranks of their kinds.
        """
        self._runs, self._spec, self._task, self._tolerance = runs, spec, task, options.gates.tensor_error_max
        self._threshold, self._limits = options.score_threshold, asdict(options.gates)
        self._untrained = None if spec.get("trained", True) else UNTRAINED
        self._of_task = detecting(spec)
        self._hidden: dict[str, str] = {}  # of queries, what the scale of their columns hides
        self._beyond: list[int] = []  # queries beyond the tensor rule, by sample
        self._sure_beyond: dict[str, float] = {}  # by output, the share of those above the score threshold
        for run in runs:
            check_values(run.reference, spec)
        self._seen = Measured(runs, spec, options)

    def judged(self) -> Judged:
        """The outcome, every output measured."""
        result = Judged({name: self._measured(name) for name in self._runs[0].reference})
        if self._task == DETECTIONS:
            self._judge_detections(result)
        elif self._task == CLASSIFICATION:
            self._judge_classes(result)
        for name, errors in result.outputs.items():
            if name not in self._of_task:
                result.findings.append(Finding("tensors", _STATES[errors.passed], errors.reason))
        self._judge_row_order(result)
        return result

    def _measured(self, name: str) -> OutputErrors:
        errors = self._output_errors(
            name, [(np.asarray(r.reference[name]), np.asarray(r.candidate[name])) for r in self._runs]
        )
        if not errors.passed or name in self._of_task:
            return errors
        hidden = hidden_in(name, self._runs, self._tolerance)
        return replace(errors, passed=None, reason=hidden) if hidden else errors

    def _output_errors(self, name: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> OutputErrors:
        return output_errors(name, pairs, self._tolerance, [run.names[0] for run in self._runs])

    def _judge_row_order(self, result: Judged) -> None:
        """Rows that changed places fail, but no node is to blame for queries that come in another order."""
        others = {name: errors for name, errors in result.outputs.items() if name not in self._of_task}
        moved = in_another_order(others, self._runs)
        if not moved:
            return
        named = ", ".join(map(repr, moved))
        verb = "holds" if len(moved) == 1 else "hold"
        said = f"output{'s' * (len(moved) > 1)} {named} {verb} the reference's rows in another order"
        if self._task == TENSORS:
            said += ": if they are a detector's queries, declare the outputs (spec=), and rows are paired"
        said = coded("other-order", said)
        told = {others[name].reason for name in moved}
        result.findings = [replace(each, no_node=each.no_node or each.reason in told) for each in result.findings]
        result.findings.append(Finding("tensors", FAILED, said, no_node=True))

    # --- detections

    def _with_paired_queries(self, outputs: dict[str, OutputErrors]) -> dict[str, OutputErrors]:
        """The errors of the outputs that detect, with their rows paired one to one
        (truehalf.verification.metrics.tensors).
        """
        if not self._seen.paired:
            return outputs
        names = query_outputs(self._spec)
        pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
        judged: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
        confident = [one.confident for one in self._seen.paired]
        for run, one in zip(self._runs, self._seen.paired, strict=True):
            held = without_last_places(self._spec, run.reference, one.outputs, self._threshold)
            for name in names:
                pairs[name].append((run.reference[name], one.outputs[name]))
                judged[name].append((run.reference[name], held[name]))
        result = dict(outputs)
        sure = np.concatenate([mask.ravel() for mask in confident])
        beyond: list[list[np.ndarray]] = []  # by output and run
        for name in names:
            errors = self._output_errors(name, pairs[name])
            places = [run.names for run in self._runs]
            has_values = pairs[name][0][0].ndim > 2  # [N, n] has but rows
            if has_values and (hidden := hidden_columns(name, judged[name], self._tolerance, places)):
                self._hidden[name] = hidden
            kept = [
                np.concatenate([pair[side][mask] for pair, mask in zip(pairs[name], confident, strict=True)])
                for side in (0, 1)
            ]
            largest = tensor_errors(kept[0], kept[1])["max_abs"] if kept[0].size else None
            beyond.append([rows_beyond(*pair, errors.limit) for pair in judged[name]])
            of_all = np.concatenate([rows.ravel() for rows in beyond[-1]])
            share = float(of_all.mean()) if of_all.size else 0.0
            self._sure_beyond[name] = share_beyond(of_all[sure], 0) or 0.0
            result[name] = replace(errors, paired=True, queries_beyond=share, confident_max_abs=largest)
        of_runs = (np.logical_or.reduce(rows) for rows in zip(*beyond, strict=True))
        self._beyond = [int(count) for rows in of_runs for count in rows.sum(axis=1)]
        return result

    def _judge_detections(self, result: Judged) -> None:
        outputs = result.outputs = self._with_paired_queries(result.outputs)
        metrics = result.detections = summarize(self._seen.matchings)
        misread = None if self._untrained else self._misread()
        unusable = self._untrained or metrics.get("reason") or misread
        metrics |= self_precision([] if unusable else self._seen.found, self._spec, self._threshold)
        values = {
            "ap50_95_drop": metrics["self_ap50_95_drop"],
            "low_self_ap50_95_drop": metrics["low_self_ap50_95_drop"],
            **gates.detection_values({} if self._untrained or misread else metrics),
            "nonfinite": sum(errors.nonfinite_new for errors in outputs.values()),
        }
        held = (_renamed(gate) for gate in gates.evaluate(self._limits, values))
        found = [gate for gate in held if gate.state != NOT_VERIFIED]
        if unusable:
            said = f"detections were not verified: {unusable}"
            found.append(Finding("detections", NOT_VERIFIED, said, no_node=unusable == misread))
        taking_part = {name: errors for name, errors in outputs.items() if name in self._of_task}
        broken = [errors.reason for errors in taking_part.values() if self._is_broken(errors)]
        found += [Finding("detections", FAILED, reason) for reason in broken]
        if self._seen.decodable:
            found += self._judge_count()
        for name, errors in taking_part.items():
            if errors.nan_reference:
                said = f"output {name!r}: the reference itself holds {errors.nan_reference} NaN"
                found.append(Finding("detections", NOT_VERIFIED, coded("not-finite", said)))
            elif errors.paired and verdict_of(found) != FAILED and not self._untrained:
                found += self._judge_values(name, errors)
                found += [Finding("detections", NOT_VERIFIED, self._hidden[name])] if name in self._hidden else []
        good = {FAILED: False, NOT_VERIFIED: None, PASSED: True}[verdict_of(found)]
        for name, errors in taking_part.items():
            outputs[name] = self._of_untrained(errors) if self._untrained else self._of_trained(errors, good)
            if self._untrained and outputs[name].passed is None:
                found.append(Finding("detections", NOT_VERIFIED, outputs[name].reason))
        result.findings += found

    def _judge_count(self) -> Iterator[Finding]:
        """Of a model with top-k inside: as many detections as the reference's file fixes. Where the number varies from
        run to run, rounding may move one across a limit inside the model, and the gates judge it.
        """
        name = next(each["name"] for each in self._spec["outputs"] if each.get("kind") == "boxes")
        counts = [(run.reference[name].shape[1], run.candidate[name].shape[1]) for run in self._runs]
        different = next((pair for pair in counts if pair[0] != pair[1]), None)
        if self._has_queries or different is None:
            return
        said = f"expected {different[0]} detections an image, as in the reference, got {different[1]}"
        if any(len(side) > 1 and isinstance(side[1], int) for side in self._declared_shapes()):
            yield Finding("detections", FAILED, coded("outputs-differ", said))
        elif len({count for count, _ in counts}) == 1:
            said += (
                "; nothing says whether the model fixes this number: give the outputs' shapes in the I/O spec (spec=)"
            )
            yield Finding("detections", NOT_VERIFIED, coded("not-comparable", said))

    def _declared_shapes(self) -> list[Any]:
        return [each.get("shape") or () for each in self._spec["outputs"] if each.get("kind") is not None]

    def _judge_values(self, name: str, errors: OutputErrors) -> Iterator[Finding]:
        """Say what is beyond the tensor rule in queries that detect what they should: of many of them, the verdict
        needs to know; of a few, rounding may have kept others.
        """
        measured = (
            f"values of output {name!r} beside what they detect: {errors.queries_beyond or 0:.1%} of its queries, "
            f"paired, and {self._sure_beyond[name]:.1%} of those above the score threshold hold one that is beyond the "
            f"tensor rule, which allows {errors.limit or 0:.4g}, with p99 |d| {errors.p99_abs or 0:.4g}"
        )
        if (errors.queries_beyond or 0.0) > QUERIES_BEYOND or self._sure_beyond[name] > CONFIDENT_BEYOND:
            explained = f"rounding explains {QUERIES_BEYOND:.0%} at most, and {CONFIDENT_BEYOND:.0%} of those above it"
            said = f"{measured}; {explained}, and no gate says whether it matters"
            yield Finding("detections", NOT_VERIFIED, coded("queries-beyond", said))
        elif _beyond_limit(errors):
            said = f"{measured}; no gate judges that (locate='always' looks for the node)"
            yield Finding("detections", NOT_VERIFIED, coded("queries-beyond", said), decides=False)

    def _misread(self) -> str | None:
        """Why the reference's boxes are not what the I/O spec declares."""
        if any(not np.isfinite(run.reference[name]).all() for run in self._runs for name in self._of_task):
            return None  # said as such
        return box_format_problem([(run.reference, run.size) for run in self._runs], self._spec, self._threshold)

    def _of_trained(self, errors: OutputErrors, good: bool | None) -> OutputErrors:
        """The errors of an output that takes part in detections: it passes when they do."""
        broken = self._is_broken(errors)
        reason = errors.reason if broken else "" if good else "it is judged as detections, and these did not pass"
        return replace(errors, passed=good, limit=None, reason=reason)

    def _of_untrained(self, errors: OutputErrors) -> OutputErrors:
        """Random weights score queries alike, so rounding decides which are kept: a difference is not verified."""
        if errors.passed is False and not self._is_broken(errors):
            reason = coded("weights-random", f"{errors.reason}; untrained weights keep arbitrary queries")
            return replace(errors, passed=None, reason=reason)
        return errors

    def _is_broken(self, errors: OutputErrors) -> bool:
        """Whether an output is wrong whatever is found: new NaN or Inf; another shape, unless it is that of another
        number of detections from top-k inside the model (`_judge_count`).
        """
        counted = self._seen.decodable and not self._has_queries
        return errors.nonfinite_new > 0 or (errors.max_abs is None and errors.passed is False and not counted)

    @property
    def _has_queries(self) -> bool:
        return any(output.get("kind") == "logits" for output in self._spec["outputs"])

    # --- classification

    def _judge_classes(self, result: Judged) -> None:
        """Any flip fails; the tensor rule holds beside it."""
        name = classes_of(self._spec)
        if result.outputs[name].max_abs is None:  # unequal shapes, or nothing: said there
            return
        metrics = result.classification = classes_in_runs(self._runs, self._spec)
        flips = None if self._untrained else (metrics or {}).get("label_flips")
        reasons = {"label_flips": self._untrained or ""}
        result.findings += gates.evaluate(self._limits, {"label_flips": flips}, reasons)

    # --- all tasks

    def judge_reactions(self, judged: Judged, reached: tuple[Reached, Reached]) -> None:
        """Whether outputs react to the input, added to what was judged.

        Args:
            reached: of truehalf.verification.reaction.reached_outputs, of the reference and of the candidate.
        """
        found = reactions(observed(self._runs, reached, self._of_task, self._untrained is not None))
        for passed, reasons in ((False, found.failures), (None, found.unknown)):
            for name, reason in reasons.items():
                if judged.outputs[name].passed:
                    judged.outputs[name] = replace(judged.outputs[name], passed=passed, reason=reason)
        judged.findings += reaction_findings(found)

    def worst_sample(self) -> tuple[Run, int] | None:
        """The run and its sample that differ most; None when nothing differs. After `judged`."""
        rows = facts_by_sample(self._runs, self._seen.matchings, self._spec)
        places = [(run, row) for run in self._runs for row in range(max(run.rows, 1))]
        (worst,) = worst_samples(rows, 1, self._beyond)
        differs = any(badness(rows[worst])) or any(self._beyond)
        return places[worst] if differs else None


def _beyond_limit(errors: OutputErrors) -> bool:
    """More than one value in a hundred is beyond the tensor rule. Single ones may be, in a good file: rounding chooses
    another query for the last place, or the other side of a kink.
    """
    return errors.p99_abs is not None and errors.limit is not None and errors.p99_abs > errors.limit


def _renamed(gate: Finding) -> Finding:
    """A gate of average precision under the name of what was measured: the reference's detections are the labels."""
    if gate.facts["measures"] != "ap50_95_drop":
        return gate
    reason = gate.reason.replace("ap50_95_drop", "self_ap50_95_drop", 1)
    return replace(gate, reason=reason, facts=dict(gate.facts) | {"measures": "self_ap50_95_drop"})
