"""Conversion of a file: FP32 ONNX -> mixed ONNX, node by node, where lists, weights and measured ranges allow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.config.precision import Precision
from truehalf.conversion.options import check_names, unmatched_fp16_ops
from truehalf.conversion.report import checked_ranges, conversion_report, coverage, facts_of, float_outputs, row
from truehalf.errors import StageError
from truehalf.files import explain, read_json, write_json
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.ir.model_file import PRECISION_KEY, load_model, save_model, source_weights
from truehalf.output_files import written_whole
from truehalf.output_paths import check_outputs
from truehalf.progress import step

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.data.given import Given


def to_fp16(
    model_path: Path | str,
    out_path: Path | str,
    precision: Precision | None = None,
    *,
    calibration: Any = None,
    ranges: Mapping[str, Any] | Path | str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    decisions_path: Path | str | None = None,
) -> dict[str, Any]:
    """Convert an FP32 ONNX file to FP16, leaving FP32 what must stay so.

    Args:
        model_path, out_path: ONNX files, any opset, not the same; large weights go to <out>.data. A file that this
            function wrote is passed on unchanged.
        precision: options; None: the defaults.
        calibration: samples to measure ranges on, see truehalf.data.given.given_samples. An array of the input's own
            rank is one feed; with one more leading axis it is a stack of them.
        ranges: instead of `calibration`: content or path of a ranges.json (truehalf.calibration.calibrate). With
            neither, rules on ranges judge nothing (reported in not_done).
        input_shapes: by graph input, the shape at which costs of casts are compared; None: those of the first sample of
            `calibration`. Symbolic dimensions that neither binds count 1.
        decisions_path: where to write a JSON list with the decision for each node.

    Returns:
        A report: status ("done"), verdicts (nodes by rule), fp32_nodes_total, fp32_nodes (the first
        20, each with its reason), fp16_fraction (of float nodes), fp16_arithmetic (of floating-point operations),
        placement, costs (cost, casts and their bytes, as placed and if placed naively), casts_to_fp16, casts_to_fp32,
        weights (counts), masks (each with what became of it), ranges (tensors judged, tensors without a range),
        unmatched_selectors, warnings, not_done (what was asked for and could not be done), model (facts, size_mb).

        A file that was converted before, or holds float16 and no float32, is passed on: status ("passed on"), reason,
        warnings, not_done and model are then the whole report, and decisions_path gets an empty list.

    Raises:
        StageError: options that do not fit the model (all of them listed), a bad file, calibration or ranges, an output
            that is no regular file, an input or another output, an opset that cannot be converted, a graph with a
            cycle.
    """
    from truehalf.conversion.convert import convert_to_fp16
    from truehalf.conversion.rules.custom import custom_rule_of
    from truehalf.ir.opset import to_opset
    from truehalf.ir.ready import prepare

    if calibration is not None and ranges is not None:
        raise StageError(
            "in-conflict",
            "calibration and ranges: expected one of them, got both; ranges are what calibration measures",
        )
    precision = precision or Precision()
    if precision.custom_rule is not None:
        custom_rule_of(precision.custom_rule)  # before the work
    model = load_model(model_path)
    check_names(model, precision, input_shapes)
    check_outputs(
        {"out_path": out_path, "decisions_path": decisions_path},
        {"model_path": model_path, "calibration": calibration, "ranges": ranges},
        source_weights(model),
    )
    if reason := _no_work(model):
        return _passed_on(model, Path(model_path), Path(out_path), reason, decisions_path)
    model, notes = to_opset(model, precision.opset)
    prepare(model)
    unmatched, lines = unmatched_fp16_ops(model, precision)
    feeds = _feeds(model, calibration)
    statistics = _ranges(ranges) if feeds is None else _measured(model, feeds)
    if feeds is not None and input_shapes is None:
        input_shapes = {name: array.shape for name, array in next(iter(feeds)).items()}
    measured = coverage(float_outputs(model), statistics)
    with step("convert"):
        result = convert_to_fp16(model, statistics, precision, input_shapes)
    _restate_io(model)
    model.metadata_props[PRECISION_KEY] = (
        f"fp16 by truehalf, rules {precision.rules.value}, placement {precision.placement.value}"
    )
    save_model(model, out_path)
    rows = [row(node, decision, result) for node, decision in result.decisions.nodes.items()]
    _write_decisions(decisions_path, rows)
    facts = facts_of(model, out_path)
    report = conversion_report(rows, result, precision, measured)
    report["unmatched_selectors"] += [str(each) for each in unmatched]
    return report | {
        "placement": precision.placement.value,
        "fp16_fraction": facts["fp16_fraction"],
        "warnings": [*notes, *lines, *(statistics or {}).get("warnings", []), *result.decisions.warnings],
        "model": facts,
    }


def _no_work(model: ir.Model) -> str | None:
    """Why a model is passed on as it is; None when there is something to convert."""
    from truehalf.ir.ready import prepare

    if stamp := model.metadata_props.get(PRECISION_KEY):
        return f"the file says that it was converted before ({stamp}); convert the FP32 file to change anything"
    if "FLOAT16" in _types(model) and "FLOAT" not in _types(model):
        typed = model.clone()
        prepare(typed)  # what a file says of its tensors' types may be less than all
        if "FLOAT" not in _types(typed):
            return "the file is FP16 already: it holds float16 tensors and no float32 one"
    return None


def _types(model: ir.Model) -> set[str]:
    return {value.dtype.name for graph in model.graphs() for value in _values(graph) if value.dtype is not None}


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(output for node in graph for output in node.outputs)]


def _passed_on(
    model: ir.Model, source: Path, out: Path, reason: str, decisions_path: Path | str | None
) -> dict[str, Any]:
    from truehalf.ir.normalize import infer_types

    _copy(model, source, out)
    _write_decisions(decisions_path, [])
    infer_types(model)
    return {"status": "passed on", "reason": reason, "warnings": [], "not_done": [], "model": facts_of(model, out)}


def _copy(model: ir.Model, source: Path, out: Path) -> None:
    """The same bytes; with external data, which is named after its model, the same tensors."""
    if source_weights(model):
        save_model(model, out)
        return
    try:
        with written_whole(out) as building:
            shutil.copyfile(source, building)
    except OSError as error:
        raise StageError("file-unwritable", f"{out}: {explain(error)}") from error


def _write_decisions(path: Path | str | None, rows: list[dict[str, Any]]) -> None:
    if path is None:
        return
    try:
        write_json(Path(path), rows)
    except OSError as error:
        raise StageError("file-unwritable", f"{path}: {explain(error)}") from error


def _feeds(model: ir.Model, calibration: Any) -> Given | None:
    from truehalf.data.given import given_samples

    return None if calibration is None else given_samples(calibration, model)


def _measured(model: ir.Model, feeds: Given) -> dict[str, Any]:
    from truehalf.calibration.calibrate import calibrate

    return calibrate(model, feeds, nonfinite_outputs="warn")


def _ranges(ranges: Mapping[str, Any] | Path | str | None) -> Mapping[str, Any] | None:
    content = read_json(Path(ranges)) if isinstance(ranges, (str, Path)) else ranges
    return None if content is None else checked_ranges(content)


def _restate_io(model: ir.Model) -> None:
    """Make the I/O specification that travels with the model say float16 where the model now does."""
    text = model.metadata_props.get(SPEC_KEY)
    if text is None:
        return
    spec = json.loads(text)
    types = {value.name: value.dtype for value in [*model.graph.inputs, *model.graph.outputs]}
    for entry in [*spec.get("inputs", []), *spec.get("outputs", [])]:
        dtype = types.get(entry["name"])
        if dtype is not None:
            entry["dtype"] = {"FLOAT": "float32", "FLOAT16": "float16"}.get(dtype.name, dtype.name.lower())
    model.metadata_props[SPEC_KEY] = json.dumps(spec)
