"""verify.suggest: further pins that bring a failed file inside the gates, found on a switchboard and then confirmed.

    search     on the samples that fail, the worst of them (truehalf.verification.localize.failing), one run for each
               question (truehalf.verification.pinning.suggest), within SEARCH_RUNS
    confirm    the FP32 file is converted anew with the pins, and that file is verified on all samples as the final one

Nothing is applied: the pins are printed and stored, ready for the command line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict, cast

from truehalf.codes import coded
from truehalf.config.verification import Evaluation, VerifyConfig
from truehalf.conversion.report import Decision
from truehalf.errors import StageError
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.reference import Outputs
from truehalf.verification.chain.stage_results import measure
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, reasons_of, verdict_of
from truehalf.verification.localize.failing import Failing
from truehalf.verification.metrics.tensors import total_error
from truehalf.verification.pinning.as_argument import pins_argument
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.suggest import Suggestion, suggest
from truehalf.verification.pinning.switchboard import Switchboard, full_batches

SEARCH_RUNS = 300  # at most, each of a batch


class SuggestedPins(TypedDict, total=False):
    """Result of the search for pins: status "found", "not confirmed" or "none"; selectors are the lists for the
    command line; verdict (None where the new file cannot be made or run) and reasons are of the confirmation.
    """

    status: str
    sentence: str
    selectors: str
    node_block_list: list[str]
    scope_block_list: list[str]
    nodes: list[str]
    minimal: bool
    runs: int
    verdict: str | None
    reasons: list[str]


def suggested_pins(
    fp32: ModelFile,
    failing: Failing,
    options: VerifyConfig,
    conversion: Reconversion,
    decisions: Sequence[Decision],
    verify_again: Callable[[Path], list[Finding]],
) -> SuggestedPins:
    """Search pins and confirm them.

    Args:
        fp32: the file before the conversion.
        failing: the samples of the final file that fail, and the rule.
        decisions: rows of its conversion.
        verify_again: what is found of a file, on all samples.

    Raises:
        StageError: when the search cannot run.
    """
    model = conversion.source(fp32.path)
    board = Switchboard(model, conversion.precision, conversion.ranges)
    reference, judge = failing.reference, failing.judge
    size = fp32.fixed_batch or len(failing.worst)
    rows = failing.worst[: max(1, len(failing.worst) // size) * size]
    part = reference.subset(rows)
    feeds = full_batches(part.samples, size)

    def kept(outputs: Outputs) -> Outputs:
        return {name: value[: len(rows)] for name, value in outputs.items()}

    def gates_hold(outputs: Outputs) -> bool:
        return verdict_of(judge(measure(part, kept(outputs), options))) != FAILED

    def error(outputs: Outputs) -> float:
        return total_error(part.spec, part.outputs, kept(outputs))

    base = [str(row["node"]) for row in decisions if row["precision"] == "fp32"]
    found = suggest(board, feeds, base, error, gates_hold, runs=SEARCH_RUNS)
    where = f"a run of {len(rows)} samples" if failing.together else f"the worst {len(rows)} samples"
    if found is None:
        return {"status": "none", "selectors": "", "sentence": _NONE.format(where=where)}
    facts: SuggestedPins = {**cast("SuggestedPins", asdict(found)), "selectors": _selectors(found, conversion)}
    if not found.nodes:
        sentence = why_none_needed(failing.final.facts["evaluation"]) if found.minimal else _USED_UP
        return {**facts, "status": "none", "sentence": sentence.format(where=where, runs=found.runs)}
    try:
        with tempfile.TemporaryDirectory(prefix="truehalf-pins-") as folder:
            path = Path(folder) / "model.onnx"
            conversion.convert(fp32.path, path, found.node_block_list, found.scope_block_list)
            again = verify_again(path)
    except StageError as failure:
        sentence = f"{_found(found, where)} A file converted with them could not be verified: {failure}"
        return {**facts, "status": "not confirmed", "sentence": sentence, "verdict": None, "reasons": [str(failure)]}
    return {
        **facts,
        "status": "found" if verdict_of(again) != FAILED else "not confirmed",
        "sentence": f"{_found(found, where)} {confirmation(again)}",
        "verdict": verdict_of(again),
        "reasons": reasons_of(again),
    }


_NONE = "No pins help: on {where} the gates do not hold with every node in FP32, either."
_HOLDS = "No further pin is needed for {where}: what fails does not show there."
_HOLDS_ELSEWHERE = (
    "No pins were found: the search rounds what each node outputs, and so {{where}} hold the gates; the file failed "
    "by evaluation {evaluation}."
)
_USED_UP = "Whether any pin helps {where} is open: the {runs} runs of the search are used up."


def why_none_needed(evaluation: str) -> str:
    """The sentence, {where} to be filled in, when the samples that fail hold the gates on the switchboard as it is."""
    plain = evaluation == Evaluation.emulated_fp16.value
    return _HOLDS if plain else _HOLDS_ELSEWHERE.format(evaluation=evaluation)


def _found(found: Suggestion, where: str) -> str:
    count = len(found.node_block_list) + len(found.scope_block_list)
    short = "no entry can be dropped" if found.minimal else "the budget of runs was used up before it was the shortest"
    nodes = f"{len(found.nodes)} node{'s' if len(found.nodes) > 1 else ''}"
    return (
        f"{count} more {'entries' if count > 1 else 'entry'} ({nodes}), found in {found.runs} runs on {where}; {short}."
    )


def confirmation(again: Sequence[Finding]) -> str:
    """What a file converted with the pins does on all samples, by what is found of it."""
    if verdict_of(again) == FAILED:
        return f"A file converted with them fails on all samples: {reasons_of(again)[0]}."
    held = [finding for finding in again if "gate" in finding.facts]
    unknown = [finding.facts["gate"] for finding in held if finding.state == NOT_VERIFIED]
    if len(unknown) == len(held):
        text = "Whether a file converted with them holds the gates is open: none had a value. They were not applied."
        return coded("pins-open", text)
    if unknown:
        text = "A file converted with them holds on all samples the gates that had a value"
        return coded("pins-open", f"{text}; {', '.join(unknown)} had none. They were not applied.")
    return coded("pins-hold", "A file converted with them holds the gates on all samples. They were not applied.")


def _selectors(found: Suggestion, conversion: Reconversion) -> str:
    """Entries in force and new ones, as arguments of `python -m pipeline`."""
    lists = {"node_block_list": found.node_block_list, "scope_block_list": found.scope_block_list}
    return " ".join(pins_argument(key, new, getattr(conversion.precision, key)) for key, new in lists.items() if new)
