"""fp16: an FP32 ONNX file becomes a mixed one, node by node, where lists, weights and measured ranges allow.

python -m stages.fp16                     the stage: artifacts/slim, artifacts/calibrate -> artifacts/fp16
python -m stages.fp16 in.onnx out.onnx --calibration samples.npz --op-block-list Softmax

Under precision.method=half and autocast the stage traces the torch module in FP16 instead
(truehalf/exporting/routes/half_trace.py).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.frame import Stage, run_door, run_stage
from truehalf.cli.conversion_arguments import arguments
from truehalf.config.schema import Method
from truehalf.conversion.options import DEFAULTS, check_names, checked, keywords_of, rules_of, unmatched_wishes
from truehalf.conversion.report import checked_ranges, conversion_report, coverage, facts_of, float_outputs, row
from truehalf.errors import StageError
from truehalf.files import MODEL_FILE, explain, read_json, write_json
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.io_spec.profile_shapes import completed
from truehalf.ir.model_file import PRECISION_KEY, load_model, save_model, source_weights
from truehalf.output_files import written_whole
from truehalf.output_paths import check_outputs

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.data.feeds import Feeds


def to_fp16(
    model_path: Path | str,
    out_path: Path | str,
    *,
    calibration: Path | str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ranges: Mapping[str, Any] | Path | str | None = None,
    keep_io_types: bool | Collection[str] = DEFAULTS["keep_io_types"],
    opset: int | None = DEFAULTS["opset"],
    placement: str = DEFAULTS["placement"],
    fp16_ops: Iterable[str] = tuple(DEFAULTS["fp16_ops"]),
    op_block_list: Iterable[str] = tuple(DEFAULTS["op_block_list"]),
    node_block_list: Iterable[str] = tuple(DEFAULTS["node_block_list"]),
    scope_block_list: Iterable[str] = tuple(DEFAULTS["scope_block_list"]),
    pattern_block_list: Iterable[str] = tuple(DEFAULTS["pattern_block_list"]),
    op_include_list: Iterable[str] = tuple(DEFAULTS["op_include_list"]),
    node_include_list: Iterable[str] = tuple(DEFAULTS["node_include_list"]),
    scope_include_list: Iterable[str] = tuple(DEFAULTS["scope_include_list"]),
    pattern_include_list: Iterable[str] = tuple(DEFAULTS["pattern_include_list"]),
    strict_selectors: bool = DEFAULTS["strict_selectors"],
    rules: str = DEFAULTS["rules"],
    safety_factor: float = DEFAULTS["safety_factor"],
    data_max: float | None = DEFAULTS["data_max"],
    data_max_share: float = DEFAULTS["data_max_share"],
    init_max: float | None = DEFAULTS["init_max"],
    init_overflow: str = DEFAULTS["init_overflow"],
    init_conversion_max_bytes: int | None = DEFAULTS["init_conversion_max_bytes"],
    inner: bool = DEFAULTS["inner"],
    integers: bool = DEFAULTS["integers"],
    masks: bool = DEFAULTS["masks"],
    underflow_share_max: float | None = DEFAULTS["underflow_share_max"],
    reduction_depth_max: int | None = DEFAULTS["reduction_depth_max"],
    custom_rule: str | None = DEFAULTS["custom_rule"],
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    decisions_path: Path | str | None = None,
) -> dict[str, Any]:
    """Convert an FP32 ONNX file to FP16, leaving FP32 what must stay so.

    Defaults, and what each key means, stand in conf/precision/fp16.yaml.

    Args:
        model_path, out_path: ONNX files, any opset, not the same; large weights go to <out>.data. A file that this
            function wrote is passed on unchanged.
        calibration: samples to measure ranges on: an .npz file, a folder of them, Polygraphy's JSON, arrays by input
            name, or a list of such mappings. An array of the input's own rank is one feed; with one more leading axis
            it is a stack of them (truehalf.data.feeds).
        ranges: instead of `calibration`: content or path of a ranges.json (stages.calibrate). With neither, rules on
            ranges judge nothing (said in not_done).
        keep_io_types: float32 graph inputs and outputs that stay float32: all, none, or those named.
        opset: raise the model to this opset first; None: its own.
        placement: "min_cut" (the cheapest casts) or "eager" (all that no rule keeps out).
        fp16_ops: op types that run in FP16 unless a rule or a list keeps them out.
        *_block_list, *_include_list: nodes that stay FP32, or go FP16 though a candidate rule or a block list speaks
            against it: op types, regular expressions over node names, module scopes, patterns (truehalf.ir.selectors).
        strict_selectors: an entry that matches nothing is an error.
        rules: "default", or "autocast": data_max, init_max and the lists alone.
        safety_factor: 1 or more; |x| * safety_factor > 65504 pins whoever reads or writes x.
        data_max, init_max: largest |x| of tensors and weights for FP16, above 0 and at most 65504; None: off.
        data_max_share: 0 to 1; data_max holds when more than this share of a tensor's elements is above it.
        init_overflow: "pin" or "clamp" (weights beyond 65504 become 65504, and are judged as that).
        init_conversion_max_bytes: larger weights stay float32 in the file and are cast at run time; None: none.
        inner, integers, masks: switch these rules (truehalf.conversion.decide).
        underflow_share_max: 0 to 1; None: off.
        reduction_depth_max: terms that one output element adds up; None: off.
        custom_rule: "module:function"; the function takes a node (onnx_ir.Node) and the ranges, and returns a reason to
            keep the node FP32, or None.
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
        StageError: bad options (all of them listed), a bad file, calibration or ranges, an output that is no regular
            file, an input or another output, an opset that cannot be converted, a graph with a cycle.
    """
    options = {name: value for name, value in locals().items() if name in DEFAULTS}
    from truehalf.conversion.halve import halve
    from truehalf.ir.opset import to_opset
    from truehalf.ir.ready import make_ready

    if calibration is not None and ranges is not None:
        raise StageError(
            "in-conflict",
            "calibration and ranges: expected one of them, got both; ranges are what calibration measures",
        )
    precision = checked(options)
    rules_in_force = rules_of(precision)
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
    make_ready(model)
    wishes, lines = unmatched_wishes(model, precision)
    feeds = _feeds(model, calibration)
    statistics = _ranges(ranges) if feeds is None else _measured(model, feeds)
    if feeds is not None and input_shapes is None:
        input_shapes = {name: array.shape for name, array in next(iter(feeds)).items()}
    measured = coverage(float_outputs(model), statistics)
    halved = halve(
        model,
        statistics,
        rules_in_force,
        placement=precision.placement.value,
        keep_io_types=precision.keep_io_types,
        init_conversion_max_bytes=precision.init_conversion_max_bytes,
        input_shapes=input_shapes,
    )
    _restate_io(model)
    model.metadata_props[PRECISION_KEY] = (
        f"fp16 by truehalf, rules {precision.rules.value}, placement {precision.placement.value}"
    )
    save_model(model, out_path)
    rows = [row(node, decision, halved) for node, decision in halved.decisions.nodes.items()]
    _write_decisions(decisions_path, rows)
    facts = facts_of(model, out_path)
    report = conversion_report(rows, halved, rules_in_force, measured)
    report["unmatched_selectors"] += [str(wish) for wish in wishes]
    return report | {
        "placement": precision.placement.value,
        "fp16_fraction": facts["fp16_fraction"],
        "warnings": [*notes, *lines, *(statistics or {}).get("warnings", []), *halved.decisions.warnings],
        "model": facts,
    }


def _no_work(model: ir.Model) -> str | None:
    """Why a model is passed on as it is; None when there is something to convert."""
    from truehalf.ir.ready import make_ready

    if stamp := model.metadata_props.get(PRECISION_KEY):
        return f"the file says that it was converted before ({stamp}); convert the FP32 file to change anything"
    if "FLOAT16" in _types(model) and "FLOAT" not in _types(model):
        typed = model.clone()
        make_ready(typed)  # what a file says of its tensors' types may be less than all
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


def _feeds(model: ir.Model, calibration: Any) -> Feeds | None:
    from truehalf.data.feeds import load_feeds

    return None if calibration is None else load_feeds(calibration, model)


def _measured(model: ir.Model, feeds: Feeds) -> dict[str, Any]:
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


# --- the stage --------------------------------------------------------------------------------------------------------


def run(stage: Stage) -> dict[str, Any]:
    config = stage.config
    if config.precision.dtype.value != "fp16":
        return _pass_on(stage)
    spec = read_json(stage.artifact("trace", "io_spec.json"))
    opt = {name: shapes["opt"] for name, shapes in completed(config.engine.profiles, spec["inputs"])[0].items()}
    if config.precision.method is not Method.convert:
        return _trace(stage, spec, opt)
    return to_fp16(
        stage.artifact("slim"),
        stage.out() / MODEL_FILE,
        ranges=stage.artifact("calibrate", "ranges.json"),
        input_shapes=opt,
        decisions_path=stage.out() / "decisions.json",
        **keywords_of(config.precision) | asdict(config.pins),
    )


def _trace(stage: Stage, spec: Mapping[str, Any], opt: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The other two routes: the module itself in FP16, traced and slimmed."""
    from truehalf.exporting.routes.half_trace import trace_in_fp16
    from truehalf.models.source import dynamic_axes_of, open_model

    config = stage.config
    model = open_model(config, stage.root)
    report, rows = trace_in_fp16(
        model,
        _example(stage, spec, model.batch or config.trace.input_shape[0] or 1),
        stage.out() / MODEL_FILE,
        method=config.precision.method.value,
        spec=spec,
        exporter=config.trace.exporter.value,
        opset=config.trace.opset,
        dynamic_axes=dynamic_axes_of(config, model),
        keep_io_types=config.precision.keep_io_types,
        raise_opset=config.precision.opset,
        skip_patterns=config.slim.skip_patterns,
        repair=config.repair.passes,
        input_shapes=opt,
    )
    write_json(stage.out() / "decisions.json", rows)
    if pinned := [f"{name}={entries}" for name, entries in asdict(config.pins).items() if entries]:
        report["not_done"].append(
            f"pins of the model and its decoder, without effect under precision.method={report['method']}: "
            f"{', '.join(pinned)}"
        )
    return report


def _example(stage: Stage, spec: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """A batch of the samples that trace has traced on."""
    from truehalf.data.samples import TRACE_SAMPLES, stacked, trace_samples

    samples = trace_samples(stage.config, min(batch, TRACE_SAMPLES // 2), stage.root, spec)
    return stacked([samples[i % len(samples)] for i in range(batch)])


def _pass_on(stage: Stage) -> dict[str, Any]:
    from truehalf.conversion.place import Cost
    from truehalf.ir.normalize import infer_types

    source = stage.artifact("slim")
    shutil.copytree(source.parent, stage.out(), ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    write_json(stage.out() / "decisions.json", [])
    model = load_model(source)
    infer_types(model)
    return {
        "status": "skipped",
        "reason": f"precision={stage.config.precision.dtype.value}: the file is passed on as it is",
        "fp16_arithmetic": 0.0,
        "costs": dict.fromkeys(("placed", "naive"), asdict(Cost(0, 0, 0, 0))),
        "model": facts_of(model, source),
    }


def main() -> None:
    if len(sys.argv) == 1:
        run_stage("fp16", run)
        return
    run_door("fp16", to_fp16, arguments(sys.argv[1:]))


if __name__ == "__main__":
    main()
