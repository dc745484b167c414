"""Check of a conversion, and its repair: samples run through the FP32 file and, in emulated FP16, the converted one.

    given samples     fail as `compare` fails, but for errors of detections only beyond twice its gates
    edge inputs       (black, white, zeros, noise, a row of zeros, ten times a sample), and a drawn sample where none is
                      given: fail where FP16 gives NaN or Inf and FP32 does not

A small network runs on several samples, since one seldom shows what another does; a large one on one (ARITHMETIC).
Where they fail, pins are searched (truehalf.verification.pinning.search), as long as they leave half of the arithmetic
in FP16. They hold by half the tolerance, so that they do on other samples, too. With them the model is converted again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded, uncoded
from truehalf.config.precision import RuleSet
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.conversion.convert import Conversion
from truehalf.conversion.report import CastsReport, QuickCheck
from truehalf.conversion.rules.base import MEASURED, Decision, Verdict
from truehalf.data.fitting import edge_inputs, feed_in_range
from truehalf.data.samples import Feeds, Samples
from truehalf.errors import StageError, attempted, told
from truehalf.io_spec.in_file import spec_inside
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes, fixed_batch
from truehalf.ir.model_file import load_model, save_model
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import concrete_shapes
from truehalf.ir.proto.plugins import name_alike
from truehalf.progress import step
from truehalf.verification.chain.compare import compare
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import first_bad_node, locate
from truehalf.verification.localize.node_errors import local_errors
from truehalf.verification.metrics.tensors import rows_in_any_order
from truehalf.verification.open_file import FILE, OpenFile, Remembered, evaluation_of, judge_file, open_runner, opened
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.search import search_pins
from truehalf.verification.report import Report
from truehalf.verification.runs import Part
from truehalf.verification.samples import worst_samples

_FEW, _LEFT = 20, 0.5  # more pins leave at least this share of the arithmetic that was FP16
_CONVERSIONS = 3  # the pins of the first check were tried on its samples, so a third one is rare
_SECONDS, _SECONDS_LARGE = 90.0, 300.0  # of processor time for a search; the latter where one sample is enough
_WORST = 4  # samples that pins are searched on; the check of the next conversion runs all again
_DRAWN = "a drawn input"
SAMPLES, ARITHMETIC = 8, 5e10  # at most so many samples, and operations in all, but for the first sample
_GATES = GatesConfig()
_HALF_TOLERANCE = _GATES.tensor_rms_max / 2  # for pins on few samples, so that they hold on others, too
_PINNED = VerifyConfig(gates=GatesConfig(tensor_rms_max=_HALF_TOLERANCE))
# Of the few detections of 8 samples the 99th percentile is the largest error.
_CHECKED = VerifyConfig(
    gates=GatesConfig(
        score_error_p99_max=2 * _GATES.score_error_p99_max,
        rank_error_p99_max=2 * _GATES.rank_error_p99_max,
        box_error_p99_max=2 * _GATES.box_error_p99_max,
    )
)
_SLIMMED = "slimmed.onnx"


@dataclass(frozen=True)
class _Samples:
    name: str
    feeds: Sequence[Mapping[str, np.ndarray]]
    is_drawn: bool
    is_large: bool = False

    def compared(
        self,
        reference: OpenFile,
        candidate: Path | ModelFile | OpenFile,
        options: VerifyConfig = _CHECKED,
        judged: Sequence[Finding] | None = (),
    ) -> tuple[Report, list[Finding]]:
        """Compare two files on these samples; the report, and the findings that fail.

        Args:
            judged: see `compare`.
        """
        report = compare(reference, candidate, self.feeds, options=options, locate=False, judged=judged)
        failed = [each for each in report.findings if each.state == FAILED]
        spoiled = [each for each in failed if each.check in ("nonfinite", FILE)]
        return report, spoiled or ([] if self.is_drawn else failed)

    def worst_of(self, report: Report) -> _Samples:
        """Keep the feeds of the _WORST samples that differ most."""
        if report.comparison is None or len(self.feeds) == 1:
            return self
        places = [run.part.place[0] for run in report.comparison.runs for _ in run.places]
        worst = sorted({places[number] for number in worst_samples(report.comparison.samples, _WORST)})
        return replace(self, feeds=[self.feeds[number] for number in worst])

    def held(self, reference: OpenFile, candidate: Path) -> bool:
        """True if a file with pins is within half the tolerance, and its outputs react to the input as the reference's
        do.
        """
        report, failed = self.compared(reference, candidate, _PINNED)
        unmoved = _unmoved(report)
        if failed or not unmoved:
            return not failed
        return unmoved <= _unmoved(self.compared(reference, reference.file)[0])


def _unmoved(report: Report) -> set[str]:
    """Outputs of which it is not known that they react to the input."""
    open_ = (each for each in report.findings if each.check == "reaction" and each.state == NOT_VERIFIED)
    return {str(each.facts.get("output")) for each in open_ if each.decides}


@dataclass(frozen=True)
class Checked:
    """A converted file that was checked.

    Attributes:
        check: of the file as it is now.
        pins: by node name, the decisions with which it was converted again; empty where it stands as it was.
        made: of the last conversion; None where it stands as it was.
    """

    check: QuickCheck
    pins: Mapping[str, Decision]
    made: tuple[Conversion, CastsReport] | None = None


def check_conversion(
    source: Path,
    out: Path,
    samples: Samples | None,
    conversion: Reconversion,
    slim: Callable[[ModelFile], Any] | None = None,
) -> Checked:
    """Check a converted file, and convert it again with the pins that its check finds, unless precision.measured is
    false or the rules are those of AutoCast: then they are only named.

    Args:
        source: the FP32 file.
        out: the converted file; replaced where it is converted again.
        samples: the first of which are run; None: one is drawn (truehalf.data.fitting.feed_in_range).
        conversion: how one was made of the other; costs of casts are those of the first sample.
        slim: slims the source, gives something with a `model`; None: nothing was slimmed.

    Raises:
        StageError: as a conversion.
    """
    precision, made = conversion.precision, None
    repeats = precision.measured and precision.rules is RuleSet.default
    with step("check"), tempfile.TemporaryDirectory(prefix="truehalf-check-") as folder:
        for number in range(1, _CONVERSIONS + 1):
            check, pins = _check(source, out, samples, conversion, slim, Path(folder))
            if not pins or not repeats or number == _CONVERSIONS:
                break
            conversion = replace(conversion, pins={**conversion.pins, **pins})
            made = conversion.convert(Path(folder, _SLIMMED), out)
    return Checked(replace(check, pinned=tuple(conversion.pins)), conversion.pins, made)


def _check(
    source: Path,
    out: Path,
    samples: Samples | None,
    conversion: Reconversion,
    slim: Callable[[ModelFile], Any] | None,
    folder: Path,
) -> tuple[QuickCheck, Mapping[str, Decision]]:
    """Run samples through both files.

    Returns:
        The result: where it failed, with pins, if any hold; "not verified", with the reason, of a model that does not
        run on the sample. And the decisions of the pins; the slimmed model then lies in the folder.
    """
    sample, file, candidate = _Samples(_DRAWN, [], samples is None), ModelFile(source), ModelFile(out)
    try:
        sample = _some_of(samples, file.model)
        judged = judge_file(candidate, file)
        if refused := [each for each in judged if each.state == FAILED]:
            node = refused[0].facts.get("node")
            return QuickCheck(FAILED, sample.name, sample.is_drawn, refused[0].reason, first_bad_node=node), {}
        name_alike(file.model, candidate.model)
        evaluation = _CHECKED.evaluation.value
        pair = opened(file, evaluation), opened(candidate, evaluation)
        report, failed = sample.compared(*pair, judged=judged)
        state = VERIFIED if report.passed else NOT_VERIFIED
        result = QuickCheck(state, sample.name, sample.is_drawn, "; ".join(report.reasons))
        if failed:
            sample = sample.worst_of(report)
        elif not sample.is_drawn:
            sample, failed = _edge_at_fault(sample, *pair)
        for each in pair:
            each.close()
        if not failed:
            return result, {}
        code = "not-finite" if failed[0].check == "nonfinite" else "outputs-differ"
        reason = coded(code, uncoded(failed[0].reason))
        result = replace(result, state=FAILED, sample=sample.name, is_drawn=sample.is_drawn, reason=reason)
        missing: list[str] = []

        def searched() -> tuple[QuickCheck, Mapping[str, Decision]]:
            fp32 = (file if slim is None else slim(file)).model
            return _with_pins(result, sample, out, fp32, conversion, folder)

        with_pins = attempted("pins", missing.append, searched, "not-searched")
        return with_pins or (replace(result, remedy=missing[0]), {})
    except MemoryError:
        raise
    except Exception as error:
        return QuickCheck(NOT_VERIFIED, sample.name, sample.is_drawn, told(error)), {}


def _some_of(samples: Samples | None, source: ir.Model) -> _Samples:
    if samples is None:
        return _Samples(_DRAWN, [feed_in_range(source, spec_inside(source))], True)
    feeds = Feeds(samples, fixed_batch(source) or 1)
    first = feeds[0]
    most = min(SAMPLES, len(feeds))
    shapes = concrete_shapes(source, {name: array.shape for name, array in first.items()})
    arithmetic = sum(flops(node, shapes) for node in all_nodes(source))
    count = max(1, min(most, int(ARITHMETIC / max(1.0, arithmetic))))
    name = feeds.names[0] if count == 1 else f"{count} samples"
    return _Samples(name, [first, *feeds[1:count]], False, is_large=arithmetic > ARITHMETIC / 2)


def _edge_at_fault(sample: _Samples, reference: OpenFile, candidate: OpenFile) -> tuple[_Samples, list[Finding]]:
    """The first edge input of which the file makes NaN or Inf, and the FP32 model does not; no finding: none."""
    for name, feed in edge_inputs(sample.feeds).items():
        edge, part = _Samples(name, [feed], True, sample.is_large), Part([name], 0, partial(dict, feed))
        try:
            outputs = candidate.run(part)
        except StageError:  # a model may take no such input: an index, a length
            continue
        if not all(np.isfinite(each).all() for each in outputs.values() if each.dtype.kind == "f"):
            _, failed = edge.compared(reference, candidate)
            if failed:
                return edge, failed
    return sample, []


def _with_pins(
    failed: QuickCheck, sample: _Samples, out: Path, fp32: ir.Model, conversion: Reconversion, folder: Path
) -> tuple[QuickCheck, Mapping[str, Decision]]:
    """The result with the nodes that cause the failure, and the decisions that pin them."""
    shapes = None if sample.is_drawn else {name: array.shape for name, array in sample.feeds[0].items()}
    conversion = replace(conversion, input_shapes=conversion.input_shapes or shapes)
    slimmed, pinned = folder / _SLIMMED, folder / "pinned.onnx"
    save_model(fp32, slimmed)
    reference = _remembered(ModelFile(slimmed))
    files, queries = BothFiles(conversion.named(slimmed), load_model(out)), rows_in_any_order(fp32)
    errors = local_errors(files, sample.feeds, keep=len(files.pairs))
    failed = replace(failed, first_bad_node=first_bad_node(locate(files, sample.feeds, queries, errors)))
    least = _LEFT * _arithmetic(conversion.convert(slimmed, pinned))

    def holds(nodes: Collection[str]) -> bool | None:
        share = _arithmetic(conversion.convert(slimmed, pinned, nodes))
        return None if len(nodes) > _FEW and share < least else sample.held(reference, pinned)

    seconds = _SECONDS_LARGE if sample.is_large else _SECONDS
    pins = search_pins(files, sample.feeds, queries, errors, holds, seconds)
    if pins.effects:
        return replace(failed, node_block_list=pins.entries), _decisions(pins.effects, sample)
    reason = "no node is known that brings it within the tolerance in FP32: keep the model FP32"
    if pins.is_cut_short:
        reason = f"no pins were found that hold in {seconds:g} seconds of processor time"
    elif pins.most_failed:
        reason = f"with the {pins.most_failed} nodes that matter most in FP32 it is still beyond the tolerance, "
        reason += f"and more would leave less than {_LEFT:.0%} of its arithmetic in FP16: keep the model FP32"
    return replace(failed, remedy=coded("fp16-not-enough", reason)), {}


def _decisions(effects: Mapping[str, float], sample: _Samples) -> dict[str, Decision]:
    """A decision for each pin: `value` is how far the outputs move, as a share, where it alone is FP16."""
    why = f"on {sample.name} the file passes with it in FP32, and not without"
    return {
        name: Decision(Verdict.fp32, MEASURED, why, effect if np.isfinite(effect) else None, _HALF_TOLERANCE)
        for name, effect in effects.items()
    }


def _remembered(file: ModelFile) -> OpenFile:
    """The reference, opened: it runs once on each sample, however many files are compared with it."""
    evaluation = evaluation_of(file, _CHECKED.evaluation.value)
    return OpenFile(file, evaluation, Remembered(open_runner(file, evaluation)))


def _arithmetic(made: tuple[Conversion, CastsReport]) -> float:
    return made[0].report().fp16_arithmetic or 0.0
