"""verify.suggest: further pins that bring a failed file inside the gates, found on a switchboard and then confirmed.

    search     on the worst samples, one run for each question (stages.parity.suggest), within verify.suggest_runs
    confirm    the FP32 file is converted anew with the pins, and that file is verified on all samples as the final one

Nothing is applied: the pins are printed and stored, ready for the command line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conf.schema import VerifyConfig
from stages.data.samples import stacked
from stages.onnx_files import load_model
from stages.ort.switchboard import Switchboard
from stages.parity import gates
from stages.parity.hops import Hop, filled, fixed_batch, measure, sample_facts
from stages.parity.reference import Outputs, Reference
from stages.parity.suggest import Suggestion, as_dict, suggest
from stages.parity.tensors import pair_queries, query_outputs
from stages.parity.worst import worst_samples
from stages.reconversion import Conversion

SAMPLES = 4  # the worst, on which the search runs
Judge = Callable[[Reference, Hop], list[dict[str, Any]]]


def suggested_pins(
    fp32_path: Path,
    reference: Reference,
    final: Hop,
    options: VerifyConfig,
    conversion: Conversion,
    decisions: Sequence[Mapping[str, Any]],
    judge: Judge,
    verify_again: Callable[[Path], tuple[str, list[str]]],
) -> dict[str, Any]:
    """Search pins and confirm them.

    Args:
        fp32_path: the file before the conversion.
        final: the failed file, measured.
        decisions: rows of its conversion, {node, precision, ...}.
        judge: the gates of a hop (stages.parity.gates.evaluate).
        verify_again: (verdict, reasons) of a file, on all samples.

    Returns:
        sentence; status "found", "not confirmed" or "none"; node_block_list, scope_block_list; selectors, the same for
        the command line; nodes, minimal, runs, verdict and reasons of the confirmation.
    """
    model = conversion.source(fp32_path)
    board = Switchboard(
        model,
        ranges=conversion.ranges,
        masks=conversion.precision.masks,
        keep_io_types=conversion.precision.keep_io_types,
        init_conversion_max_bytes=conversion.precision.init_conversion_max_bytes,
    )
    worst = worst_samples(sample_facts(reference, final), SAMPLES)
    size = fixed_batch(load_model(fp32_path), fp32_path) or len(worst)
    rows = worst[: max(1, len(worst) // size) * size]
    part = reference.subset(rows)
    feeds = [stacked(filled(list(part.samples[start : start + size]), size)) for start in range(0, len(rows), size)]

    def kept(outputs: Outputs) -> Outputs:
        return {name: value[: len(rows)] for name, value in outputs.items()}

    def gates_hold(outputs: Outputs) -> bool:
        found = judge(part, measure(part, kept(outputs), options))
        return bool(gates.verdict(found)["verdict"] != gates.FAILED)

    def error(outputs: Outputs) -> float:
        return _error(part, kept(outputs))

    base = [str(row["node"]) for row in decisions if row["precision"] == "fp32"]
    found = suggest(board, feeds, base, error, gates_hold, runs=options.suggest_runs)
    if found is None:
        return {"status": "none", "selectors": "", "sentence": _NONE.format(samples=len(rows))}
    facts = as_dict(found) | {"selectors": _selectors(found, conversion)}
    if not found.nodes:
        return facts | {"status": "none", "sentence": _HOLDS.format(samples=len(rows))}
    with tempfile.TemporaryDirectory(prefix="truehalf-pins-") as folder:
        path = Path(folder) / "model.onnx"
        conversion.convert(fp32_path, path, found.node_block_list, found.scope_block_list)
        verdict, reasons = verify_again(path)
    confirmed = verdict != gates.FAILED
    return facts | {
        "status": "found" if confirmed else "not confirmed",
        "sentence": _sentence(found, len(rows), confirmed),
        "verdict": verdict,
        "reasons": reasons,
    }


_NONE = "No pins help: on the worst {samples} samples the gates do not hold with every node in FP32, either."
_HOLDS = "No further pin is needed for the worst {samples} samples alone; what fails shows on all samples together."


def _sentence(found: Suggestion, samples: int, confirmed: bool) -> str:
    count = len(found.node_block_list) + len(found.scope_block_list)
    short = "no entry can be dropped" if found.minimal else "the budget of runs was used up before it was the shortest"
    said = (
        f"{count} more {'entries' if count > 1 else 'entry'} ({len(found.nodes)} nodes), found in {found.runs} runs on "
        f"the worst {samples} samples; {short}."
    )
    if confirmed:
        return f"{said} A file converted with them holds the gates on all samples. They were not applied."
    return f"{said} A file converted with them does not hold the gates on all samples."


def _selectors(found: Suggestion, conversion: Conversion) -> str:
    """Entries in force and new ones, as arguments of `python -m pipeline`."""
    lines = []
    for key, new in (("node_block_list", found.node_block_list), ("scope_block_list", found.scope_block_list)):
        if new:
            entries = ",".join(f"'{entry}'" for entry in [*getattr(conversion.precision, key), *new])
            lines.append(f'"precision.{key}=[{entries}]"')
    return " ".join(lines)


def _error(reference: Reference, outputs: Outputs) -> float:
    """Root mean square of the differences over that of the reference, queries paired, all outputs added up."""
    names = query_outputs(reference.spec)
    paired = dict(outputs)
    if names:
        rows = pair_queries(reference.outputs, outputs, names)
        paired |= {name: np.take_along_axis(outputs[name], rows[..., None], axis=1) for name in names}
    total = 0.0
    for name, expected in reference.outputs.items():
        with np.errstate(over="ignore", invalid="ignore"):
            difference = np.asarray(paired[name], np.float64) - expected
            scale = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64)))) or 1.0
            total += float(np.sqrt(np.mean(np.square(difference)))) / scale
    return total
