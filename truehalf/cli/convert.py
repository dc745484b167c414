"""truehalf convert: slim, calibrate, convert, clean the casts, verify."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli import form
from truehalf.cli.engine import ENGINE, check_engine, default_folder, engine_lines, engine_of_model, engine_options
from truehalf.cli.form import file_option, option
from truehalf.codes import coded
from truehalf.config.precision import Method, Precision
from truehalf.config.typed import ConfigErrors, plain
from truehalf.errors import StageError, attempted
from truehalf.report.fp32_nodes import fp32_lines
from truehalf.report.numbers import number, percent
from truehalf.report.text import Screen, comparison_lines, up_to

if TYPE_CHECKING:
    from truehalf.api import Result
    from truehalf.conversion.report import ConvertReport, QuickCheck
    from truehalf.data.samples import Split
    from truehalf.engines.engine_report import EngineReport
    from truehalf.ir.model_forms import ModelFile
    from truehalf.verification.report import Report

_EXAMPLES = (
    "truehalf convert model.onnx --samples images/ --size 640x640",
    "truehalf convert model.onnx --samples feeds.npz -o o.onnx --op-block-list Exp",
    "truehalf convert model.onnx -o out.onnx     (no samples: not verified, exit 3)",
    "truehalf convert model.onnx --samples images/ --size 640x640 --engine",
)
_NO_SAMPLES = {  # by whether ranges were given
    False: "no --samples: converted by the rules that need none (weights, lists, graph), not compared",
    True: "no --samples: converted by the given ranges, not compared",
}
_SHARED = "there is only one sample, and the conversion was calibrated on it: passing shows nothing about other inputs"
_PROPOSED = coded("spec-proposed", "as detections, by a proposed I/O spec")
_RANGES = "--ranges does not say which samples it was measured on: whether these are among them is unknown"
_NOTHING = "none of its float nodes is FP16: what passed is the FP32 model; --verbose names the rule of each node"
_SAMPLES_MIN = 3  # rounding errors vary between inputs: of one or two, the largest may not have been met
_OF_CHAIN = ("dtype", "method", "measured")  # of Precision: what has no flag, or another one (--no-check)
_SPLIT = ("calibration", "verification", "total")
_CONVERSION = ("keep_io_types", "opset", "placement", "strict_clean_up")


def _group(name: str) -> str | None:
    """The group of the flag of an option of Precision."""
    if name in _OF_CHAIN:
        return None
    return "Conversion" if name in _CONVERSION else "Which nodes" if name.endswith(("_list", "_ops")) else "Rules"


@form.command(examples=_EXAMPLES)
@click.argument("model", type=form.MODEL, metavar="model.onnx")
@file_option("-o", "--out", is_output=True, help="FP16 file to write [<model>_fp16.onnx beside the model]")
@form.samples_option(required=False, what="real inputs: ")
@option("--no-verify", is_flag=True, help="only convert; all samples calibrate, and some of them are checked")
@file_option("--ranges", group="Samples", help="from `truehalf calibrate`; nothing is slimmed then")
@option("--calibration-samples", type=click.IntRange(1), metavar="N", default=32, group="Samples", help="at most [32]")
@option("--verification-samples", type=click.IntRange(1), metavar="N", default=32, group="Samples", help="at most [32]")
@file_option("--spec", type=form.SOURCE, group="Samples", help="I/O spec to verify by [of model.onnx, or proposed]")
@option("--no-slim", is_flag=True, group="Conversion", help="skip onnxslim and the repairs: the file is slim already")
@option("--no-check", is_flag=True, group="Conversion", help="run no sample to find nodes that must stay FP32")
@option("--engine", is_flag=True, group=ENGINE, help="make its engine in <FILE>_engine, as `truehalf engine` does")
@engine_options
@form.image_options
@form.flags(Precision, _group)
def command(output: form.Output, **given: Any) -> int:
    """Convert an FP32 ONNX file to FP16, and verify it on samples that calibration did not see."""
    from truehalf.api import compare, convert
    from truehalf.ir.model_forms import ModelFile

    precision = form.options_of(Precision, given, method=Method.convert, measured=not given["no_check"])
    preprocessing = form.preprocessing_of(given)
    model, ranges = given["model"], given["ranges"]
    out = given["out"] or model.parent / f"{model.stem}_fp16.onnx"
    file = ModelFile(model)
    check_engine(file, given, given["engine"])
    calibration, verification, parts = _shared_out(file, given, preprocessing)
    skip = ["slim"] if given["no_slim"] else []
    skip += ["check"] if given["no_check"] else []
    result = convert(file, out, samples=calibration, ranges=ranges, skip=skip, precision=precision)
    report = None if verification is None else compare(model, out, verification, spec=given["spec"])
    verdict, limit = _verdict(report, parts, result.report, given)
    notes = _notes(result.report, ranges is not None and report is not None)
    if refused := _refused(out, notes):
        notes.append(refused)
        verdict, limit = ("not verified", refused) if verdict == "passed" else (verdict, limit)
    engine, refusal = _engine(out, verdict, given) if given["engine"] else (None, None)
    content = {
        "model": str(model),
        "out": str(out),
        "samples": None if parts is None else {key: getattr(parts, key) for key in _SPLIT},
        "precision": plain(precision),
        "conversion": result.report.to_json(),
        "decisions": list(result.decisions),
        "comparison": None if report is None else report.to_json(),
        "verdict": verdict,
        "notes": [limit, *notes] if verdict == "passed" and limit else notes,
        "engine": None if engine is None else engine.to_json(),
    }
    screen, agrees = output.screen, f"agrees with {model}" if verdict == "passed" else ""
    lines = [": ".join(filter(None, [verdict, str(out), limit or agrees])), ""]
    lines += _conversion_lines(model, out, result, parts, screen)
    lines += screen.listed("notes:", (note for note in notes if note != limit))
    lines += ["", *comparison_lines(report, screen)] if report is not None else []
    lines += ["", "engine:", *engine_lines(engine, default_folder(out), screen)] if engine is not None else []
    output.give(lines, content)
    if refusal is not None:
        raise refusal
    return form.FAILED if engine is not None and engine.status == "failed" else form.VERDICTS[verdict]


def _engine(out: Path, verdict: str, given: Mapping[str, Any]) -> tuple[EngineReport, Exception | None]:
    """Report of the engine of the converted file, and what ended it: the conversion is shown all the same."""
    from truehalf.engines.engine_report import EngineReport

    if verdict == "failed":
        return EngineReport(status="refused", reason="the file failed its verification"), None
    try:
        return engine_of_model(out, default_folder(out), given), None
    except (StageError, ConfigErrors, OSError) as error:
        return EngineReport(status="failed", reason=str(error)), error


def _shared_out(file: ModelFile, given: Mapping[str, Any], preprocessing: Any) -> tuple[Any, Any, Split | None]:
    """Samples to calibrate with, samples to verify with (None: none), and which these are.

    Raises:
        StageError: samples that do not fit the model, or that neither step would use.
    """
    from truehalf.data.model_samples import model_samples
    from truehalf.data.samples import distinct, refuse_nan, split
    from truehalf.io_spec.in_file import given_spec, spec_inside

    if given["spec"] is not None and (given["samples"] is None or given["no_verify"]):
        raise StageError("in-conflict", "--spec says how to verify, and nothing is verified: expected --samples")
    if given["samples"] is None:
        if preprocessing is not None:
            raise StageError("needs-value", "options of images: expected --samples, the images, got none")
        return None, None, None
    calibrated, verified = given["ranges"] is None, not given["no_verify"]
    if not calibrated and not verified:
        raise StageError("in-conflict", "--samples, --ranges and --no-verify: no step would use the samples")
    spec = spec_inside(file.model) if given["spec"] is None else given_spec(given["spec"])
    samples = model_samples(given["samples"], file.model, spec.image_input, preprocessing)
    most = given["calibration_samples"] * calibrated, given["verification_samples"] * verified
    parts = split(distinct(samples), *most)
    calibration, verification = (
        samples.only(sorted(part)) if part else None for part in (parts.calibration, parts.verification)
    )
    if verification is not None and verification.preprocessing is None:  # before a file is written; images hold none
        for sample in verification:
            refuse_nan(sample.arrays, [sample.name])
    return calibration, verification, parts


def _verdict(
    report: Report | None, parts: Split | None, conversion: ConvertReport, given: Mapping[str, Any]
) -> tuple[str, str]:
    """The verdict, and its limit: why nothing was compared, a fault of one sample, too few samples; "": none."""
    if report is None:
        unasked = "not compared: --no-verify" if given["no_verify"] else _NO_SAMPLES[given["ranges"] is not None]
        return "not verified", _fault(conversion.check) or coded("not-asked-for", unasked)
    if not report.passed:
        return report.verdict, ""
    if parts is not None and parts.is_shared:
        return "not verified", coded("too-few-samples", _SHARED)
    if not conversion.cast_cleanup.model["fp16_nodes"]:
        return "not verified", coded("nothing-in-fp16", _NOTHING)
    limits = [up_to(report.plugins)]
    if report.samples < _SAMPLES_MIN:
        few = f"only {report.samples} sample{'s' * (report.samples > 1)}; give {_SAMPLES_MIN} or more"
        limits.append(coded("too-few-samples", few))
    elif report.proposed is not None:
        limits.append(_PROPOSED)
    return "passed", "; ".join(filter(None, limits))


def _refused(out: Path, notes: list[str]) -> str:
    """List the errors of lint in the converted file, as text, "" for none; lint that fails is added to `notes`."""
    from truehalf.ir.model_forms import ModelFile
    from truehalf.patterns import lint
    from truehalf.patterns.report import failing, failure

    findings = attempted("lint of the file", notes.append, lambda: lint(ModelFile(out).typed))
    errors = failing(findings or [], "error")
    text = f"TensorRT builds no engine of it:\n  {failure(errors)}"
    return coded("lint-fails", text) if errors else ""


def _fault(check: QuickCheck | None) -> str:
    """What a quick check has found wrong, and the flags that pin the nodes that cause it; "": nothing."""
    if check is None or (check.state != "failed" and not check.node_block_list):
        return ""
    wrong = "is wrong" if check.state == "failed" else "differs"
    at_fault = f"goes wrong at node {check.first_bad_node!r}" if check.first_bad_node else wrong
    pins = " ".join(f"--node-block-list {shlex.quote(entry)}" for entry in check.node_block_list)
    held = f"with {pins} it is within the tolerance there" if pins else ""
    remedies = "; ".join(filter(None, [check.remedy, held]))
    return f"on {check.sample}, in emulated FP16, the file {at_fault}; {remedies}: {check.reason}"


def _conversion_lines(
    model: Path, out: Path, result: Result[ConvertReport], parts: Split | None, screen: Screen
) -> list[str]:
    """Size, share of FP16, nodes that stay FP32 and samples of a conversion."""
    from truehalf.ir.model_file import model_size_mb

    before, fp16 = result.report.source, result.report.fp16
    after, casts = result.report.cast_cleanup.model, result.report.cast_cleanup.casts_after
    rows = [("size", f"{number(model_size_mb(model))} MB -> {number(model_size_mb(out))} MB")]
    rows.append(("nodes", f"{before['nodes']} -> {after['nodes']}, casts {before['casts']} -> {casts}"))
    if fp16.fp16_arithmetic is not None:
        rows.append(("in FP16", f"{percent(fp16.fp16_arithmetic)} of the arithmetic"))
    if parts is not None:
        used = f"{len(parts.calibration)} calibrated, {len(parts.verification)} verified, of {parts.total}"
        both = "; none in both" if parts.calibration and parts.verification else ""
        rows.append(("samples", f"{used}{'; the same one' if parts.is_shared else both}"))
    return [screen.labelled(*row) for row in rows] + fp32_lines(result.decisions, screen)


def _notes(report: ConvertReport, has_ranges: bool) -> list[str]:
    """What the conversion could not do, and what its user should know."""
    fp16, check, slim = report.fp16, report.check, report.slim
    notes = [f"passed on unchanged: {fp16.reason}"] if fp16.status == "skipped" else []
    notes += [slim.failed] if slim is not None and slim.failed else []
    notes += [fault] if (fault := _fault(check)) else []
    if check is not None and check.state == "not verified" and not check.node_block_list:
        notes.append(f"not checked on {check.sample}: {check.reason}")
    return [*notes, *fp16.not_done, *fp16.warnings, *([_RANGES] if has_ranges else [])]
