"""fp16: an FP32 ONNX file becomes a mixed one, node by node, where lists, weights and measured ranges allow.

python -m stages.fp16                     the stage: artifacts/slim, artifacts/calibrate -> artifacts/fp16
python -m stages.fp16 in.onnx out.onnx --calibration samples.npz --op-block-list Softmax
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from conf.schema import CONF, PrecisionConfig
from stages.io import MODEL_FILE, Stage, StageError, defaults, read_json, run_stage, write_json
from stages.onnx_files import load_model, model_size_mb, save_model

if TYPE_CHECKING:
    import onnx_ir as ir

    from stages.graph.decide import Decision, Rules
    from stages.graph.halve import Halved

_DEFAULTS = {key: value for key, value in defaults("precision/fp16").items() if key != "dtype"}
_IO_SPEC = "truehalf.io_spec"
_STAMP = "truehalf.precision"
_LISTED_NODES = 20


def to_fp16(
    model_path: Path | str,
    out_path: Path | str,
    *,
    calibration: Path | str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ranges: Mapping[str, Any] | Path | str | None = None,
    keep_io_types: bool | Collection[str] = _DEFAULTS["keep_io_types"],
    opset: int | None = _DEFAULTS["opset"],
    placement: str = _DEFAULTS["placement"],
    fp16_ops: Iterable[str] = tuple(_DEFAULTS["fp16_ops"]),
    op_block_list: Iterable[str] = tuple(_DEFAULTS["op_block_list"]),
    node_block_list: Iterable[str] = tuple(_DEFAULTS["node_block_list"]),
    scope_block_list: Iterable[str] = tuple(_DEFAULTS["scope_block_list"]),
    pattern_block_list: Iterable[str] = tuple(_DEFAULTS["pattern_block_list"]),
    op_include_list: Iterable[str] = tuple(_DEFAULTS["op_include_list"]),
    node_include_list: Iterable[str] = tuple(_DEFAULTS["node_include_list"]),
    scope_include_list: Iterable[str] = tuple(_DEFAULTS["scope_include_list"]),
    pattern_include_list: Iterable[str] = tuple(_DEFAULTS["pattern_include_list"]),
    strict_selectors: bool = _DEFAULTS["strict_selectors"],
    rules: str = _DEFAULTS["rules"],
    safety_factor: float = _DEFAULTS["safety_factor"],
    data_max: float | None = _DEFAULTS["data_max"],
    data_max_share: float = _DEFAULTS["data_max_share"],
    init_max: float | None = _DEFAULTS["init_max"],
    init_overflow: str = _DEFAULTS["init_overflow"],
    init_conversion_max_bytes: int | None = _DEFAULTS["init_conversion_max_bytes"],
    inner: bool = _DEFAULTS["inner"],
    integers: bool = _DEFAULTS["integers"],
    masks: bool = _DEFAULTS["masks"],
    underflow_share_max: float | None = _DEFAULTS["underflow_share_max"],
    reduction_depth_max: int | None = _DEFAULTS["reduction_depth_max"],
    custom_rule: str | None = _DEFAULTS["custom_rule"],
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    decisions_path: Path | str | None = None,
) -> dict[str, Any]:
    """Convert an FP32 ONNX file to FP16, leaving FP32 what must stay so.

    Defaults, and what each key means, stand in conf/precision/fp16.yaml.

    Args:
        model_path, out_path: ONNX files, any opset; large weights go to <out>.data. A file that this function wrote is
            passed on unchanged.
        calibration: samples to measure ranges on: an .npz file, a folder of them, Polygraphy's JSON, arrays by input
            name, or a list of such mappings. An array of the input's own rank is one feed; with one more leading axis
            it is a stack of them (stages.data.feeds).
        ranges: instead of `calibration`: content or path of a ranges.json (stages.calibrate). With neither, rules on
            ranges judge nothing (said in not_done).
        keep_io_types: float32 graph inputs and outputs that stay float32: all, none, or those named.
        opset: raise the model to this opset first; None: its own.
        placement: "min_cut" (the cheapest casts) or "eager" (all that no rule keeps out).
        fp16_ops: op types that run in FP16 unless a rule or a list keeps them out.
        *_block_list, *_include_list: nodes that stay FP32, or go FP16 though a candidate rule or a block list speaks
            against it: op types, regular expressions over node names, module scopes, patterns (stages.graph.selectors).
        strict_selectors: an entry that matches nothing is an error.
        rules: "default", or "autocast": data_max, init_max and the lists alone.
        safety_factor: 1 or more; |x| * safety_factor > 65504 pins whoever reads or writes x.
        data_max, init_max: largest |x| of tensors and weights for FP16, above 0 and at most 65504; None: off.
        data_max_share: 0 to 1; data_max holds when more than this share of a tensor's elements is above it.
        init_overflow: "pin" or "clamp" (weights beyond 65504 become 65504, and are judged as that).
        init_conversion_max_bytes: larger weights stay float32 in the file and are cast at run time; None: none.
        inner, integers, masks: switch these rules (stages.graph.decide).
        underflow_share_max: 0 to 1; None: off.
        reduction_depth_max: terms that one output element adds up; None: off.
        custom_rule: "module:function"; the function takes a node (onnx_ir.Node) and the ranges, and returns a reason to
            keep the node FP32, or None.
        input_shapes: by graph input, the shape at which costs of casts are compared; symbolic dimensions that it does
            not bind count 1.
        decisions_path: where to write a JSON list with the decision for each node.

    Returns:
        status ("done", or "passed on" with a reason), verdicts (nodes by rule), fp32_nodes_total, fp32_nodes (the first
        20, each with its reason), fp16_fraction (of float nodes), fp16_arithmetic (of floating-point operations),
        placement, costs (cost, casts and their bytes, as placed and if placed naively), casts_to_fp16, casts_to_fp32,
        weights (counts), masks (each with what became of it), ranges (tensors judged, tensors without a range),
        unmatched_selectors, warnings, not_done (what was asked for and could not be done), model (facts, size_mb).

    Raises:
        StageError: bad file, calibration, ranges or selector, an opset that cannot be converted, a graph with a cycle.
    """
    from stages.graph.decide import Lists, Rules
    from stages.graph.halve import halve
    from stages.graph.opset import to_opset
    from stages.graph.ready import make_ready
    from stages.graph.rules.custom import custom_rule_of

    if calibration is not None and ranges is not None:
        raise StageError("calibration and ranges: expected one of them, got both; ranges are what calibration measures")
    model = load_model(model_path)
    if reason := _no_work(model):
        return _passed_on(model, Path(model_path), Path(out_path), reason, decisions_path)
    model, notes = to_opset(model, opset)
    make_ready(model)
    statistics = _ranges(ranges) if calibration is None else _measured(model, calibration)
    settings = Rules(
        block=Lists(tuple(op_block_list), tuple(node_block_list), tuple(scope_block_list), tuple(pattern_block_list)),
        include=Lists(
            tuple(op_include_list), tuple(node_include_list), tuple(scope_include_list), tuple(pattern_include_list)
        ),
        fp16_ops=tuple(fp16_ops),
        strict_selectors=strict_selectors,
        rules=rules,
        safety_factor=safety_factor,
        data_max=data_max,
        data_max_share=data_max_share,
        init_max=init_max,
        init_overflow=init_overflow,
        inner=inner,
        integers=integers,
        masks=masks,
        underflow_share_max=underflow_share_max,
        reduction_depth_max=reduction_depth_max,
        custom_rule=custom_rule_of(custom_rule) if custom_rule else None,
    )
    halved = halve(
        model,
        statistics,
        settings,
        placement=placement,
        keep_io_types=keep_io_types,
        init_conversion_max_bytes=init_conversion_max_bytes,
        input_shapes=input_shapes,
    )
    _restate_io(model)
    model.metadata_props[_STAMP] = f"fp16 by truehalf, rules {rules}, placement {placement}"
    save_model(model, out_path)
    rows = [_row(node, decision, halved) for node, decision in halved.decisions.nodes.items()]
    if decisions_path is not None:
        write_json(Path(decisions_path), rows)
    facts = _facts(model, out_path)
    return _report(rows, halved, settings, statistics, placement) | {
        "fp16_fraction": facts["fp16_fraction"],
        "warnings": [*notes, *(statistics or {}).get("warnings", []), *halved.decisions.warnings],
        "model": facts,
    }


def _no_work(model: ir.Model) -> str | None:
    """Why a model is passed on as it is; None when there is something to convert."""
    if stamp := model.metadata_props.get(_STAMP):
        return f"the file says that it was converted before ({stamp}); convert the FP32 file to change anything"
    types = {value.dtype.name for graph in model.graphs() for value in _values(graph) if value.dtype is not None}
    if "FLOAT16" in types and "FLOAT" not in types:
        return "the file is FP16 already: it holds float16 tensors and no float32 one"
    return None


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(output for node in graph for output in node.outputs)]


def _passed_on(
    model: ir.Model, source: Path, out: Path, reason: str, decisions_path: Path | str | None
) -> dict[str, Any]:
    from stages.graph.normalize import infer_types

    _copy(model, source, out)
    if decisions_path is not None:
        write_json(Path(decisions_path), [])
    infer_types(model)
    return {"status": "passed on", "reason": reason, "warnings": [], "not_done": [], "model": _facts(model, out)}


def _copy(model: ir.Model, source: Path, out: Path) -> None:
    """The same bytes; with external data, which is named after its model, the same tensors."""
    import onnx_ir as ir

    if source.resolve() == out.resolve():
        return
    if any(isinstance(value.const_value, ir.ExternalTensor) for value in model.graph.initializers.values()):
        save_model(model, out)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.partial")
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _measured(model: ir.Model, calibration: Any) -> dict[str, Any]:
    from stages.data.feeds import load_feeds
    from stages.ort.calibration import calibrate

    return calibrate(model, load_feeds(calibration, model), nonfinite_outputs="warn")


def _ranges(ranges: Mapping[str, Any] | Path | str | None) -> Mapping[str, Any] | None:
    content = read_json(Path(ranges)) if isinstance(ranges, (str, Path)) else ranges
    if content is not None and not (isinstance(content, Mapping) and isinstance(content.get("tensors"), Mapping)):
        raise StageError('ranges: expected {"tensors": {name: {"absmax": ...}}}, as stages.calibrate writes it')
    return content


# --- the report -------------------------------------------------------------------------------------------------------


def _row(node: ir.Node, decision: Decision, halved: Halved) -> dict[str, Any]:
    """One entry of decisions.json."""
    name, fp16 = node.name or "", node in halved.fp16
    dearer = decision.verdict.value == "free" and not fp16 and decision.rule != "any_type"
    return {
        "node": name,
        "op": node.op_type,
        "scope": ".".join(part for part in name.split("/")[:-1] if part),
        "precision": "any" if decision.rule == "any_type" else "fp16" if fp16 else "fp32",
        "rule": "placement" if dearer else decision.rule,
        "value": decision.value,
        "threshold": decision.threshold,
        "tensor": decision.tensor,
        "sample": decision.sample,
        "reason": "its neighbours are FP32, and casts would cost more than FP32 does" if dearer else decision.reason,
    }


def _report(
    rows: list[dict[str, Any]],
    halved: Halved,
    rules: Rules,
    ranges: Mapping[str, Any] | None,
    placement: str,
) -> dict[str, Any]:
    in_fp32 = [row for row in rows if row["precision"] == "fp32"]
    return {
        "verdicts": dict(sorted(Counter(row["rule"] for row in rows).items())),
        "fp32_nodes_total": len(in_fp32),
        "fp32_nodes": [{key: row[key] for key in ("node", "op", "rule", "reason")} for row in in_fp32[:_LISTED_NODES]],
        "fp16_arithmetic": halved.fp16_arithmetic,
        "placement": placement,
        "costs": {"placed": asdict(halved.placed), "naive": asdict(halved.naive)},
        "masks": halved.decisions.masks,
        "unmatched_selectors": [str(selector) for selector in halved.decisions.unmatched],
        **halved.conversion.as_dict(),
        "ranges": _coverage(halved.decisions.nodes, ranges),
        "not_done": _not_done(rules, ranges),
    }


def _not_done(rules: Rules, ranges: Mapping[str, Any] | None) -> list[str]:
    """Rules that are on and could judge nothing."""
    if ranges is not None:
        return []
    asked = ["data_max"] if rules.data_max is not None else []
    if rules.rules == "default":
        asked = ["safety_factor", *asked, *(name for name in ("inner", "integers", "masks") if getattr(rules, name))]
        asked += ["underflow_share_max"] if rules.underflow_share_max is not None else []
    return [f"{', '.join(asked)}: no calibration was given, so no node was judged by measured ranges"] if asked else []


def _coverage(decisions: Mapping[ir.Node, Decision], ranges: Mapping[str, Any] | None) -> dict[str, int]:
    """How many of the float32 activations that nodes write have a range."""
    written = {value.name for node in decisions for value in node.outputs if value.name and value.dtype is not None}
    known = written & set(ranges["tensors"]) if ranges is not None else set()
    return {"tensors": len(known), "tensors_without": len(written) - len(known)}


def _facts(model: ir.Model, path: Path | str) -> dict[str, Any]:
    from stages.graph.facts import model_facts

    return model_facts(model) | {"size_mb": model_size_mb(path)}


def _restate_io(model: ir.Model) -> None:
    """Make the I/O specification that travels with the model say float16 where the model now does."""
    text = model.metadata_props.get(_IO_SPEC)
    if text is None:
        return
    spec = json.loads(text)
    types = {value.name: value.dtype for value in [*model.graph.inputs, *model.graph.outputs]}
    for entry in [*spec.get("inputs", []), *spec.get("outputs", [])]:
        dtype = types.get(entry["name"])
        if dtype is not None:
            entry["dtype"] = {"FLOAT": "float32", "FLOAT16": "float16"}.get(dtype.name, dtype.name.lower())
    model.metadata_props[_IO_SPEC] = json.dumps(spec)


# --- the stage --------------------------------------------------------------------------------------------------------


def run(stage: Stage) -> dict[str, Any]:
    config = stage.config
    if config.precision.dtype.value != "fp16":
        return _pass_on(stage)
    opt = {name: shapes.opt for name, shapes in config.engine.profiles[0].items()}
    return to_fp16(
        stage.artifact("slim"),
        stage.out() / MODEL_FILE,
        ranges=stage.artifact("calibrate", "ranges.json"),
        input_shapes=opt,
        decisions_path=stage.out() / "decisions.json",
        **_options(config.precision) | asdict(config.pins),
    )


def _options(precision: PrecisionConfig) -> dict[str, Any]:
    """The keywords of the door that a configuration states."""
    values = {name: value for name, value in vars(precision).items() if name != "dtype"}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def _pass_on(stage: Stage) -> dict[str, Any]:
    from stages.graph.normalize import infer_types
    from stages.graph.place import Cost

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
        "model": _facts(model, source),
    }


# --- the command line -------------------------------------------------------------------------------------------------


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Every keyword of the door is a flag; a key of the YAML takes its type from the schema, its meaning from there."""
    parser = argparse.ArgumentParser(prog="python -m stages.fp16", description="Convert an FP32 ONNX file to FP16.")
    parser.add_argument("model_path", metavar="in.onnx")
    parser.add_argument("out_path", metavar="out.onnx")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--calibration", metavar="SAMPLES", help="an .npz file, a folder of them, or Polygraphy's JSON")
    source.add_argument("--ranges", metavar="ranges.json", help="as stages.calibrate writes it")
    types = get_type_hints(PrecisionConfig)
    for key, meaning in _meanings().items():
        _add_flag(parser, key, types[key], meaning)
    parser.add_argument("--input-shapes", nargs="+", default=[], metavar="NAME:1x3x640x640", help="to compare costs at")
    parser.add_argument("--decisions-path", metavar="decisions.json", help="write the decision for each node")
    arguments = parser.parse_args(argv)
    try:
        arguments.input_shapes = dict(_shape(text) for text in arguments.input_shapes)
    except ValueError as error:
        parser.error(str(error))
    return arguments


def _meanings() -> dict[str, str]:
    """What each key means: the comment beside it in the YAML that also holds its default."""
    lines = (CONF / "precision/fp16.yaml").read_text().splitlines()
    found = (re.match(r"(\w+):[^#]*(?:# (.*))?$", line) for line in lines)
    return {match[1]: (match[2] or "").replace("%", "%%") for match in found if match and match[1] in _DEFAULTS}


def _add_flag(parser: argparse.ArgumentParser, key: str, type_: Any, meaning: str) -> None:
    flag, default = f"--{key.replace('_', '-')}", _DEFAULTS[key]
    kinds = set(get_args(type_)) or {type_}
    if kinds == {bool}:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=meaning)
    elif key == "keep_io_types":
        parser.add_argument(flag, nargs="*", default=default, metavar="NAME", help=meaning)
        parser.add_argument("--no-keep-io-types", dest=key, action="store_false", help="float16 inputs and outputs")
    elif isinstance(default, list):
        parser.add_argument(flag, nargs="+", default=default, metavar="ENTRY", help=meaning)
    elif isinstance(type_, type) and issubclass(type_, Enum):
        parser.add_argument(flag, choices=[member.value for member in type_], default=default, help=meaning)
    elif kinds & {int, float}:
        number = int if int in kinds else float
        parser.add_argument(flag, type=_or_none(number), default=default, metavar="NUMBER", help=meaning)
    else:
        parser.add_argument(flag, default=default, metavar="TEXT", help=meaning)


def _or_none(number: type) -> Any:
    def parse(text: str) -> Any:
        return None if text.lower() in ("none", "null", "off") else number(text)

    parse.__name__ = number.__name__  # argparse names it when a value is wrong
    return parse


def _shape(text: str) -> tuple[str, list[int]]:
    name, separator, sides = text.rpartition(":")
    if not separator or not re.fullmatch(r"\d+(x\d+)*", sides):
        raise ValueError(f"--input-shapes: expected NAME:1x3x640x640, got {text!r}")
    return name, [int(side) for side in sides.split("x")]


def main() -> None:
    if len(sys.argv) == 1:
        run_stage("fp16", run)
        return
    options = vars(_arguments(sys.argv[1:]))
    if options["keep_io_types"] == []:  # the flag without names
        options["keep_io_types"] = True
    try:
        report = to_fp16(**options)
    except StageError as error:
        sys.exit(f"fp16: {error}")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
