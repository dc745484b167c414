"""The FP32 torch model against every file of a chain, stage by stage, on samples that no other stage has seen.

    stage            file                          evaluation                                   samples
    trace, slim    FP32                          ONNX Runtime CPU                             the first SUBSET
    fp16           before cast clean-up          emulated-fp16 (or as asked) where it         the first SUBSET
    cast_cleanup   the final file, what ships    holds FP16                                   all
    engine         not this stage's: "not verified"

Every file runs on the adversarial samples, too, and at batch 1; the final one also at opt and max of the engine's
profiles. Where the reference is the first of the run's samples alone (verify.first_samples), so is the final file.

ONNX Runtime's CPU provider computes FP16 graphs in FP32, so it never judges one here. The gates and checks judge only
the final file. What was measured of another in a run with another precision is taken from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from truehalf.codes import coded
from truehalf.errors import attempted
from truehalf.files import write_json
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.ir.outline import outline
from truehalf.verification.chain.pictures import draw
from truehalf.verification.chain.stage import HEADLINE, OF_OUTPUTS, SUBSET, FileResult, Judge, StageFacts
from truehalf.verification.contradictions import contradictions
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding, not_checked, verdict_of
from truehalf.verification.localize.locate import Place
from truehalf.verification.localize.place import LOOKED_FOR, place_of
from truehalf.verification.open_file import FP32_CPU, judge_file
from truehalf.verification.report import Report

MEASURED_STAGES = ("trace", "slim", "fp16", "cast_cleanup")
FINAL = MEASURED_STAGES[-1]
_LOOKED_AT = 4  # the worst samples, in which the node at fault is looked for
NO_ENGINE = "this stage judges the ONNX file"
T = TypeVar("T")
NOT_MEASURED = {"state": NOT_VERIFIED, "reason": "no such file, or left out by verify.first_samples"}
ENGINE = {"state": NOT_VERIFIED, "reason": NO_ENGINE}


@dataclass(frozen=True)
class Making:
    """Record of how the files of a chain were made.

    Attributes:
        batch_sizes: numbers of samples in a run at which the final file must find the same; the others at 1.
        pinned: entries of precision.node_block_list in force, which selectors of further nodes repeat.
        left_open: why the traced file itself is not verified, or the final one is not in the declared precision; a
            verdict that would be passed is then "not verified".
        measured: see truehalf.verification.chain.stage.measured_with; None: nothing was measured before.
    """

    batch_sizes: Sequence[int] = (1,)
    pinned: Sequence[str] = ()
    left_open: Sequence[str] = ()
    measured: Mapping[str, StageFacts] | None = None


def verify(judge: Judge, files: Mapping[str, Path | ModelFile], out: Path, made: Making | None = None) -> Report:
    """Hold the files of a chain against the frozen reference, the last one by the gates and checks.

    Args:
        judge: the reference (truehalf.verification.chain.reference.freeze) and the options.
        files: ONNX file by stage, in the order of the chain; `slim` and the final `cast_cleanup` are among them.
        out: folder for verdict.json, details.json, graph.json and plots/.
        made: what is known of how the files were made.

    Returns:
        The report. What is looked for once the verdict stands (the place, pictures) may end with an error: that takes
        no verdict away, and is listed as not verified.
    """
    made, options = made or Making(), judge.options
    opened = {name: file_of(file) for name, file in files.items()}
    fp32, last = opened["slim"], opened[FINAL]
    total, judge = len(judge.reference.names), judge.beside(fp32).first()
    final = judge.of_file(last, made.batch_sizes)
    comparison, stages = final.comparison, _measured_all(judge, final, opened, made, total)
    findings = [
        *judge_file(last, fp32),
        *final.findings(options.require),
        *(Finding("chain", NOT_VERIFIED, reason) for reason in made.left_open),
        *contradictions(fp32.model, last.model, judge.reference.spec),
        *beyond(stages, total),
    ]

    def tried(what: str, search: Callable[[], T], code: str = "") -> T | None:
        return attempted(what, lambda text: findings.append(not_checked(text)), search, code)

    place, plots = None, out / "plots"
    if verdict_of(findings) == FAILED and final.file.evaluation != FP32_CPU:
        place = tried(LOOKED_FOR, partial(_at_fault, fp32, last, made, final, [*findings]), "not-searched")
    images = tried("pictures of the samples", partial(draw, plots, judge.reference, comparison, options)) or []
    graph = tried("the outline of the graph", lambda: outline(last))
    short = {name: _short(each) for name, each in stages.items()}
    report = Report(
        *(findings, final.file.evaluation, final.file.provider, "torch", comparison),
        place=place,
        stages={**dict.fromkeys(MEASURED_STAGES, NOT_MEASURED), **short, "engine": ENGINE},
    )
    details = {"stages": stages, "images": images, "samples": [asdict(row) for row in comparison.samples]}
    write_json(out / "verdict.json", report.to_json())
    write_json(out / "details.json", details)
    write_json(out / "graph.json", graph)
    return report


def _measured_all(
    judge: Judge, final: FileResult, files: Mapping[str, ModelFile], made: Making, total: int
) -> dict[str, StageFacts]:
    """Collect the facts of all stages; of the final one alone where the reference has only the first of `total`
    samples.
    """
    if len(judge.reference.names) < total:
        return {FINAL: final.facts}
    known = {**(made.measured or {}), files[FINAL].digest: final.facts}  # files of the same bytes are measured once
    for model in files.values():
        if model.digest not in known:
            known[model.digest] = judge.of_file(model, (1,), SUBSET).facts
    return {name: known[model.digest] for name, model in files.items()}


def _at_fault(
    fp32: ModelFile, last: ModelFile, made: Making, final: FileResult, findings: Sequence[Finding]
) -> Place | None:
    """Locate the node at fault on the worst samples, or adversarial images, that a file fails on; None where there are
    none: a file that fails at another batch alone mixes samples, and one that fails by verify.require was not verified.
    """
    failed = {finding.check for finding in findings if finding.state == FAILED}
    comparison = final.comparison if failed & {*OF_OUTPUTS, "nonfinite"} else None
    if comparison is None and "adversarial" in failed:
        comparison = final.on_images
    if comparison is None:
        return None
    return place_of(fp32, last, comparison, final.file.evaluation, made.pinned, _LOOKED_AT)


def beyond(stages: Mapping[str, StageFacts], total: int) -> Iterator[Finding]:
    """Yield caveats: conditions that a verification of `total` samples does not cover."""
    final = stages[FINAL]
    rows, ran = final["batches"]["sizes"], final["samples"]
    if ran < total:
        yield not_checked(coded("first-samples", f"the final file alone, on {ran} of {total} samples"))
    sizes = {final["batch"], *(row["batch"] for row in rows if row["state"] == VERIFIED)}
    ran_in = "one sample, opt and max of engine.profiles, and the batch of the comparison"
    yield not_checked(f"batch sizes other than {', '.join(map(str, sorted(sizes)))} ({ran_in})")
    yield not_checked(f"the TensorRT engine: {NO_ENGINE}")
    if fewer := [name for name, stage in stages.items() if stage["samples"] < ran]:
        yield not_checked(f"{', '.join(fewer)}: measured on the first {SUBSET} of {ran} samples")


def _short(facts: StageFacts) -> dict[str, Any]:
    """Shorten the facts of a stage to a line of verify.json."""
    batches, images = facts["batches"], facts["adversarial"]
    sizes = {str(row["batch"]): row["state"] for row in batches["sizes"]}
    keys = ("evaluation", "provider", "samples", *HEADLINE)
    return {
        **{key: facts.get(key) for key in keys},
        **({"reason": facts["reason"]} if "reason" in facts else {}),
        "batches": {"state": batches["state"], "reason": batches["reason"], "sizes": sizes},
        "adversarial": {"state": images["state"], "reason": images["reason"]},
    }
