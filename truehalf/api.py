"""Public API: seven functions and `Precision`, on paths and on models in memory alike.

    from truehalf import Precision, calibrate, clean_casts, compare, convert, export, lint, repair

A model is a path, an `onnx.ModelProto` or an `onnx_ir.Model`; where no path to write is given, the result is only
returned. Samples are a folder of images, an .npz file or a folder of them, Polygraphy's JSON, arrays by input name, or
an iterable of such mappings. Every function raises `truehalf.errors.StageError` for errors that the caller can fix,
with a stable `code`, and OSError where the system refuses a file; files are written whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from truehalf.config.precision import Method, Precision
from truehalf.config.schema import DEFAULT_PASSES, TraceConfig
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import torch as torch_

    from truehalf.calibration.ranges_form import RangesJson
    from truehalf.conversion.report import CastsReport, ConvertReport, Decision
    from truehalf.exporting.trace_report import TraceReport
    from truehalf.ir.model_forms import Model
    from truehalf.patterns import RepairReport
    from truehalf.patterns.report import LintReport
    from truehalf.verification.report import Report

__all__ = ["Precision", "calibrate", "clean_casts", "compare", "convert", "export", "lint", "repair"]

_SKIPPABLE = ("slim", "check")  # steps of `convert`
_COMPARED = 4  # samples that slimming is compared on
R = TypeVar("R", "ConvertReport", "CastsReport", "TraceReport", "RepairReport")


@dataclass(frozen=True)
class Result(Generic[R]):
    """A model that was made, and how.

    Attributes:
        model: in memory; where a file was written, it is read from there when it is first asked for.
        report: ConvertReport, CastsReport, TraceReport or RepairReport, by the function; each has to_json().
        decisions: of `convert`: a row for each node.
    """

    _made: Path | ir.Model = field(repr=False)
    report: R
    decisions: Sequence[Decision] = field(default=())

    @cached_property
    def model(self) -> ir.Model:
        from truehalf.ir.model_forms import as_ir

        return as_ir(self._made) if isinstance(self._made, Path) else self._made


def convert(
    model: Model,
    out: Path | str | None = None,
    *,
    samples: Any = None,
    ranges: Mapping[str, object] | Path | str | None = None,
    preprocessing: JsonObject | Path | str | None = None,
    skip: Collection[str] = (),
    precision: Precision | None = None,
) -> Result[ConvertReport]:
    """FP32 -> mixed FP16: slimmed and repaired, calibrated, converted node by node, freed of needless Casts.

    Args:
        model: FP32, any opset.
        out: ONNX file to write, another one than `model`'s.
        samples: real inputs to measure ranges on; with neither, their rules judge nothing (report.fp16.not_done).
        ranges: what `calibrate` has returned, or the path of its JSON, instead of samples; nothing is slimmed then.
        preprocessing: of images: mapping, or a YAML or JSON file; None: what the model's I/O spec says.
        skip: steps to leave out. "slim": onnxslim and the repairs, which ranges and weights_as_inputs leave out, too;
            report.slim names what it left out, as it changes outputs on the samples, and why. "check": the run of some
            samples, or a drawn one, in emulated FP16, and the conversion with the pins that it finds; report.check.
        precision: options; None: the defaults.

    Raises:
        StageError: options, a model, samples or ranges that do not fit, a file that cannot be written.
    """
    from truehalf.conversion.casts_of_file import write_converted
    from truehalf.conversion.options import check_names
    from truehalf.conversion.report import ConvertReport
    from truehalf.data.model_samples import model_samples
    from truehalf.data.samples import Feeds
    from truehalf.files import check_outputs
    from truehalf.io_spec.in_file import spec_inside
    from truehalf.ir.facts import fixed_batch, model_facts
    from truehalf.ir.inlining import WeightsApart
    from truehalf.ir.model_file import source_weights
    from truehalf.ir.model_forms import as_file, folder_for_models
    from truehalf.ir.proto.plugins import as_in_file
    from truehalf.progress import step
    from truehalf.slimming.slim import slim_or_keep
    from truehalf.verification.chain.quick_check import check_conversion
    from truehalf.verification.pinning.reconversion import Reconversion

    precision = precision or Precision()
    if precision.method is not Method.convert:
        traced = f"precision.method={precision.method.value} traces a torch module; expected convert, for an ONNX model"
        raise StageError("not-supported", f"{traced}. `python -m pipeline precision.method=...` traces")
    if samples is not None and ranges is not None:
        raise StageError("in-conflict", "samples and ranges: expected one of them, got both; ranges come of samples")
    if preprocessing is not None and samples is None:
        raise StageError("needs-value", "preprocessing: expected samples, the images that it prepares, got none")
    if unknown := sorted({*skip} - {*_SKIPPABLE}):
        raise StageError("unknown-choice", f"skip: expected some of {', '.join(_SKIPPABLE)}, got {', '.join(unknown)}")
    with folder_for_models() as folder:
        file, target = as_file(model, folder), Path(folder, "made.onnx") if out is None else Path(out)
        source = file.model
        if out is not None:
            read = {"model": file.path, "samples": samples, "ranges": ranges, "preprocessing": preprocessing}
            check_outputs({"out": out}, read, source_weights(source))
        before, slim_report = model_facts(as_in_file(source)), None
        check_names(source, precision)  # before the work
        is_slimmed = "slim" not in skip and ranges is None and not precision.weights_as_inputs
        if is_slimmed:
            WeightsApart()(source)  # feeds hold no weights
        used, compared = None, []
        if samples is not None:
            used = model_samples(samples, source, spec_inside(source).image_input, preprocessing)
            compared = Feeds(used, fixed_batch(source))[:_COMPARED]
        slim = partial(slim_or_keep, check_feeds=compared)
        if is_slimmed:
            with step("slim"):
                source, slim_report = slim(file)
        made, cleaned = write_converted(source, target, precision, ranges, calibration=used)
        report = ConvertReport({name: before[name] for name in ("nodes", "casts")}, slim_report, made.report(), cleaned)
        if "check" not in skip and made.is_converted:
            conversion = Reconversion(precision, made.ranges, None)
            checked = check_conversion(file.path, target, used, conversion, slim if is_slimmed else None)
            made, cleaned = checked.made or (made, cleaned)
            report = replace(report, fp16=made.report(), cast_cleanup=cleaned, check=checked.check)
        return Result(_result(target, out), report, made.decisions)


def _result(written: Path, out: Path | str | None) -> Path | ir.Model:
    """What a Result is made of: the file, or its content where it will go, weights included."""
    import onnx_ir as ir

    from truehalf.ir.model_forms import as_ir

    return ir.external_data.load_to_model(as_ir(written)) if out is None else written


def calibrate(model: Model, samples: Any, *, preprocessing: JsonObject | Path | str | None = None) -> RangesJson:
    """Ranges of every float32 tensor inside a model, over real inputs.

    Args:
        model: FP32; the file that is to be converted, as it stands.
        samples: see `convert`.
        preprocessing: of images; None: what the model's I/O spec says.

    Returns:
        a mapping for JSON, see truehalf.calibration.calibrate.calibrate; `convert(..., ranges=...)` takes it.

    Raises:
        StageError: a model or samples that do not fit, an output that is not finite.
    """
    from truehalf.calibration.calibrate import calibrate as measured
    from truehalf.data.model_samples import model_samples
    from truehalf.data.samples import Feeds
    from truehalf.io_spec.in_file import spec_inside
    from truehalf.ir.facts import fixed_batch
    from truehalf.ir.model_forms import as_file, folder_for_models
    from truehalf.ir.normalize import PREPARE

    with folder_for_models() as folder:
        loaded = as_file(model, folder).model
        used = model_samples(samples, loaded, spec_inside(loaded).image_input, preprocessing)
        batch = fixed_batch(loaded)
        PREPARE(loaded)
        return measured(loaded, Feeds(used, batch))


def clean_casts(
    model: Model, out: Path | str | None = None, *, strict: bool = False, fold_max_bytes: int | None = None
) -> Result[CastsReport]:
    """A model without the Casts that can go, whichever tool has put them there.

    Args:
        model: any ONNX model.
        out: ONNX file to write.
        strict: keep to the rules that change no value; otherwise f32 -> f16 -> f32 loses its rounding.
        fold_max_bytes: the Cast of a larger constant is left to the runtime; None: all are folded.

    Raises:
        StageError: a file that cannot be read or written, a graph with a cycle.
    """
    from truehalf.conversion.casts_of_file import clean_casts as clean
    from truehalf.ir.model_forms import as_file, folder_for_models

    with folder_for_models() as folder:
        source, target = as_file(model, folder), Path(folder, "clean.onnx") if out is None else Path(out)
        report = clean(source.path, target, strict=strict, fold_max_bytes=fold_max_bytes)
        return Result(_result(target, out), report)


def compare(
    reference: Model,
    candidate: Model,
    samples: Any,
    *,
    spec: JsonObject | Path | str | None = None,
    preprocessing: JsonObject | Path | str | None = None,
    locate: bool | str = True,
    options: VerifyConfig | None = None,
) -> Report:
    """Whether a model computes what its FP32 reference computes, with FP16 emulated on the CPU.

    Args:
        reference, candidate: of the same inputs and outputs; float16 against float32 is no difference.
        samples: inputs that neither was made with.
        spec: I/O spec; None: the reference's own, else a proposed one (report.proposed); {}: outputs are plain tensors.
        preprocessing: of images; None: what the I/O spec says.
        locate: look for the node where it goes wrong: True (unless it passed), False or "always".
        options: evaluation, thresholds, batch and gates; gates.tensor_rms_max is the floor of the yardstick.

    Returns:
        Report: verdict ("passed", "failed" or "not verified"), reasons, errors by output, what could not be verified.

    Raises:
        StageError: models of different interfaces, samples that do not fit, a model that cannot be run.
    """
    from truehalf.ir.model_forms import as_file, folder_for_models
    from truehalf.verification.chain.compare import compare as compared

    with folder_for_models() as folder:
        first = as_file(reference, folder, "reference").path  # opened anew: convert changes what a ModelFile holds
        second = as_file(candidate, folder, "candidate").path
        return compared(first, second, samples, spec=spec, preprocessing=preprocessing, locate=locate, options=options)


def export(
    module: torch_.nn.Module | str,
    out: Path | str | None = None,
    *,
    samples: Mapping[str, np.ndarray] | Iterable[Mapping[str, np.ndarray]],
    outputs: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    options: TraceConfig | None = None,
) -> Result[TraceReport]:
    """A torch module as FP32 ONNX, compared with it on every sample.

    Args:
        module: in eval mode; or "module:function" that returns one.
        out: ONNX file to write.
        samples: arrays by input name, batch axis included; traced on the first, compared on all.
        outputs: names, in the order in which the module returns its tensors; None: its keys, or output_0, ...
        dynamic_axes: {input or output: {axis: symbol}}; None: the first axis of every input varies.
        options: exporter, opset and tolerance.

    Raises:
        StageError: a module that cannot be imported, fails, or whose file computes something else.
    """
    from truehalf.exporting.module import export_module, made
    from truehalf.ir.model_forms import folder_for_models

    network = made(module, Path.cwd()) if isinstance(module, str) else module
    given: Any = samples if isinstance(samples, Iterable) and not isinstance(samples, Mapping) else [samples]
    with folder_for_models() as folder:
        target = Path(folder, "model.onnx") if out is None else Path(out)
        report = export_module(
            network, target, list(given), outputs=outputs, dynamic_axes=dynamic_axes, options=options
        )
        return Result(_result(target, out), report)


def lint(
    model: Model,
    *,
    tensorrt: str | None = None,
    ignore: Sequence[str] = (),
    plugin_ops: Collection[str] = (),
) -> LintReport:
    """What TensorRT refuses, computes wrongly or runs slowly, in a model.

    Args:
        model: any ONNX model; it is only read.
        tensorrt: "10", "11.4", ...: the version that is to build it; None: 10.16 and 11.4.
        ignore: "rule", or "rule@<regular expression on node name or scope>".
        plugin_ops: operator types that plugins bring along, as Op or domain::Op.

    Raises:
        StageError: when the model cannot be read, or an option is none.
    """
    from truehalf.patterns.report import lint_report

    return lint_report(model, tensorrt, ignore, plugin_ops)


def repair(
    model: Model, out: Path | str | None = None, *, passes: Sequence[str] = DEFAULT_PASSES
) -> Result[RepairReport]:
    """A model whose TensorRT-hostile patterns are replaced by equal ones.

    Args:
        model: any ONNX model.
        out: ONNX file to write.
        passes: names, in the order in which they run.

    Raises:
        StageError: a pass that is unknown, a graph with a cycle, a file that cannot be read or written.
    """
    from truehalf.files import check_outputs
    from truehalf.ir.model_file import save_model, source_weights
    from truehalf.ir.model_forms import as_ir
    from truehalf.patterns import repair as repaired

    loaded = as_ir(model)
    if out is not None:
        check_outputs({"out": out}, {"model": model}, source_weights(loaded))
    report = repaired(loaded, passes)
    if out is not None:
        save_model(loaded, out)
    return Result(loaded, report)
