"""FP32 model -> mixed model, in memory: what each node may be is decided, casts are placed, the graph is rewritten."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges_form import Ranges, RangesJson, ranges_of, read_ranges
from truehalf.codes import coded
from truehalf.config.precision import Placement, Precision, PrecisionName
from truehalf.conversion import partition
from truehalf.conversion.decide import Decisions, decide
from truehalf.conversion.options import check_names, unmatched_fp16_ops
from truehalf.conversion.ports import FP16, io_type_of, ports
from truehalf.conversion.report import Decision, Fp16Report, conversion_report, coverage, float_outputs, row
from truehalf.conversion.rewrite import ConversionReport, Rewrite
from truehalf.conversion.rules import base
from truehalf.conversion.rules.custom import custom_rule_of
from truehalf.conversion.rules.interface import interface_decides, interface_overflows
from truehalf.data.model_samples import model_samples
from truehalf.data.samples import Feeds
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_values, fixed_batch, model_facts
from truehalf.ir.inlining import WeightsApart, said_of, weights_taken_out
from truehalf.ir.model_file import PRECISION_KEY, UNFUSED_KEY
from truehalf.ir.normalize import PREPARE, InferTypes, concrete_shapes
from truehalf.ir.opset import ToOpset
from truehalf.ir.passes import Done, Pass
from truehalf.ir.proto.plugins import as_in_file, not_run
from truehalf.progress import step
from truehalf.runtime.types import infer_open_types

PLACEMENTS = {Placement.min_cut: partition.min_cut, Placement.eager: partition.eager}


@dataclass(frozen=True)
class ConversionResult:
    """What was done to a model.

    Attributes:
        decisions: verdict and reason of every judged node.
        masks: attention masks, and what became of each, one line each.
        fp16: the judged nodes that run in FP16; control flow when all that it passes on is FP16.
        fp16_arithmetic: their share of the arithmetic of all judged nodes, 0 to 1; None where there is none.
        placed, naive, unforced: cost of the placement that was made, of the naive one, and of the cheapest one if
            fp16_ops forced no operator (truehalf.conversion.partition).
        conversion: counts of Casts and weights.
    """

    decisions: Decisions
    masks: Sequence[str]
    fp16: frozenset[ir.Node]
    fp16_arithmetic: float | None
    placed: partition.Cost
    naive: partition.Cost
    unforced: partition.Cost
    conversion: ConversionReport


def convert_to_fp16(
    model: ir.Model,
    ranges: Ranges | None,
    precision: Precision,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    pins: Mapping[str, base.Decision] | None = None,
) -> ConversionResult:
    """Convert a model in place.

    Args:
        model: as truehalf.ir.normalize.PREPARE leaves it.
        ranges: what was measured; None: no rule that needs ranges judges anything.
        precision: what decides, and how.
        input_shapes: by graph input, the shape at which costs are compared; what it leaves open is as calibration
            measured it, else 1.
        pins: see truehalf.conversion.decide.decide.

    Raises:
        StageError: see truehalf.conversion.decide.decide.
    """
    sizes = {} if ranges is None else ranges.sizes()
    shapes, keep = concrete_shapes(model, input_shapes, sizes), precision.keep_io_types
    decisions = decide(model, ranges, precision, pins=pins)
    decisions.warnings.extend(interface_overflows(model, ranges, io_type_of(keep, decisions.exact)))
    decisions.warnings.extend(interface_decides(model, decisions.exact, io_type_of(keep)))
    movable = [node for node, decision in decisions.nodes.items() if decision.verdict is not base.Verdict.fp32]
    found = ports(model, movable, keep, precision.init_conversion_max_bytes, decisions.exact)
    problem = partition.problem(found, decisions.nodes, shapes)
    assignment = PLACEMENTS[precision.placement](problem)
    placed, naive = partition.cost(problem, assignment), partition.cost(problem, partition.eager(problem))
    free = partition.problem(found, partition.unforced(decisions.nodes), shapes)
    unforced = partition.cost(free, partition.min_cut(free))
    fp16 = frozenset(partition.nodes_in_fp16(found, assignment))
    arithmetic = {node: flops(node, shapes) for node in decisions.nodes}
    total = sum(arithmetic.values())
    share = sum(arithmetic[node] for node in arithmetic if node in fp16) / total if total else None
    in_fp16 = {mask: any(assignment.get(node) == FP16 for node in mask.nodes) for mask in decisions.masks}
    clamped = [mask.constant for mask, needed in in_fp16.items() if needed and mask.is_clamped]
    masks = [mask.line(in_fp16=needed) for mask, needed in in_fp16.items()]
    rewrite = Rewrite(found, assignment, clamped)
    conversion = ConversionReport(rewrite(model).counts, rewrite.losses)
    return ConversionResult(decisions, masks, fp16, share, placed, naive, unforced, conversion)


# --- a whole model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conversion:
    """A model that was converted, or passed on as it was.

    Attributes:
        model: in memory.
        decisions: a row for each judged node.
        is_converted: whether there was something to convert.
        ranges: content of a ranges.json that it was decided by; None where there was none.
    """

    model: ir.Model
    decisions: Sequence[Decision]
    is_converted: bool
    _found: Fp16Report = field(repr=False)
    _rewritten: ConversionReport | None = field(default=None, repr=False)
    ranges: RangesJson | None = field(default=None, repr=False)

    def report(self) -> Fp16Report:
        """What was done.

        Elements of large weights are counted when they are rounded: here, unless the model was written before.
        """
        return self._found if self._rewritten is None else self._rewritten.added_to(self._found)


def convert_model(
    model: ir.Model,
    precision: Precision,
    ranges: RangesJson | Path | str | None = None,
    *,
    calibration: Any = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    pins: Mapping[str, base.Decision] | None = None,
) -> Conversion:
    """Convert an FP32 model to FP16, in place, leaving FP32 what must stay so.

    Args:
        model: any opset; not to be used any more. One that was converted before, or holds float16 and no float32, is
            passed on.
        precision: options.
        ranges: content or path of a ranges.json (truehalf.calibration.calibrate).
        calibration: samples that ranges are measured on instead (truehalf.data.model_samples); with neither,
            rules on ranges judge nothing (reported in not_done).
        input_shapes: by graph input, the shape at which costs of casts are compared; None: those of the first sample of
            `calibration`. Symbolic dimensions that neither binds count 1.
        pins: see truehalf.conversion.decide.decide.

    Raises:
        StageError: options that do not fit the model (all of them listed), an opset that cannot be converted, a graph
            with a cycle, ranges or samples that do not fit. What is passed on needs neither, and neither is looked at.
    """
    if precision.custom_rule is not None:
        custom_rule_of(precision.custom_rule)  # before the work
    check_names(model, precision, input_shapes)
    if reason := _no_work(model, precision):
        typed = as_in_file(model).clone()
        InferTypes()(typed)
        skipped = Fp16Report(status="skipped", reason=reason, model=model_facts(typed))
        return Conversion(model, [], False, skipped)
    if not precision.weights_as_inputs:
        WeightsApart(of_any_version=True)(model)
    taken_out = weights_taken_out(model)
    no_inputs = [f"{said_of(taken_out)}; precision.weights_as_inputs=true leaves them inputs"] if taken_out else []
    raised = ToOpset(precision.opset)(model)
    PREPARE(model)
    infer_open_types(model)
    if calibration is None:
        measured = read_ranges(ranges)
    else:
        feeds = Feeds(model_samples(calibration, model), fixed_batch(model))
        first = feeds[0]
        if replaced := [name for name in taken_out if name in first]:
            is_weight = f"samples give values of {', '.join(map(repr, replaced))}, which the model holds as weights"
            raise StageError("in-conflict", f"{is_weight}; leave them out, or set precision.weights_as_inputs=true")
        measured = ranges_of(calibrate(model, feeds, nonfinite_outputs="warn"))
        if input_shapes is None:
            input_shapes = {name: array.shape for name, array in first.items()}
    covered = coverage(float_outputs(model), measured)
    unrun = not_run(model)
    if unrun is not None:
        model = as_in_file(model)
        PREPARE(model)
        infer_open_types(model)
    unmatched, lines = unmatched_fp16_ops(model, precision)
    with step("convert"):
        result = convert_to_fp16(model, measured, precision, input_shapes, pins)
    RestateIo()(model)
    model.metadata_props[PRECISION_KEY] = (
        f"fp16 by truehalf, rules {precision.rules.value}, placement {precision.placement.value}"
    )
    if result.decisions.unfused:
        model.metadata_props[UNFUSED_KEY] = json.dumps(result.decisions.unfused)
    rows = [row(node, decision, result) for node, decision in result.decisions.nodes.items()]
    report = conversion_report(rows, result, precision, covered)
    facts, warnings = model_facts(model), measured.warnings if measured is not None else ()
    if not result.fp16:
        rules = ", ".join(f"{rule} {count}" for rule, count in report.verdicts.items())
        stay = f"all {len(rows)} float nodes stay FP32 ({rules})" if rows else "the model has no float32 node"
        nothing = f"nothing was converted: {stay}"
        lines.append(coded("nothing-in-fp16", nothing))
    report = replace(
        report,
        unmatched_selectors=[*report.unmatched_selectors, *map(str, unmatched)],
        fp16_fraction=facts["fp16_fraction"],
        warnings=[
            *([unrun] if unrun else []),
            *no_inputs,
            *raised.notes(),
            *lines,
            *warnings,
            *result.decisions.warnings,
        ],
        model=facts,
    )
    content = None if measured is None else measured.content
    return Conversion(model, rows, True, report, result.conversion, content)


def _no_work(model: ir.Model, precision: Precision) -> str | None:
    """Why a model is passed on as it is; None when there is something to convert."""
    if precision.dtype is PrecisionName.fp32:
        return "precision=fp32: the model is passed on as it is"
    if stamp := model.metadata_props.get(PRECISION_KEY):
        return f"the file says that it was converted before ({stamp}); convert the FP32 file to change anything"
    if "FLOAT16" in _types(model) and "FLOAT" not in _types(model):
        typed = model.clone()
        PREPARE(typed)  # what a file says of its tensors' types may be less than all
        if "FLOAT" not in _types(typed):
            return "the file is FP16 already: it holds float16 tensors and no float32 one"
    return None


def _types(model: ir.Model) -> set[str]:
    return {value.dtype.name for value in all_values(model) if value.dtype is not None}


class RestateIo(Pass):
    """Makes the I/O specification that travels with a model say float16 where the model now does."""

    def edit(self, model: ir.Model, done: Done) -> None:
        if SPEC_KEY not in model.metadata_props:
            return
        spec_inside(model)  # raises where it is none; what it says besides is kept as it stands
        spec = json.loads(model.metadata_props[SPEC_KEY])
        types = {value.name: value.dtype for value in [*model.graph.inputs, *model.graph.outputs]}
        for entry in [*spec.get("inputs", []), *spec.get("outputs", [])]:
            dtype = types.get(entry["name"])
            if dtype is not None:
                entry["dtype"] = {"FLOAT": "float32", "FLOAT16": "float16"}.get(dtype.name, dtype.name.lower())
                done.counts["ends"] += 1
        model.metadata_props[SPEC_KEY] = json.dumps(spec)
