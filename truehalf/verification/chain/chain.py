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
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.conversion.report import Decision
from truehalf.data.samples import stacked
from truehalf.errors import attempted
from truehalf.files import write_json
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.ir.outline import outline
from truehalf.report.drawings import NodeRow
from truehalf.verification.chain.caveats import of_files
from truehalf.verification.chain.failing import failing_of
from truehalf.verification.chain.held_against import SUBSET, HeldAgainst
from truehalf.verification.chain.pictures import draw
from truehalf.verification.chain.plot_data import write_data
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import (
    FileResult,
    StageResult,
    headline,
    precision_drop,
)
from truehalf.verification.chain.suggested_pins import SuggestedPins, suggested_pins
from truehalf.verification.delivered import judge_file
from truehalf.verification.findings import (
    FAILED,
    NOT_VERIFIED,
    VERIFIED,
    Finding,
    not_checked,
    verdict_of,
)
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Place
from truehalf.verification.localize.node_errors import error_profile
from truehalf.verification.localize.worst_sample import facts_by_sample, worst_samples
from truehalf.verification.open_file import FP32_CPU, is_pessimistic
from truehalf.verification.pinning.as_argument import entry_of, pins_argument
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.report import Report, report_on
from truehalf.verification.stage_facts import Batches, StageFacts
from truehalf.verification.stage_numbers import AdversarialFacts, StageNumbers

MEASURED_STAGES = ("trace", "slim", "fp16", "cast_cleanup")
FINAL = MEASURED_STAGES[-1]
_WORST_NODES = 10
_CHAIN = "chain"  # what is open of all its files
NO_ENGINE = "this stage judges the ONNX file"
_PLACE, _PINS, _PROFILE = "where it goes wrong", "suggested pins", "the error along the graph"
_PICTURES, _GRAPH = "pictures of the samples", "the outline of the graph"
_MISSING = ""  # the code of what is no search
T = TypeVar("T")
NOT_MEASURED: StageNumbers = {
    "state": NOT_VERIFIED,
    "reason": "no such file, or left out by verify.first_samples",
}
ENGINE: StageNumbers = {"state": NOT_VERIFIED, "reason": NO_ENGINE}


@dataclass(frozen=True)
class Making:
    """How the files of a chain were made, and what else they are compared with.

    Attributes:
        adversarial: the reference on the adversarial samples, or why there is none.
        batch_sizes: numbers of samples in a run at which the final file must find the same; the others at 1.
        decisions: rows of the conversion.
        left_out: what is wrong with each sample that was left out.
        pinned: entries of precision.node_block_list in force, which selectors of further nodes repeat.
        left_open: why the traced file itself is not verified, or the final one is not in the declared precision; a
            verdict that would be passed is then "not verified".
        conversion: how the final file was made, for options.suggest; None: no pins are searched.
        of_samples: how many the run has, of which the reference may be the first; None: as many as the reference.
        measured: see truehalf.verification.chain.held_against.measured_with; None: nothing was measured before.
    """

    adversarial: Reference | str = "no adversarial samples were given"
    batch_sizes: Sequence[int] = (1,)
    decisions: Sequence[Decision] | None = None
    left_out: Sequence[str] = ()
    pinned: Sequence[str] = ()
    left_open: Sequence[str] = ()
    conversion: Reconversion | None = None
    of_samples: int | None = None
    measured: Mapping[str, StageFacts] | None = None


def verify(
    reference: Reference,
    files: Mapping[str, Path | ModelFile],
    out: Path,
    options: VerifyConfig,
    made: Making | None = None,
) -> Report:
    """Hold the files of a chain against the frozen reference, the last one by the gates and checks.

    Args:
        reference: see truehalf.verification.chain.reference.freeze.
        files: ONNX file by stage, in the order of the chain; `slim` and the final `cast_cleanup` are among them.
        out: folder for verdict.json, details.json and plots/.
        options: thresholds, evaluation, gates, what must be verified, what is looked for beside the verdict.
        made: what is known of how the files were made.

    Returns:
        The report. What is looked for once the verdict stands (the place, pins, the error of every node) may end with
        an error: that takes no verdict away, and is listed as not verified.
    """
    made = made or Making()
    opened = {name: file_of(file) for name, file in files.items()}
    fp32, last = opened["slim"], opened[FINAL]
    held, total = HeldAgainst(reference, made.adversarial, fp32, options), made.of_samples or len(reference.names)
    final, stages = _measured_all(held, opened, made, total)
    findings = [
        *judge_file(last, fp32),
        *final.findings(options),
        *(Finding(_CHAIN, NOT_VERIFIED, reason) for reason in made.left_open),
        *of_files(fp32.model, last.model, reference.spec),
        *beyond(stages, total),
        *(not_checked(f"a sample that was left out: {what}") for what in made.left_out),
    ]
    place, suggestion = _at_fault(held, last, made, final, findings)
    profile = None
    if options.profile:
        profile = _tried(_PROFILE, findings, lambda: profile_of(last, fp32, reference, final, made.pinned))
    plots = out / "plots"
    pictures = _tried(_PICTURES, findings, lambda: draw(plots, reference, final, options), _MISSING) or []
    graph = _tried(_GRAPH, findings, lambda: outline(last), _MISSING)
    facts, named = final.facts, {name: _short(each) for name, each in stages.items()}
    report = replace(
        report_on(final.seen, findings, final.ran, "torch", facts["labelled"]),
        left_out=made.left_out,
        place=place,
        average_precision={
            "ap50_fp32": facts["ap50_fp32"],
            "ap50": facts["ap50"],
            "ap50_95_fp32": facts["ap50_95_fp32"],
            "ap50_95": facts["ap50_95"],
            "ap50_95_drop": precision_drop(facts),
        },
        stages={**dict.fromkeys(MEASURED_STAGES, NOT_MEASURED), **named, "engine": ENGINE},
        suggestion=suggestion,
    )
    details: dict[str, object] = {
        "stages": stages,
        "images": pictures,
        "samples": [asdict(row) for row in facts_by_sample(final.seen)],
        "profile": profile or [],
        "no_profile": _why_none(profile, final, options),
    }
    write_json(out / "verdict.json", report.to_json())
    write_json(out / "details.json", details)
    write_json(out / "graph.json", graph)
    write_data(plots, profile or [])
    return report


def _measured_all(
    held: HeldAgainst, files: Mapping[str, ModelFile], made: Making, total: int
) -> tuple[FileResult, dict[str, StageFacts]]:
    """The final file, and those of all stages; it alone where the reference is of the first of `total` samples."""
    last = files[FINAL]
    final = held.measured_on_all(last, made.batch_sizes)
    if len(held.reference.names) < total:
        return final, {FINAL: final.facts}
    known = {**(made.measured or {}), last.digest: final.facts}  # files of the same bytes are measured once
    stages: dict[str, StageFacts] = {}
    for name, model in files.items():
        if model.digest not in known:
            known[model.digest] = held.measured_on_first(model)
        stages[name] = known[model.digest]
    return final, stages


def _at_fault(
    held: HeldAgainst, last: ModelFile, made: Making, final: FileResult, findings: list[Finding]
) -> tuple[Place | None, SuggestedPins | None]:
    """Where a failed file goes wrong, and further pins; a search that ends with an error adds a finding."""
    if verdict_of(findings) != FAILED:
        return None, None
    options, looked_at = held.options, (last, held.reference, final, [*findings], held.images, held.options)
    failing = _tried(_PLACE, findings, lambda: failing_of(*looked_at))
    if failing is None:
        return None, None
    place = _tried(_PLACE, findings, lambda: failing.place(last, held.fp32, made.decisions, made.pinned))
    conversion = made.conversion
    if not options.suggest or conversion is None or final.ran.evaluation == FP32_CPU:
        return place, None

    def verify_again(path: Path) -> list[Finding]:
        return held.measured_on_all(ModelFile(path), made.batch_sizes).findings(options)

    search = partial(suggested_pins, held.fp32, last, failing, options, conversion, verify_again)
    return place, _tried(_PINS, findings, search)


def _tried(what: str, findings: list[Finding], search: Callable[[], T], code: str = "not-searched") -> T | None:
    """What a search finds; None when it raises: the verdict stands, a finding says it."""
    return attempted(what, lambda text: findings.append(not_checked(text)), search, code)


def _why_none(profile: list[NodeRow] | None, final: StageResult, options: VerifyConfig) -> str:
    """Why there is no error of every node; empty where there is, and for a file without FP16."""
    if final.facts["evaluation"] == FP32_CPU or profile is not None:
        return ""
    return coded("not-searched", "it ended with an error, see above") if options.profile else "verify.profile is false"


def beyond(stages: Mapping[str, StageFacts], total: int) -> Iterator[Finding]:
    """What a verification of `total` samples says nothing about."""
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
    file: ModelFile, fp32: ModelFile, reference: Reference, final: StageResult, pinned: Sequence[str] = ()
) -> list[NodeRow]:
    """The error of every node of the final file on the worst sample, in graph order; empty for a file without FP16.

    The nodes that make the largest errors by themselves have `rank`, 1 for the first, and `selector`, what pins them
    beside `pinned`.
    """
    if final.facts["evaluation"] == FP32_CPU:
        return []
    sample = reference.samples[worst_samples(facts_by_sample(final.seen), 1)[0]]
    feeds = stacked([sample] * (file.fixed_batch or fp32.fixed_batch or 1))
    pessimistic = is_pessimistic(final.facts["evaluation"])
    files = BothFiles(fp32.model, file.model, pessimistic=pessimistic)
    rows = error_profile(files, feeds)
    for rank, row in enumerate(worst_nodes(rows), start=1):
        unnamed = " -> " in row["node"]
        selector = "" if unnamed else pins_argument("node_block_list", [entry_of(row["node"])], pinned)
        row |= {"rank": rank, "selector": selector}
    return rows


def worst_nodes(profile: Sequence[NodeRow]) -> list[NodeRow]:
    """Rows of the nodes that make the largest errors by themselves, the largest first; None is not finite."""
    made = [row for row in profile if row["local_error"] != 0]
    return sorted(made, key=lambda row: -math.inf if row["local_error"] is None else -row["local_error"])[:_WORST_NODES]


def _short(facts: StageFacts) -> StageNumbers:
    """A stage in a line."""
    sizes = {str(row["batch"]): row["state"] for row in facts["batches"]["sizes"]}
    short = {
        **{key: facts.get(key) for key in ("evaluation", "provider", "samples")},
        **({"reason": "; ".join(facts["shape_faults"])} if facts["shape_faults"] else {}),
        **headline(facts),
        "batches": {**_state(facts["batches"]), "sizes": sizes},
        "adversarial": _state(facts["adversarial"]),
    }
    return cast("StageNumbers", short)


def _state(facts: Batches | AdversarialFacts) -> dict[str, str]:
    """A stage's batches or adversarial samples in short."""
    return {"state": facts["state"], "reason": facts["reason"]}
