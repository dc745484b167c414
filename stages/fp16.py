"""fp16: an FP32 ONNX file becomes a mixed one, node by node, where lists, weights and measured ranges allow.

python -m stages.fp16                     the stage: artifacts/slim, artifacts/calibrate -> artifacts/fp16
python -m stages.fp16 in.onnx out.onnx --ranges ranges.json --op-block-list Softmax
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.io import (
    MODEL_FILE,
    Stage,
    StageError,
    defaults,
    load_model,
    model_size_mb,
    read_json,
    run_stage,
    save_model,
    write_json,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from stages.graph.decide import Decision

_DEFAULTS = defaults("precision/fp16")
_IO_SPEC = "truehalf.io_spec"
_LISTED_NODES = 20
_OPSET_MIN = 7  # from here on Cast names its type by number, and broadcasting has one meaning


def to_fp16(
    model_path: Path | str,
    out_path: Path | str,
    *,
    ranges: Mapping[str, Any] | Path | str | None = None,
    op_block_list: Iterable[str] = tuple(_DEFAULTS["op_block_list"]),
    node_block_list: Iterable[str] = tuple(_DEFAULTS["node_block_list"]),
    keep_io_types: bool = _DEFAULTS["keep_io_types"],
    data_max: float | None = _DEFAULTS["data_max"],
    init_max: float | None = _DEFAULTS["init_max"],
    decisions_path: Path | str | None = None,
) -> dict[str, Any]:
    """Convert an FP32 ONNX file to FP16, leaving FP32 what must stay so.

    Args:
        model_path, out_path: ONNX files; weights beyond 1.5 GB go to <out>.data.
        ranges: content or path of ranges.json (stages.calibrate); None: data_max judges nothing (said in not_done).
        op_block_list: operator types that stay FP32.
        node_block_list: regular expressions; a node in whose name one is found stays FP32.
        keep_io_types: float32 graph inputs and outputs stay float32.
        data_max: a node that reads or writes a larger finite |x| stays FP32; None: off.
        init_max: a node that reads a larger finite weight stays FP32; None: off, larger weights become Inf (counted).
        decisions_path: where to write a JSON list with the decision for each node.

    Returns:
        verdicts (nodes by rule), fp32_nodes_total, fp32_nodes (the first 20, each with its reason), fp16_fraction,
        unmatched_selectors, casts_to_fp16, casts_to_fp32, weights (counts), ranges (tensors
        judged, tensors without a range), not_done (what was asked for and could not be done), model (facts, size_mb).

    Raises:
        StageError: bad file, bad regular expression, unsupported opset, or a graph with a cycle.
    """
    from stages.graph.convert import convert
    from stages.graph.decide import Rules, blocked_nodes, decide
    from stages.graph.facts import model_facts
    from stages.graph.normalize import normalize
    from stages.graph.place import eager

    model = load_model(model_path)
    _check_opset(model, model_path)
    normalize(model)
    statistics = _ranges(ranges)
    rules = Rules(tuple(op_block_list), tuple(node_block_list), data_max, init_max)
    decisions = decide(model, statistics, rules)
    unmatched = [str(selector) for selector in blocked_nodes(model, rules).unmatched]
    coverage = _coverage(decisions, statistics)
    assignment = eager(decisions, keep_io_types)
    rows = [_row(node, decision, assignment[node]) for node, decision in decisions.items()]
    conversion = convert(model, assignment, keep_io_types)
    if not keep_io_types:
        _restate_io(model)
    save_model(model, out_path)
    if decisions_path is not None:
        write_json(Path(decisions_path), rows)
    facts = model_facts(model)
    in_fp32 = [row for row in rows if row["precision"] == "fp32"]
    return {
        "verdicts": dict(sorted(Counter(decision.rule for decision in decisions.values()).items())),
        "fp32_nodes_total": len(in_fp32),
        "fp32_nodes": [{key: row[key] for key in ("node", "op", "rule", "reason")} for row in in_fp32[:_LISTED_NODES]],
        "fp16_fraction": facts["fp16_fraction"],
        "unmatched_selectors": unmatched,
        **conversion.as_dict(),
        "ranges": coverage,
        "not_done": ["data_max: no ranges were given, so no node was judged by them"]
        if statistics is None and data_max is not None
        else [],
        "model": facts | {"size_mb": model_size_mb(out_path)},
    }


def _check_opset(model: ir.Model, path: Path | str) -> None:
    opset = model.graph.opset_imports.get("", _OPSET_MIN)
    if opset < _OPSET_MIN:
        raise StageError(
            f"{path}: opset {opset}; expected {_OPSET_MIN} or later. Export it anew, or raise it with "
            "onnx.version_converter.convert_version"
        )


def _ranges(ranges: Mapping[str, Any] | Path | str | None) -> Mapping[str, Any] | None:
    content = read_json(Path(ranges)) if isinstance(ranges, (str, Path)) else ranges
    if content is not None and not (isinstance(content, Mapping) and isinstance(content.get("tensors"), Mapping)):
        raise StageError('ranges: expected {"tensors": {name: {"absmax": ...}}}, as stages.calibrate writes it')
    return content


def _coverage(decisions: Mapping[ir.Node, Decision], ranges: Mapping[str, Any] | None) -> dict[str, int]:
    """How many of the float32 activations that nodes write have a range."""
    from stages.graph.slots import is_float32

    written = {value.name for node in decisions for value in node.outputs if value.name and is_float32(value)}
    known = written & set(ranges["tensors"]) if ranges is not None else set()
    return {"tensors": len(known), "tensors_without": len(written) - len(known)}


def _row(node: ir.Node, decision: Decision, precision: ir.DataType) -> dict[str, Any]:
    """One entry of decisions.json."""
    name = node.name or ""
    fp16 = precision.name == "FLOAT16"
    around = decision.verdict.value == "free" and not fp16
    return {
        "node": name,
        "op": node.op_type,
        "scope": ".".join(part for part in name.split("/")[:-1] if part),
        "precision": "fp16" if fp16 else "fp32",
        "rule": "surroundings" if around else decision.rule,
        "value": decision.value,
        "threshold": decision.threshold,
        "tensor": decision.tensor,
        "sample": decision.sample,
        "reason": "only moves values between FP32 nodes" if around else decision.reason,
    }


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


def run(stage: Stage) -> dict[str, Any]:
    precision = stage.config.precision
    if precision.dtype.value != "fp16":
        return _pass_on(stage)
    return to_fp16(
        stage.artifact("slim"),
        stage.out() / MODEL_FILE,
        ranges=stage.artifact("calibrate", "ranges.json"),
        op_block_list=stage.config.pins.op_block_list,
        node_block_list=stage.config.pins.node_block_list,
        keep_io_types=precision.keep_io_types,
        data_max=precision.data_max,
        init_max=precision.init_max,
        decisions_path=stage.out() / "decisions.json",
    )


def _pass_on(stage: Stage) -> dict[str, Any]:
    from stages.graph.facts import model_facts
    from stages.graph.normalize import infer_types

    source = stage.artifact("slim")
    shutil.copytree(source.parent, stage.out(), ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    write_json(stage.out() / "decisions.json", [])
    model = load_model(source)
    infer_types(model)
    return {
        "status": "skipped",
        "reason": f"precision={stage.config.precision.dtype.value}: the file is passed on as it is",
        "model": model_facts(model) | {"size_mb": model_size_mb(source)},
    }


def _number(text: str) -> float | None:
    return None if text.lower() in ("none", "null", "off") else float(text)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stages.fp16", description="Convert an FP32 ONNX file to FP16.")
    parser.add_argument("model_path", metavar="in.onnx")
    parser.add_argument("out_path", metavar="out.onnx")
    parser.add_argument("--ranges", metavar="ranges.json", help="as stages.calibrate writes it")
    parser.add_argument("--op-block-list", nargs="+", default=_DEFAULTS["op_block_list"], metavar="OP")
    parser.add_argument("--node-block-list", nargs="+", default=_DEFAULTS["node_block_list"], metavar="REGEX")
    parser.add_argument("--keep-io-types", action=argparse.BooleanOptionalAction, default=_DEFAULTS["keep_io_types"])
    parser.add_argument("--data-max", type=_number, default=_DEFAULTS["data_max"], help="a number, or none")
    parser.add_argument("--init-max", type=_number, default=_DEFAULTS["init_max"], help="a number, or none")
    parser.add_argument("--decisions-path", metavar="decisions.json", help="write the decision for each node")
    return parser.parse_args(argv)


def main() -> None:
    if len(sys.argv) == 1:
        run_stage("fp16", run)
        return
    try:
        report = to_fp16(**vars(_arguments(sys.argv[1:])))
    except StageError as error:
        sys.exit(f"fp16: {error}")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
