"""Quick check of a conversion: samples through the FP32 file and, in emulated FP16, through the converted one.

    given samples     fail as `compare` fails
    a drawn one       fails where FP16 gives NaN or Inf and FP32 does not: of other errors noise says nothing

A small network runs on several samples, since one seldom shows what another does; a large one on one (ARITHMETIC).
Where they fail, pins are searched (truehalf.verification.pinning.search), as long as they leave half of the arithmetic
in FP16. They hold by half the tolerance, so that they do on other samples, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded, uncoded
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.conversion.convert import Conversion
from truehalf.conversion.report import QuickCheck
from truehalf.data.fitting import feed_in_range
from truehalf.data.samples import Feeds, Samples
from truehalf.errors import attempted, told
from truehalf.io_spec.in_file import spec_inside
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes, fixed_batch
from truehalf.ir.model_file import load_model, save_model
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import concrete_shapes
from truehalf.progress import step
from truehalf.verification.chain.compare import compare
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import first_bad_node, locate
from truehalf.verification.localize.node_errors import local_errors
from truehalf.verification.metrics.tensors import rows_in_any_order
from truehalf.verification.open_file import FILE, OpenFile, Remembered, evaluation_of, open_runner
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.search import search_pins
from truehalf.verification.report import Report

_FEW, _LEFT = 20, 0.5  # more pins leave at least this share of the arithmetic that was FP16
_ALL = (".*",)  # pins of every node
_ROUNDS = 2  # of pins: the first was tried on these samples, so a second one is rare
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
        reference: ModelFile | OpenFile,
        candidate: Path,
        options: VerifyConfig = _AS_COMPARED,
        judged: Sequence[Finding] | None = (),
    ) -> tuple[Report, list[Finding]]:
        """The comparison on these samples, and what fails in it.

        Args:
            judged: see `compare`.
        """
        report = compare(reference, candidate, self.feeds, options=options, locate=False, judged=judged)
        failed = [each for each in report.findings if each.state == FAILED]
        spoiled = [each for each in failed if each.check in ("nonfinite", FILE)]
        return report, spoiled or ([] if self.is_drawn else failed)

    def held(self, reference: OpenFile, candidate: Path) -> bool:
        """Whether a file with pins is within half the tolerance, and its outputs react to the input as the
        reference's do.
        """
        report, failed = self.compared(reference, candidate, _PINNED)
        unmoved = _unmoved(report)
        if failed or not unmoved:
            return not failed
        return unmoved <= _unmoved(self.compared(reference, reference.file.path)[0])


def _unmoved(report: Report) -> set[str]:
    """Outputs of which it is not known that they react to the input."""
    open_ = (each for each in report.findings if each.check == "reaction" and each.state == NOT_VERIFIED)
    return {str(each.facts.get("output")) for each in open_ if each.decides}


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
        samples: the first of which are run; None: one is drawn (truehalf.data.fitting.feed_in_range).
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
            if failed[0].check == FILE:
                reason, node = failed[0].reason, report.first_bad_node
                return QuickCheck(FAILED, sample.name, sample.is_drawn, reason, first_bad_node=node)
            code = "not-finite" if failed[0].check == "nonfinite" else "outputs-differ"
            reason = coded(code, uncoded(failed[0].reason))
            found = QuickCheck(FAILED, sample.name, sample.is_drawn, reason)
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
        slimmed, pinned = Path(folder) / "slimmed.onnx", Path(folder) / "pinned.onnx"
        save_model(fp32, slimmed)
        reference = _remembered(ModelFile(slimmed))
        files, queries = BothFiles(conversion.named(slimmed), load_model(out)), rows_in_any_order(fp32)
        errors = local_errors(files, sample.feeds, keep=len(files.pairs))
        found = replace(found, first_bad_node=first_bad_node(locate(files, sample.feeds, queries, errors)))
        least = _LEFT * _arithmetic(conversion.convert(slimmed, pinned, ()))

        def holds(entries: tuple[str, ...]) -> bool | None:
            share = _arithmetic(conversion.convert(slimmed, pinned, entries))
            return None if len(entries) > _FEW and share < least else sample.held(reference, pinned)

        pins = search_pins(files, sample.feeds, queries, errors, holds)
        if pins.nodes:
            return replace(found, node_block_list=pins.entries)
        reason = "no node is known that brings it within the tolerance in FP32: keep the model FP32"
        if pins.most_failed:
            reason = f"with the {pins.most_failed} nodes that matter most in FP32 it is still beyond the tolerance, "
            reason += f"and more would leave less than {_LEFT:.0%} of its arithmetic in FP16: keep the model FP32"
        conversion.convert(slimmed, pinned, _ALL)
        return replace(
            found,
            node_block_list=_ALL if sample.held(reference, pinned) else (),
            remedy=coded("fp16-not-enough", reason),
        )


def _remembered(file: ModelFile) -> OpenFile:
    """The reference, opened: it runs once on each sample, however many files are compared with it."""
    evaluation = evaluation_of(file, _AS_COMPARED.evaluation.value)
    return OpenFile(file, evaluation, Remembered(open_runner(file, evaluation)))


def _arithmetic(made: Conversion) -> float:
    return made.report().fp16_arithmetic or 0.0


# --- convert, check, pin, convert again -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """A converted file.

    Attributes:
        made: of the last conversion.
        check: of its file.
        pins: entries of node_block_list that it was converted with, beside those of the precision.
    """

    made: Conversion
    check: QuickCheck
    pins: tuple[str, ...]


def convert_checked(
    source: Path,
    fp32: Path,
    out: Path,
    samples: Samples | None,
    conversion: Reconversion,
    slim: Callable[[ModelFile], Any] | None = None,
) -> Checked:
    """Convert a model, check it on samples, and convert it again with the pins that its check proposes.

    Args:
        source, samples, slim: see quick_check.
        fp32: what is converted: `source`, slimmed where it is.
        out: ONNX file to write.

    Raises:
        StageError: as a conversion.
    """
    pins: tuple[str, ...] = ()
    for _ in range(_ROUNDS + 1):
        pinned = conversion.with_pins(pins)
        made = pinned.convert(fp32, out, ())
        check = quick_check(source, out, samples, pinned, slim)
        further = tuple(pin for pin in check.node_block_list if pin not in pins)
        if not further:
            break
        pins += further
    return Checked(made, check, pins)
