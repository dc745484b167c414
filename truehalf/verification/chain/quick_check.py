"""Quick check of a conversion: samples through the FP32 file and, in emulated FP16, through the converted one.

    given samples     fail as `compare` fails
    a drawn one       fails where FP16 gives NaN or Inf and FP32 does not: of other errors noise says nothing

A small network runs on several samples, since one seldom shows what another does; a large one on one (ARITHMETIC).
Where they fail, the nodes that cause it are searched, and the model is converted again with ever more of them pinned,
until they pass, by half the tolerance.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.conversion.report import QuickCheck
from truehalf.data.feeds import Feeds
from truehalf.data.given import Given
from truehalf.data.noise import feed_in_range
from truehalf.errors import StageError
from truehalf.io_spec.in_file import spec_inside
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_file import load_model, save_model
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import PREPARE, concrete_shapes
from truehalf.progress import step
from truehalf.verification.chain.compare import compare
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.report import Report

_MORE = (1, 3, 6, 10)  # nodes that are pinned in each round, the likeliest first
_DRAWN = "a drawn input"
SAMPLES, ARITHMETIC = 8, 5e10  # at most so many samples, and operations in all, but for the first sample
_AS_COMPARED = VerifyConfig()
# What pins are to reach on few samples, so that they hold on others, too: half the tolerance.
_PINNED = VerifyConfig(gates=GatesConfig(tensor_error_max=_AS_COMPARED.gates.tensor_error_max / 2))


@dataclass(frozen=True)
class _Samples:
    name: str
    feeds: Sequence[Mapping[str, np.ndarray]]
    is_drawn: bool

    def compared(
        self, reference: Path, candidate: Path, options: VerifyConfig = _AS_COMPARED, *, locate: bool = False
    ) -> tuple[Report, list[Finding]]:
        """The comparison on these samples, and what fails in it."""
        report = compare(reference, candidate, self.feeds, options=options, locate=locate)
        failed = [each for each in report.findings if each.state == FAILED]
        spoiled = [each for each in failed if each.check == "nonfinite"]
        return report, spoiled or ([] if self.is_drawn else failed)


def quick_check(
    source: Path,
    out: Path,
    samples: Given | None,
    conversion: Reconversion,
    slim: Callable[[ModelFile], Any] | None = None,
) -> QuickCheck:
    """Run samples through a file and what was made of it.

    Args:
        source: the FP32 file.
        out: the converted file.
        samples: the first of which are run; None: one is drawn (truehalf.data.noise.feed_in_range).
        conversion: how one was made of the other; costs of casts are those of the first sample.
        slim: what came before it, gives something with a `model`; None: nothing did.

    Returns:
        What was found; "not verified", with the reason, of a model that does not run on the sample.
    """
    sample = _Samples(_DRAWN, [], samples is None)
    try:
        with step("check"):
            sample = _some_of(samples, load_model(source))
            report, failed = sample.compared(source, out)
            if not failed:
                state = VERIFIED if report.passed else NOT_VERIFIED
                return QuickCheck(state, sample.name, sample.is_drawn, "; ".join(report.reasons))
            code = "not-finite" if failed[0].check == "nonfinite" else "outputs-differ"
            found = QuickCheck(FAILED, sample.name, sample.is_drawn, coded(code, failed[0].reason))
            file = ModelFile(source)
            return _with_pins(found, sample, out, (file if slim is None else slim(file)).model, conversion)
    except StageError as error:
        return QuickCheck(NOT_VERIFIED, sample.name, sample.is_drawn, str(error))


def _some_of(samples: Given | None, source: ir.Model) -> _Samples:
    if samples is None:
        return _Samples(_DRAWN, [feed_in_range(source, spec_inside(source))], True)
    rows = samples.by_rows(source) if isinstance(samples, Feeds) else samples
    feeds = iter(rows)
    first = next(feeds)
    count = min(SAMPLES, len(rows.names))
    if count > 1:
        shapes = concrete_shapes(source, {name: array.shape for name, array in first.items()})
        arithmetic = sum(flops(node, shapes) for node in all_nodes(source))
        count = max(1, min(count, int(ARITHMETIC / max(1.0, arithmetic))))
    name = rows.names[0] if count == 1 else f"{count} samples"
    return _Samples(name, [first, *itertools.islice(feeds, count - 1)], False)


def _with_pins(found: QuickCheck, sample: _Samples, out: Path, fp32: ir.Model, conversion: Reconversion) -> QuickCheck:
    """The result, with the nodes that cause the failure."""
    shapes = None if sample.is_drawn else {name: array.shape for name, array in sample.feeds[0].items()}
    conversion = replace(conversion, input_shapes=shapes)
    with tempfile.TemporaryDirectory(prefix="truehalf-check-") as folder:
        slimmed, named, pinned = (Path(folder) / f"{name}.onnx" for name in ("slimmed", "named", "pinned"))
        save_model(fp32, slimmed)
        prepared = conversion.source(slimmed)  # its nodes have the names that node_block_list is matched with
        PREPARE(prepared)
        save_model(prepared, named)
        names = {str(node.name) for node in prepared.graph}
        report, _ = sample.compared(named, out, locate=True)
        found = replace(found, first_bad_node=report.first_bad_node)
        for count in _MORE:
            causing = [f"^{re.escape(each.node)}$" for each in report.suspects if each.node in names]
            new = [entry for entry in causing if entry not in found.node_block_list][:count]
            if not new:
                break
            entries = (*found.node_block_list, *new)
            conversion.convert(slimmed, pinned, entries)
            report, failed = sample.compared(named, pinned, _PINNED, locate=True)
            found = replace(found, node_block_list=entries, pins_hold=not failed)
            if not failed:
                break
    return found
