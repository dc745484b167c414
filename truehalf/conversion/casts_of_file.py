"""Cast clean-up of a model and of a file, of ours or of any other tool (rules: truehalf.conversion.casts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from truehalf.calibration.ranges_form import RangesJson
from truehalf.config.precision import Precision
from truehalf.conversion.casts import CleanCasts, count_casts
from truehalf.conversion.convert import Conversion, convert_model
from truehalf.conversion.report import CastsReport
from truehalf.conversion.rules.base import Decision
from truehalf.errors import StageError
from truehalf.files import check_outputs
from truehalf.ir.facts import is_op, model_facts
from truehalf.ir.inlining import WeightsApart
from truehalf.ir.model_file import adopt_proto, read_proto, save_model, source_weights
from truehalf.ir.proto.forms import graphs_of
from truehalf.ir.proto.plugins import as_in_file


def clean_casts(
    model_path: Path | str, out_path: Path | str, *, strict: bool = False, fold_max_bytes: int | None = None
) -> CastsReport:
    """Remove the removable Casts of an ONNX file.

    Args:
        model_path: may be unsorted and may hold the same node twice, as ONNX Runtime's float16 converter writes it.
            Bodies of If, Loop and Scan are cleaned, functions are inlined.
        out_path: ONNX file to write, another one; inputs and outputs keep name, order and type. Where Casts read
            weights that are listed among the inputs (CenterFace, IR version 4), weights are inputs no longer.
        strict: keep to the rules that change no value at all; otherwise f32 -> f16 -> f32 loses its rounding.
        fold_max_bytes: the Cast of a larger constant is left to the runtime; None: all are computed here. A file that
            was converted with init_conversion_max_bytes keeps its run-time Casts only when this is the same number.

    Raises:
        StageError: when a file cannot be read or written, or the graph has a cycle (named; nothing is deleted).
    """
    if fold_max_bytes is not None and fold_max_bytes < 1:
        raise StageError("out-of-range", f"fold_max_bytes: expected 1 or more, or None, got {fold_max_bytes}")
    proto = read_proto(model_path)
    repeated = drop_repeated_nodes(proto.graph)
    model = as_in_file(adopt_proto(proto, model_path))
    listed = (value for value in model.graph.inputs if value.is_initializer())
    if any(is_op(reader, "Cast") for value in listed for reader in value.consumers()):
        WeightsApart()(model)
    check_outputs({"out_path": out_path}, {"model_path": model_path}, source_weights(model))
    report = clean_model(model, strict=strict, fold_max_bytes=fold_max_bytes)
    save_model(model, out_path)
    return replace(
        report,
        casts_before=report.casts_before + repeated["Cast"],
        repeated_nodes_dropped=sum(repeated.values()),
        model=model_facts(model, out_path),
    )


def clean_model(model: ir.Model, *, strict: bool = False, fold_max_bytes: int | None = None) -> CastsReport:
    """As `clean_casts`, of a model in memory, in place."""
    before = count_casts(model)
    rules = CleanCasts(strict, fold_max_bytes)(model).counts
    return CastsReport(
        casts_before=before,
        casts_after=count_casts(model),
        rules=dict(sorted(rules.items())),
        strict=strict,
        model=model_facts(model),
    )


def write_converted(
    model: ir.Model,
    out_path: Path,
    precision: Precision,
    ranges: RangesJson | Path | str | None = None,
    *,
    calibration: Any = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    pins: Mapping[str, Decision] | None = None,
) -> tuple[Conversion, CastsReport]:
    """Convert a model, in place, clean its Casts and write it.

    Args:
        model, precision, ranges, calibration, input_shapes, pins: see truehalf.conversion.convert.convert_model.

    Raises:
        StageError: as convert_model; a file that cannot be written.
    """
    made = convert_model(model, precision, ranges, calibration=calibration, input_shapes=input_shapes, pins=pins)
    fold_max = precision.init_conversion_max_bytes
    cleaned = clean_model(made.model, strict=precision.strict_clean_up, fold_max_bytes=fold_max)
    save_model(made.model, out_path)
    return made, replace(cleaned, model=model_facts(made.model, out_path))


def drop_repeated_nodes(graph: onnx.GraphProto) -> Counter[str]:
    """Remove nodes that repeat another node of their graph word for word, output names included; count them by type.

    ONNX Runtime's float16 converter (1.25 and later) writes such graphs. They are no ONNX: a name has one producer. So
    there is no ir.Model of them, and this is no pass.

    Raises:
        StageError: when two different nodes write one name.
    """
    first: dict[str, onnx.NodeProto] = {}
    kept: list[onnx.NodeProto] = []
    dropped = Counter[str]()
    for node in graph.node:
        for subgraph in graphs_of(node):
            dropped += drop_repeated_nodes(subgraph)
        rivals = [first[name] for name in node.output if name in first]
        if rivals and all(rival == node for rival in rivals):
            dropped[node.op_type] += 1
            continue
        if rivals:
            raise StageError(
                "model-invalid",
                f"nodes {rivals[0].name!r} ({rivals[0].op_type}) and {node.name!r} ({node.op_type}) both write "
                f"{next(name for name in node.output if name in first)!r}: expected one producer for each name; "
                "convert the original again",
            )
        first.update({name: node for name in node.output if name})
        kept.append(node)
    if len(kept) < len(graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)
    return dropped
