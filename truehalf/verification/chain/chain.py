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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.conversion.report import Decision
from truehalf.data.samples import stacked
from truehalf.errors import attempted
from truehalf.files import write_json
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.ir.outline import outline
from truehalf.report.drawings import NodeRow
from truehalf.verification.chain.failing import SuggestedPins, failing_of, suggested_pins
from truehalf.verification.chain.pictures import draw
from truehalf.verification.chain.stage import HEADLINE, SUBSET, FileResult, Judge, StageFacts
from truehalf.verification.contradictions import contradictions
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding, not_checked, verdict_of
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Place
from truehalf.verification.localize.node_errors import error_profile
from truehalf.verification.open_file import FP32_CPU, is_pessimistic, judge_file
from truehalf.verification.pinning.as_argument import entry_of, pins_argument
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.report import Report
from truehalf.verification.samples import worst_samples

MEASURED_STAGES = ("trace", "slim", "fp16", "cast_cleanup")
FINAL = MEASURED_STAGES[-1]
_WORST_NODES = 10
NO_ENGINE = "this stage judges the ONNX file"
_MISSING = ""  # the code of what is no search
_NO_NODE = {"position": None, "node": "none", "precision": "none", "log10_error": None}  # DVC draws no empty table
T = TypeVar("T")
NOT_MEASURED = {"state": NOT_VERIFIED, "reason": "no such file, or left out by verify.first_samples"}
ENGINE = {"state": NOT_VERIFIED, "reason": NO_ENGINE}


@dataclass(frozen=True)
class Making:
    """Record of how the files of a chain were made.

    Attributes:
        batch_sizes: numbers of samples in a run at which the final file must find the same; the others at 1.
        decisions: rows of the conversion.
        pinned: entries of precision.node_block_list in force, which selectors of further nodes repeat.
        left_open: why the traced file itself is not verified, or the final one is not in the declared precision; a
            verdict that would be passed is then "not verified".
        conversion: how the final file was made, for options.suggest; None: no pins are searched.
        of_samples: how many the run has, of which the reference may be the first; None: as many as the reference.
        measured: see truehalf.verification.chain.stage.measured_with; None: nothing was measured before.
    """

    batch_sizes: Sequence[int] = (1,)
    decisions: Sequence[Decision] | None = None
    pinned: Sequence[str] = ()
    left_open: Sequence[str] = ()
    conversion: Reconversion | None = None
    of_samples: int | None = None
    measured: Mapping[str, StageFacts] | None = None


def verify(judge: Judge, files: Mapping[str, Path | ModelFile], out: Path, made: Making | None = None) -> Report:
    """Hold the files of a chain against the frozen reference, the last one by the gates and checks.

    Args:
        judge: the reference (truehalf.verification.chain.reference.freeze) and the options.
        files: ONNX file by stage, in the order of the chain; `slim` and the final `cast_cleanup` are among them.
        out: folder for verdict.json, details.json and plots/.
        made: what is known of how the files were made.

    Returns:
        The report. What is looked for once the verdict stands (the place, pins, the error of every node) may end with
        an error: that takes no verdict away, and is listed as not verified.
    """
    made, options = made or Making(), judge.options
    opened = {name: file_of(file) for name, file in files.items()}
    fp32, last = opened["slim"], opened[FINAL]
    judge, total = judge.beside(fp32), made.of_samples or len(judge.reference.names)
    final = judge.of_file(last, made.batch_sizes)
    comparison, stages = final.comparison, _measured_all(judge, final, opened, made, total)
    findings = [
        *judge_file(last, fp32),
        *final.findings(options.require),
        *(Finding("chain", NOT_VERIFIED, reason) for reason in made.left_open),
        *contradictions(fp32.model, last.model, judge.reference.spec),
        *beyond(stages, total),
    ]
    place, suggestion = _at_fault(judge, fp32, last, made, final, findings)
    profile, plots = None, out / "plots"
    if options.profile:
        search = partial(profile_of, last, fp32, judge, final, made.pinned)
        profile = _tried("the error along the graph", findings, search)
    pictures = partial(draw, plots, judge.reference, comparison, options)
    images = _tried("pictures of the samples", findings, pictures, _MISSING) or []
    graph = _tried("the outline of the graph", findings, lambda: outline(last), _MISSING)
    short = {name: _short(each) for name, each in stages.items()}
    report = Report(
        *(findings, final.ran.evaluation, final.ran.provider, "torch", comparison),
        place=place,
        stages={**dict.fromkeys(MEASURED_STAGES, NOT_MEASURED), **short, "engine": ENGINE},
        suggestion=suggestion,
    )
    details: dict[str, object] = {
        "stages": stages,
        "images": images,
        "samples": [asdict(row) for row in comparison.samples],
        "profile": profile or [],
        "no_profile": _why_none(profile, final, options),
    }
    write_json(out / "verdict.json", report.to_json())
    write_json(out / "details.json", details)
    write_json(out / "graph.json", graph)
    write_json(plots / "error_along_graph.json", plotted(profile or []))
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
    judge: Judge, fp32: ModelFile, last: ModelFile, made: Making, final: FileResult, findings: list[Finding]
) -> tuple[Place | None, SuggestedPins | None]:
    """Locate the nodes at fault of a failed file, and search further pins; an error of a search becomes a finding."""
    if verdict_of(findings) != FAILED:
        return None, None
    options, what = judge.options, "where it goes wrong"
    failing = _tried(what, findings, partial(failing_of, last, judge, final, [*findings]))
    if failing is None:
        return None, None
    place = _tried(what, findings, lambda: failing.place(last, fp32, made.decisions, made.pinned))
    conversion = made.conversion
    if not options.suggest or conversion is None or final.ran.evaluation == FP32_CPU:
        return place, None

    def verify_again(path: Path) -> list[Finding]:
        return judge.of_file(ModelFile(path), made.batch_sizes).findings(options.require)

    search = partial(suggested_pins, fp32, last, failing, options, conversion, verify_again)
    return place, _tried("suggested pins", findings, search)


def _tried(what: str, findings: list[Finding], search: Callable[[], T], code: str = "not-searched") -> T | None:
    """Run a search; None if it raises: the verdict stands, and a finding says it."""
    return attempted(what, lambda text: findings.append(not_checked(text)), search, code)


def _why_none(profile: list[NodeRow] | None, final: FileResult, options: VerifyConfig) -> str:
    """Say why there is no error of every node; empty where there is one, and for a file without FP16."""
    if final.ran.evaluation == FP32_CPU or profile is not None:
        return ""
    return coded("not-searched", "it ended with an error, see above") if options.profile else "verify.profile is false"


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


def profile_of(
    file: ModelFile, fp32: ModelFile, judge: Judge, final: FileResult, pinned: Sequence[str] = ()
) -> list[NodeRow]:
    """Measure the error of every node of the final file on the worst sample, in graph order; empty without FP16.

    The nodes that make the largest errors by themselves have `rank`, 1 for the first, and `selector`, what pins them
    beside `pinned`.
    """
    if final.ran.evaluation == FP32_CPU:
        return []
    sample = judge.reference.samples[worst_samples(final.comparison.samples, 1)[0]]
    feeds = stacked([sample] * (file.fixed_batch or fp32.fixed_batch or 1))
    files = BothFiles(fp32.model, file.model, pessimistic=is_pessimistic(final.ran.evaluation))
    rows = error_profile(files, feeds)
    for rank, row in enumerate(worst_nodes(rows), start=1):
        unnamed = " -> " in row["node"]
        selector = "" if unnamed else pins_argument("node_block_list", [entry_of(row["node"])], pinned)
        row |= {"rank": rank, "selector": selector}
    return rows


def plotted(profile: Sequence[NodeRow]) -> list[dict[str, Any]]:
    """List rows {position, node, precision, log10_error} of each node with a finite error above 0, which `dvc plots
    show` draws and compares between runs; errors as log10, for DVC's templates have only linear axes.
    """
    rows = [
        {"position": i, "node": row["node"], "precision": row["precision"], "log10_error": math.log10(error)}
        for i, row in enumerate(profile)
        if (error := row["local_error"]) and math.isfinite(error)
    ]
    return rows or [_NO_NODE]


def worst_nodes(profile: Sequence[NodeRow]) -> list[NodeRow]:
    """Choose rows of the nodes that make the largest errors by themselves, the largest first; None is not finite."""
    made = [row for row in profile if row["local_error"] != 0]
    return sorted(made, key=lambda row: -math.inf if row["local_error"] is None else -row["local_error"])[:_WORST_NODES]


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
