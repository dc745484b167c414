"""verify.suggest: further pins that bring a failed file inside the gates, searched on what fails and then confirmed.

    search     on the samples that fail, the worst of them (truehalf.verification.localize.failing)
    confirm    a file that is converted with the pins is verified on all samples as the final one

Nothing is applied: the pins are printed and stored, ready for the command line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, reasons_of, verdict_of
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.failing import Failing
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import is_pessimistic, opened
from truehalf.verification.pinning.as_argument import pins_argument
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.search import Pins, all_errors, search_pins


class SuggestedPins(TypedDict, total=False):
    """Result of the search for pins: status "found", "not confirmed" or "none"; selectors is the list for the command
    line; conversions counts those of the search; verdict (None where the new file cannot be made or run) and reasons
    are of the confirmation.
    """

    status: str
    sentence: str
    selectors: str
    node_block_list: list[str]
    nodes: list[str]
    minimal: bool
    conversions: int
    verdict: str | None
    reasons: list[str]


def suggested_pins(
    fp32: ModelFile,
    last: ModelFile,
    failing: Failing,
    options: VerifyConfig,
    conversion: Reconversion,
    verify_again: Callable[[Path], list[Finding]],
) -> SuggestedPins:
    """Search pins and confirm them.

    Args:
        fp32: the file before the conversion.
        last: the final file.
        failing: its samples that fail, and the rule.
        verify_again: what is found of a file, on all samples.

    Raises:
        StageError: when the search cannot run.
    """
    part = failing.reference.subset(failing.worst)
    with tempfile.TemporaryDirectory(prefix="truehalf-pins-") as folder:
        path = Path(folder) / "model.onnx"

        def holds(entries: tuple[str, ...]) -> bool:
            conversion.convert(fp32.path, path, entries)
            file = opened(ModelFile(path), options.evaluation.value)
            outputs = file.run_all(part.samples, len(part.names) if failing.together else options.batch)
            file.close()
            return verdict_of(failing.judge(part.compare(outputs, options))) != FAILED

        count = len(part.names)
        where = f"a run of {count} samples" if failing.together else f"the worst {count} samples"
        if holds(()):
            return {"status": "none", "selectors": "", "sentence": _HOLDS.format(where=where)}
        files = BothFiles(conversion.named(fp32.path), last.model, pessimistic=is_pessimistic(failing.evaluation))
        batches = failing.batches(last, fp32)
        found = search_pins(files, batches, query_outputs(part.spec), all_errors(files, batches), holds)
        if not found.nodes:
            return {"status": "none", "selectors": "", "sentence": _NONE.format(where=where)}
        facts: SuggestedPins = {
            "selectors": pins_argument("node_block_list", found.entries, conversion.precision.node_block_list),
            "node_block_list": [*found.entries],
            "nodes": list(found.nodes),
            "minimal": found.is_shortest,
            "conversions": found.conversions,
        }
        try:
            conversion.convert(fp32.path, path, found.entries)
            again = verify_again(path)
        except StageError as failure:
            sentence = f"{_found(found, where)} A file converted with them could not be verified: {failure}"
            reasons = [str(failure)]
            return {**facts, "status": "not confirmed", "sentence": sentence, "verdict": None, "reasons": reasons}
    return {
        **facts,
        "status": "found" if verdict_of(again) != FAILED else "not confirmed",
        "sentence": f"{_found(found, where)} {confirmation(again)}",
        "verdict": verdict_of(again),
        "reasons": reasons_of(again),
    }


_NONE = "No pins help: on {where} the gates do not hold with every node in FP32, either."
_HOLDS = "No further pin is needed for {where}: what fails does not show there."


def _found(found: Pins, where: str) -> str:
    count = len(found.nodes)
    short = "none can be left out" if found.is_shortest else "a shorter list may do"
    tried = f"found in {found.conversions} conversions on {where}"
    return f"{count} more {'pins' if count > 1 else 'pin'}, {tried}; {short}."


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
