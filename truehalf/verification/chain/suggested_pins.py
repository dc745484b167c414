"""verify.suggest: further pins that bring a failed file inside the gates, searched on what fails and then confirmed.

    search     on the samples that fail, the worst of them (truehalf.verification.chain.failing)
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
from truehalf.verification.chain.failing import Failing
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, reasons_of, verdict_of
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import local_errors
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import is_pessimistic, opened
from truehalf.verification.pinning.as_argument import pins_argument
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.search import search_pins


class SuggestedPins(TypedDict):
    """Result of the search for pins.

    Attributes:
        status: "found", "not confirmed" or "none".
        sentence: the same in words.
        selectors: the pins for the command line; empty without.
        node_block_list: their entries.
        verdict: of a file converted with them, on all samples; None where there is no such file.
    """

    status: str
    sentence: str
    selectors: str
    node_block_list: list[str]
    verdict: str | None


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
    count = len(part.names)
    where = f"a run of {count} samples" if failing.together else f"the worst {count} samples"
    with tempfile.TemporaryDirectory(prefix="truehalf-pins-") as folder:
        path = Path(folder) / "model.onnx"

        def holds(entries: tuple[str, ...]) -> bool:
            conversion.convert(fp32.path, path, entries)
            file = opened(ModelFile(path), options.evaluation.value)
            outputs = file.run_all(part.samples, count if failing.together else options.batch)
            file.close()
            return verdict_of(failing.judge(part.compare(outputs, options))) != FAILED

        if holds(()):
            return _none(f"No further pin is needed for {where}: what fails does not show there.")
        pessimistic = is_pessimistic(failing.evaluation)
        files, batches = (
            BothFiles(conversion.named(fp32.path), last.model, pessimistic=pessimistic),
            failing.batches(last, fp32),
        )
        errors = local_errors(files, batches, keep=len(files.pairs))
        pins = search_pins(files, batches, query_outputs(part.spec), errors, holds)
        if not pins.nodes:
            return _none(f"No pins help: on {where} the gates do not hold with every node in FP32, either.")
        try:
            conversion.convert(fp32.path, path, pins.entries)
            again = verify_again(path)
            verdict, confirmed = verdict_of(again), confirmation(again)
        except StageError as failure:
            verdict, confirmed = None, f"A file converted with them could not be verified: {failure}"
    found = "1 more pin" if len(pins.nodes) == 1 else f"{len(pins.nodes)} more pins"
    short = "none can be left out" if pins.is_shortest else "a shorter list may do"
    return {
        "status": "not confirmed" if verdict in (None, FAILED) else "found",
        "sentence": f"{found}, found in {pins.conversions} conversions on {where}; {short}. {confirmed}",
        "selectors": pins_argument("node_block_list", pins.entries, conversion.precision.node_block_list),
        "node_block_list": [*pins.entries],
        "verdict": verdict,
    }


def _none(sentence: str) -> SuggestedPins:
    return {"status": "none", "sentence": sentence, "selectors": "", "node_block_list": [], "verdict": None}


def confirmation(again: Sequence[Finding]) -> str:
    """What a file converted with the pins does on all samples, by what is found of it."""
    if verdict_of(again) == FAILED:
        return f"A file converted with them fails on all samples: {reasons_of(again)[0]}."
    unknown = [each.facts["gate"] for each in again if "gate" in each.facts and each.state == NOT_VERIFIED]
    if unknown:
        open_gates = f"Whether a file converted with them holds {', '.join(unknown)} is open: there was no value"
        return coded("pins-open", f"{open_gates}. They were not applied.")
    return coded("pins-hold", "A file converted with them holds the gates on all samples. They were not applied.")
