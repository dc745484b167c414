"""Quick check of a conversion: samples through the FP32 file and, in emulated FP16, through the converted one.

    given samples     fail as `compare` fails
    a drawn one       fails where FP16 gives NaN or Inf and FP32 does not: of other errors noise says nothing

A small network runs on several samples, since one seldom shows what another does; a large one on one (ARITHMETIC).
Where they fail, pins are searched: the nodes that
cause most, first as localization has them, then by the error of parts of the network for what FP32 costs them
(truehalf.verification.pinning.ranking). The number of pins is doubled, then bisected; for each number the model is
converted again and compared, as long as pins leave half of the arithmetic in FP16. They hold by half the tolerance, so
that they do on other samples, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded, uncoded
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.conversion.convert import Conversion
from truehalf.conversion.report import QuickCheck
from truehalf.data.noise import feed_in_range
from truehalf.data.samples import Feeds, Samples
from truehalf.errors import attempted, told
from truehalf.io_spec.in_file import spec_inside
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes, fixed_batch, with_subgraphs
from truehalf.ir.model_file import save_model
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import PREPARE, concrete_shapes
from truehalf.progress import step
from truehalf.verification.chain.compare import compare
from truehalf.verification.delivered import CHECK
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding
from truehalf.verification.metrics.query_rows import outputs_apart, rows_in_any_order
from truehalf.verification.pinning.as_argument import entry_of
from truehalf.verification.pinning.fp32_costs import fp32_costs
from truehalf.verification.pinning.meter import Meter
from truehalf.verification.pinning.ranking import ranked
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.suggest import fewest
from truehalf.verification.pinning.switchboard import Switchboard
from truehalf.verification.report import Report

_PARTS, _PARTS_MORE = 12, 4  # of a network, and for each sample, that are measured, each in one run or two, for pins
_FEW, _LEFT = 20, 0.5  # more pins leave at least this share of the arithmetic that was FP16
_SLACK = 0.1  # share of the pins that may be needless
_ALL = (".*",)  # pins of every node
_DRAWN = "a drawn input"
SAMPLES, ARITHMETIC = 8, 5e10  # at most so many samples, and operations in all, but for the first sample
_AS_COMPARED = VerifyConfig()
# What pins are to reach on few samples, so that they hold on others, too: half the tolerance.
_PINNED = VerifyConfig(gates=GatesConfig(tensor_rms_max=_AS_COMPARED.gates.tensor_rms_max / 2))


@dataclass(frozen=True)
class _Samples:
    name: str
    feeds: Sequence[Mapping[str, np.ndarray]]
    is_drawn: bool

    def compared(
        self,
        reference: Path | ModelFile,
        candidate: Path,
        options: VerifyConfig = _AS_COMPARED,
        *,
        locate: bool = False,
        judged: Sequence[Finding] | None = (),
    ) -> tuple[Report, list[Finding]]:
        """The comparison on these samples, and what fails in it.

        Args:
            judged: see `compare`.
        """
        report = compare(reference, candidate, self.feeds, options=options, locate=locate, judged=judged)
        failed = [each for each in report.findings if each.state == FAILED]
        spoiled = [each for each in failed if each.check in ("nonfinite", CHECK)]
        return report, spoiled or ([] if self.is_drawn else failed)

    def held(self, reference: Path, candidate: Path) -> bool:
        """Whether a file with pins is within half the tolerance, what no gate judges within all of it, and its outputs
        react to the input as the reference's do.
        """
        report, failed = self.compared(reference, candidate, _PINNED)
        if failed and (failed[0].state == FAILED or self.compared(reference, candidate)[1]):
            return False
        unmoved = _unmoved(report)
        return not unmoved or unmoved <= _unmoved(self.compared(reference, reference)[0])


def _unmoved(report: Report) -> set[str]:
    """Outputs of which it is not known that they react to the input."""
    return {
        str(each.facts.get("output"))
        for each in report.findings
        if each.check == "reaction" and each.state == NOT_VERIFIED and each.decides
    }


def quick_check(
    source: Path,
    out: Path,
    samples: Samples | None,
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
        What was found, with pins where it failed or outputs differ; "not verified", with the reason, of a model that
        does not run on the sample.
    """
    sample, file = _Samples(_DRAWN, [], samples is None), ModelFile(source)
    try:
        with step("check"):
            sample = _some_of(samples, file.model)
            report, failed = sample.compared(file, out, judged=None)
            if not failed:
                state = VERIFIED if report.passed else NOT_VERIFIED
                return QuickCheck(state, sample.name, sample.is_drawn, "; ".join(report.reasons))
            if failed[0].check == CHECK:
                reason, node = failed[0].reason, report.first_bad_node
                return QuickCheck(FAILED, sample.name, sample.is_drawn, reason, first_bad_node=node)
            state, reason = failed[0].state, failed[0].reason
            if state == FAILED:
                code = "not-finite" if failed[0].check == "nonfinite" else "outputs-differ"
                reason = coded(code, uncoded(reason))
            found = QuickCheck(state, sample.name, sample.is_drawn, reason)
            missing: list[str] = []

            def pinned() -> QuickCheck:
                return _with_pins(found, sample, out, (file if slim is None else slim(file)).model, conversion)

            with_pins = attempted("pins", missing.append, pinned, "not-searched")
            return with_pins or replace(found, remedy=missing[0])
    except MemoryError:
        raise
    except Exception as error:
        return QuickCheck(NOT_VERIFIED, sample.name, sample.is_drawn, told(error))


def _some_of(samples: Samples | None, source: ir.Model) -> _Samples:
    if samples is None:
        return _Samples(_DRAWN, [feed_in_range(source, spec_inside(source))], True)
    feeds = Feeds(samples, fixed_batch(source) or 1)
    first = feeds[0]
    count = min(SAMPLES, len(feeds))
    if count > 1:
        shapes = concrete_shapes(source, {name: array.shape for name, array in first.items()})
        arithmetic = sum(flops(node, shapes) for node in all_nodes(source))
        count = max(1, min(count, int(ARITHMETIC / max(1.0, arithmetic))))
    name = feeds.names[0] if count == 1 else f"{count} samples"
    return _Samples(name, [first, *feeds[1:count]], False)


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
        report, _ = sample.compared(named, out, locate=True)
        found = replace(found, first_bad_node=report.first_bad_node)
        made = conversion.convert(slimmed, pinned, ())
        least = _LEFT * _arithmetic(made)
        tried: dict[int, bool | None] = {}

        # A pin of an If means its branches, as a switch of the switchboard does.
        inside = {str(node.name): [str(each.name) for each in with_subgraphs(node)] for node in prepared.graph}

        def pins(order: Sequence[str]) -> tuple[str, ...]:
            return tuple(entry_of(each) for node in order for each in inside[node])

        def enough(order: Sequence[str], count: int) -> bool:
            if count not in tried:
                share = _arithmetic(conversion.convert(slimmed, pinned, pins(order[:count])))
                is_too_much = count > _FEW and share < least
                tried[count] = None if is_too_much else sample.held(named, pinned)
            return tried[count] is not False

        def searched(order: Sequence[str]) -> QuickCheck | None:
            """The result with as few of these nodes as pins as hold."""
            tried.clear()
            if not order or not enough(order, len(order)):
                return None
            count = fewest(len(order), lambda count: enough(order, count), _SLACK)
            return replace(found, node_block_list=pins(order[:count])) if count and tried[count] else None

        if held := searched([each.node for each in report.suspects if each.node in inside and each.selector]):
            return held
        rows = {str(row["node"]): row["precision"] for row in made.decisions}
        kept = {name for name in inside if rows.get(name) == "fp32"}
        base = {name for name in kept if all(rows.get(each, "fp32") == "fp32" for each in inside[name])}
        if held := searched(_ranking(prepared, base, sample, conversion)):
            return held
        if found.state != FAILED:
            return found  # whether FP16 is enough is open
        most = max((count for count, holds in tried.items() if holds is False), default=0)
        reason = "no node is known that brings it within the tolerance in FP32: keep the model FP32"
        if most:
            reason = f"with the {most} nodes that matter most in FP32 it is still beyond the tolerance, and more would"
            reason += f" leave less than {_LEFT:.0%} of its arithmetic in FP16: keep the model FP32"
        conversion.convert(slimmed, pinned, _ALL)
        return replace(
            found,
            node_block_list=_ALL if sample.held(named, pinned) else (),
            remedy=coded("fp16-not-enough", reason),
        )


def _arithmetic(made: Conversion) -> float:
    return made.report().fp16_arithmetic or 0.0


def _ranking(model: ir.Model, base: set[str], sample: _Samples, conversion: Reconversion) -> list[str]:
    """The nodes beside the base: those first whose error, squared as errors add up, is largest for what FP32 costs."""
    board = Switchboard(model, conversion.precision, conversion.ranges)
    base = base.intersection(board.nodes)
    queries = rows_in_any_order(model)

    def apart(feed: Mapping[str, np.ndarray], nodes: Collection[str]) -> float:
        return outputs_apart(board.run(feed, board.nodes), board.run(feed, nodes), queries)

    worst = max(sample.feeds, key=lambda feed: apart(feed, base))
    exact = board.run(worst, board.nodes)
    count = _PARTS + _PARTS_MORE * len(sample.feeds)
    meter = Meter(board, worst, frozenset(base), lambda made: outputs_apart(exact, made, queries))
    parts = ranked(meter, fp32_costs(model, conversion.input_shapes), count)
    parts.sort(key=lambda part: -(part.error**2) / max(1, part.cost))
    return [node for part in parts for node in part.nodes]
