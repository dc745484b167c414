"""compare: does an FP16 file compute what its FP32 file computes?

What is compared is what the I/O spec declares (truehalf.io_spec.outputs):

    detections      matched one to one and rank by rank, by the gates of conf/verify/detection.yaml, with average
                    precision against the reference's detections (self_ap); a label flip fails whatever the others
                    forgive
    classification  the tensor rule, and the same best class on every sample
    tensors         the tensor rule (truehalf.verification.metrics.output_errors)

    failed          something was measured and is beyond its limit
    not verified    nothing failed, but something that the verdict needs could not be measured
    passed          neither
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.verification import Evaluation, VerifyConfig
from truehalf.data.given import given_samples
from truehalf.data.image_feeds import ImageFeeds
from truehalf.errors import StageError
from truehalf.files import plain
from truehalf.io_spec.in_file import SPEC_KEY, given_spec, spec_inside
from truehalf.io_spec.outputs import DETECTIONS, TENSORS, check_spec, check_values, detecting, task_of
from truehalf.io_spec.spec import IoSpec
from truehalf.json_values import JsonObject
from truehalf.report.forms import DetectionSummary
from truehalf.verification.chain.caveats import (
    beyond_float16,
    empty_comparisons,
    not_compared,
    of_files,
    outside_range,
)
from truehalf.verification.chain.model_pair import ModelPair
from truehalf.verification.declared.proposal import may_detect, proposal_of
from truehalf.verification.findings import (
    FAILED,
    NOT_VERIFIED,
    PASSED,
    VERIFIED,
    Finding,
    not_checked,
    open_of,
    reasons_of,
    verdict_of,
)
from truehalf.verification.judging.checks import of_evaluation, shape_findings, tie_findings
from truehalf.verification.judging.detections import is_broken
from truehalf.verification.judging.judge import judge, judge_reactions
from truehalf.verification.judging.user_metrics import user_metrics
from truehalf.verification.localize.worst_sample import badness, facts_by_sample, worst_samples
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.classification import ClassAgreement
from truehalf.verification.metrics.output_errors import OutputErrors
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.reached import reached_outputs
from truehalf.verification.runs import Run
from truehalf.verification.ties import choices_of, without_ties

_ALWAYS = "always"


@dataclass(frozen=True)
class Report:
    """What `compare` found.

    Attributes:
        outputs: errors by output; of queries after pairing them one to one.
        task: "detections", "classification" or "tensors".
        detections: see truehalf.verification.metrics.detections.summarize, and self_ap50, self_ap50_95,
            self_ap50_95_drop, low_self_ap50_95_drop; None for other tasks.
        classification: see truehalf.verification.metrics.classification.classification_metrics; None for other tasks.
        findings: what was looked at, with its state; the verdict and all reasons follow from them.
        first_bad_node: the name of the node where it goes wrong, or "OpType -> <first output>" where it has none; None
            when nothing was looked for, and in a file that passed unless its error is more than rounding explains.
        suspects: truehalf.verification.localize.locate.Suspect, the likeliest first.
        evaluation, provider: what ran the candidate; evaluation is "fp32-cpu" where it holds no FP16.
        reference_evaluation: "fp32-cpu", or "emulated-fp16" where the reference holds FP16.
        samples: inputs compared: rows of axis 0 where it counts samples, else feeds.
        worst_sample: the one that differs most; None when all are equal.
        left_out: images that could not be read, with the reason.
        preprocessing: of images, as applied; None for arrays.
        proposed: I/O spec that was taken, as none is declared and outputs are plainly detections; None otherwise.
    """

    outputs: dict[str, OutputErrors]
    task: str
    detections: DetectionSummary | None
    classification: ClassAgreement | None
    findings: list[Finding]
    first_bad_node: str | None
    suspects: list[Any]
    evaluation: str
    provider: str
    reference_evaluation: str
    samples: int
    worst_sample: str | None
    left_out: dict[str, str]
    preprocessing: JsonObject | None
    proposed: JsonObject | None = None

    @property
    def verdict(self) -> str:
        """ "passed", "failed" or "not verified"."""
        return verdict_of(self.findings)

    @property
    def passed(self) -> bool:
        return self.verdict == PASSED

    @property
    def reasons(self) -> list[str]:
        """Why it did not pass, failures first; empty when it did."""
        return reasons_of(self.findings)

    @property
    def not_verified(self) -> list[str]:
        """What this comparison says nothing about, and why; may be there when it passed, too."""
        return open_of(self.findings)

    def to_json(self) -> JsonObject:
        """The report for JSON; numbers that JSON does not have become "nan", "inf", "-inf"."""
        follows = {name: getattr(self, name) for name in ("passed", "verdict", "reasons", "not_verified")}
        found = {"findings": [finding.as_dict() for finding in self.findings]}
        content: JsonObject = plain(follows | asdict(self) | found)
        return content


def compare(
    reference: Path | str,
    candidate: Path | str,
    inputs: Any,
    *,
    spec: JsonObject | Path | str | None = None,
    preprocessing: JsonObject | Path | str | None = None,
    locate: bool | str = True,
    options: VerifyConfig | None = None,
) -> Report:
    """Hold a file against its FP32 reference, on the same inputs.

    Args:
        reference, candidate: ONNX files with inputs and outputs of the same names, order, rank and type; float16
            against float32 is no difference.
        inputs: samples, see truehalf.data.given.given_samples: an .npz file, a folder of them, Polygraphy's JSON,
            arrays by input name or a list of such mappings; or a folder of images, or one image. The outputs of
            all samples are held in memory.
        spec: I/O spec that declares the kinds of outputs (truehalf.io_spec.outputs), as a mapping or a YAML or JSON
            file; default: the one in the reference's metadata, else the proposed one where outputs are plainly
            detections; {}: no kinds.
        preprocessing: of images (truehalf.data.preprocessing), as a mapping or a YAML or JSON file; default: what the
            I/O spec says of the input.
        locate: look for the node where it goes wrong: False, "always", or True: unless it passed, or what is wrong is
            no node's doing (boxes that the I/O spec misreads, rows in another order, inputs beyond FP16's largest).
        options: evaluation, of a candidate that holds FP16; score_threshold, iou_threshold and tie_margin, 0 to 1;
            gates, of which tensor_error_max, 0 or more, is the tolerance of the tensor rule; batch: samples a run at
            most, where axis 0 counts samples: with images, and where kinds are declared (other feeds run as they
            stand); skip_corrupt: leave out images that cannot be read instead of stopping, refused where inputs are
            arrays.

    Raises:
        StageError: bad options, files of different interfaces, inputs that do not fit or hold a NaN, a file that
            ONNX Runtime cannot load or run; each with everything that is wrong.
    """
    options = options or VerifyConfig()
    if locate not in (True, False, _ALWAYS):
        raise StageError("unknown-choice", f"locate: expected True, False or {_ALWAYS!r}, got {locate!r}")
    batch = int(options.batch)
    user_metrics(options.metrics)  # before the work
    files = ModelPair(Path(reference), Path(candidate), options.evaluation.value)
    stated = _spec_of(files, spec)
    feeds = given_samples(inputs, files.reference, stated.first_input, preprocessing, options.skip_corrupt)
    images = feeds.only(range(len(feeds.names)), batch) if isinstance(feeds, ImageFeeds) else None
    feeds = feeds if images is None else images
    is_declared = spec is not None or bool(stated.outputs) or not may_detect(files.reference)
    proposed, why_not = (None, "") if is_declared else _proposed(files, feeds, images is not None, options)
    declared = proposed or stated
    task, entry = task_of(declared), declared.first_input
    layout = images.preprocessing.layout if images is not None else entry.layout
    image = entry.name or str(files.reference.graph.inputs[0].name if files.reference.graph.inputs else "")
    by_samples = task != TENSORS or images is not None
    runs = list(files.run(feeds, feeds.names, batch, by_samples, (image, layout)))
    choices = choices_of(files.reference) if options.tie_margin else {}
    runs, ties = without_ties(runs, choices, options.tie_margin, lambda run, names: files.inside(feeds, run, names))
    for run in runs:
        check_values(run.reference, declared)
    seen = Measured(runs, declared, options)
    found, worst = judge(seen), worst_sample(seen)
    found += tie_findings({f"indices in output {name!r}": count for name, count in ties.items()}, options.tie_margin)
    found += shape_findings(filter(None, [files.shape_problem]), files.shapes_unknown)
    found += judge_reactions(seen, (reached_outputs(files.reference), reached_outputs(files.candidate)))
    outputs = _judged_outputs(seen, found)
    infinite, zero = empty_comparisons(runs)
    nothing = len(infinite) == len(outputs)
    found += [Finding("tensors", NOT_VERIFIED, reason, decides=nothing) for reason in infinite]
    found += [Finding("tensors", NOT_VERIFIED, reason, decides=False) for reason in zero]
    found += of_evaluation(files.evaluation, files.not_split, files.cpu_nodes)
    found += [not_checked(reason, explains=True) for reason in beyond_float16(files.beyond_float16)]
    caveats = outside_range(feeds, entry) if images is None else []
    caveats += not_compared(task, files, why_not, proposed)
    found += of_files(files.reference, files.candidate, stated)
    left_out = images.left_out if images is not None else {}
    found += [
        not_checked(each) for each in (*caveats, *(f"image {name}: left out, {why}" for name, why in left_out.items()))
    ]
    report = Report(
        outputs=outputs,
        task=task,
        detections=_detections(seen) if task == DETECTIONS else None,
        classification=seen.classification,
        findings=found,
        first_bad_node=None,
        suspects=[],
        evaluation=files.evaluation,
        provider=files.provider,
        reference_evaluation=files.reference_evaluation,
        samples=sum(max(run.rows, 1) for run in runs),
        worst_sample=worst[0].names[worst[1]] if worst is not None else None,
        left_out=left_out,
        preprocessing=images.preprocessing.as_dict() if images is not None else None,
        proposed=None if proposed is None else proposed.to_json(),
    )
    deciding = [each for each in found if each.state == FAILED or (each.state == NOT_VERIFIED and each.decides)]
    blamed = any(not each.no_node for each in deciding)
    if locate == _ALWAYS or (locate and blamed):
        run, row = worst or (runs[0], 0)
        feed = files.one_sample(feeds, run, row)
        if locate == _ALWAYS or not (wide := files.inputs_beyond_float16(feed)):
            return _located(report, files, feed, declared)
        skipped = f"the node that introduces the error, as {', '.join(map(repr, wide))} overflow: fix the inputs first"
        found.append(not_checked(coded("not-searched", skipped)))
    return report


def worst_sample(seen: Measured) -> tuple[Run, int] | None:
    """The run and its sample that differ most; None when nothing differs."""
    rows, beyond = facts_by_sample(seen.runs, seen.matchings, seen.spec), seen.queries.beyond
    places = [(run, row) for run in seen.runs for row in range(max(run.rows, 1))]
    (worst,) = worst_samples(rows, 1, beyond)
    return places[worst] if any(badness(rows[worst])) or any(beyond) else None


def _judged_outputs(seen: Measured, found: list[Finding]) -> dict[str, OutputErrors]:
    """Errors by output with what follows from the findings on it; one that takes part in detections passes when they
    do.
    """
    of_detections = [one for one in found if one.check in ("detections", "average_precision", "nonfinite")]
    good = {FAILED: False, NOT_VERIFIED: None, PASSED: True}[verdict_of(of_detections)]
    outputs = {}
    for name, errors in seen.errors.items():
        open_ = (one for one in found if one.facts.get("output") == name and one.state != VERIFIED and one.decides)
        first = next(open_, None)
        passed = True if first is None else False if first.state == FAILED else None
        limit, reason = errors.limit, first.reason if first else ""
        if name in detecting(seen.spec) and not seen.untrained:
            limit = None
            if not good:
                because = "it is judged as detections, and these did not pass"
                passed, reason = good, errors.reason if is_broken(seen, errors) else because
        outputs[name] = replace(errors, passed=passed, limit=limit, reason=reason)
    return outputs


# --- what was asked for -----------------------------------------------------------------------------------------------


def _spec_of(files: ModelPair, spec: JsonObject | Path | str | None) -> IoSpec:
    """The I/O spec in force, checked against the outputs; empty where there is none."""
    try:
        declared = spec_inside(files.reference) if spec is None else given_spec(spec)
        check_spec(declared, [str(value.name) for value in files.reference.graph.outputs], _input_shapes(files))
    except StageError as error:
        source = f"{SPEC_KEY} in the metadata of {files.reference_path}" if spec is None else "spec"
        raise StageError(error.code, f"{error}\n({source}; an empty I/O spec, {{}}, compares tensors)") from error
    return _with_shapes(declared, files)


def _proposed(files: ModelPair, feeds: Any, by_samples: bool, options: VerifyConfig) -> tuple[IoSpec | None, str]:
    """The I/O spec of a reference whose outputs are plainly detections; else none, and what speaks against it."""
    threshold = options.score_threshold
    found = proposal_of(files.reference, feeds, lambda feed: files.reference_outputs(feed, by_samples), threshold)
    if task_of(found.spec) != DETECTIONS or found.doubts:
        return None, "; ".join(found.doubts)
    return _with_shapes(found.spec, files), ""


def _with_shapes(spec: IoSpec, files: ModelPair) -> IoSpec:
    """The spec with the shapes that the reference's file states of outputs, where it says none itself."""
    stated = {
        str(v.name): tuple(side if isinstance(side, int) else str(side) for side in v.shape)
        for v in files.reference.graph.outputs
        if v.shape is not None
    }
    outputs = (replace(each, shape=stated.get(each.name)) if each.shape is None else each for each in spec.outputs)
    return replace(spec, outputs=tuple(outputs))


def _input_shapes(files: ModelPair) -> dict[str, list[int | None]]:
    values = [value for value in files.reference.graph.inputs if value.shape is not None]
    return {str(v.name): [side if isinstance(side, int) else None for side in v.shape or ()] for v in values}


# --- where it goes wrong ----------------------------------------------------------------------------------------------


def _located(report: Report, files: ModelPair, feed: Mapping[str, np.ndarray], spec: IoSpec) -> Report:
    from truehalf.verification.localize.both_files import BothFiles
    from truehalf.verification.localize.locate import first_bad_node, locate

    files.close()
    queries = query_outputs(spec) if spec.outputs else None
    pessimistic = report.evaluation == Evaluation.emulated_fp16_pessimistic.value
    try:
        both = BothFiles(files.reference, files.candidate, pessimistic=pessimistic)
        suspects = locate(both, [feed], queries).suspects
    except StageError as error:
        why_not = not_checked(coded("not-searched", f"where it goes wrong: {error}"))
        return replace(report, findings=[*report.findings, why_not])
    return replace(report, suspects=suspects, first_bad_node=first_bad_node(suspects, failed=not report.passed))


def _detections(seen: Measured) -> DetectionSummary:
    return {**seen.summary, **seen.self_precision()}
