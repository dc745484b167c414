"""FP32 model -> mixed model, in memory: what each node may be is decided, casts are placed, the graph is rewritten."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges_form import Ranges, RangesJson, TensorRange, read_ranges
from truehalf.codes import coded
from truehalf.config.precision import Placement, Precision, PrecisionName, RuleSet
from truehalf.conversion import partition
from truehalf.conversion.decide import Decisions, decide
from truehalf.conversion.options import check_names, unmatched_fp16_ops
from truehalf.conversion.ports import becomes_half, ports
from truehalf.conversion.report import LISTED_NODES, Decision, Fp16Report, entry, fp32_rows
from truehalf.conversion.rewrite import Rewrite
from truehalf.conversion.rules import base
from truehalf.conversion.rules.custom import custom_rule_of
from truehalf.data.model_samples import model_samples
from truehalf.data.samples import Feeds
from truehalf.errors import StageError
from truehalf.float16 import MAX
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes, all_values, fixed_batch, model_facts
from truehalf.ir.inlining import WeightsApart, said_of, weights_taken_out
from truehalf.ir.model_file import PRECISION_KEY, UNFUSED_KEY
from truehalf.ir.normalize import PREPARE, InferTypes, concrete_shapes
from truehalf.ir.opset import ToOpset
from truehalf.ir.passes import Done, Pass
from truehalf.ir.proto.plugins import as_in_file, not_run
from truehalf.ir.slots import is_float32
from truehalf.progress import step
from truehalf.runtime.types import infer_open_types

PLACEMENTS = {Placement.min_cut: partition.min_cut, Placement.eager: partition.eager}
_DEARER = "its neighbours are FP32, and casts would cost more than FP32 does"


@dataclass(frozen=True)
class ConversionResult:
    """What was done to a model.

    Attributes:
        decisions: verdict and reason of every judged node.
        fp16: the judged nodes that run in FP16; control flow when all that it passes on is FP16.
        fp16_arithmetic: their share of the arithmetic of all judged nodes, 0 to 1; None where there is none.
        placed, naive: cost of the placement that was made and of the naive one (truehalf.conversion.partition).
        counts: of Casts (truehalf.conversion.rewrite.Rewrite).
    """

    decisions: Decisions
    fp16: frozenset[ir.Node]
    fp16_arithmetic: float | None
    placed: partition.Cost
    naive: partition.Cost
    counts: Mapping[str, int]

    def rows(self) -> list[Decision]:
        """Make the rows of decisions.json."""
        return [self._row(node, decision) for node, decision in self.decisions.nodes.items()]

    def _row(self, node: ir.Node, decision: base.Decision) -> Decision:
        if decision.rule == "any_type":
            return entry(node, "any", decision)
        if decision.verdict is base.Verdict.free and node not in self.fp16:
            decision = replace(decision, rule="placement", reason=_DEARER)
        return entry(node, "fp16" if node in self.fp16 else "fp32", decision)


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
    shapes = concrete_shapes(model, input_shapes, {} if ranges is None else ranges.sizes())
    decisions = decide(model, ranges, precision, pins)
    decisions.warnings.extend(_border_warnings(model, ranges, precision, decisions))
    movable = [node for node, decision in decisions.nodes.items() if decision.verdict is not base.Verdict.fp32]
    found = ports(model, movable, precision.keep_io_types, precision.init_conversion_max_bytes, decisions.exact)
    problem = partition.problem(found, decisions.nodes, shapes)
    assignment = PLACEMENTS[precision.placement](problem)
    placed, naive = partition.cost(problem, assignment), partition.cost(problem, partition.eager(problem))
    fp16 = frozenset(partition.nodes_in_fp16(found, assignment))
    arithmetic = {node: flops(node, shapes) for node in decisions.nodes}
    total = sum(arithmetic.values())
    share = sum(arithmetic[node] for node in arithmetic if node in fp16) / total if total else None
    counts = Rewrite(found, assignment, decisions.masks)(model).counts
    return ConversionResult(decisions, fp16, share, placed, naive, counts)


def _border_warnings(model: ir.Model, ranges: Ranges | None, precision: Precision, decisions: Decisions) -> list[str]:
    """A line for each graph input or output that becomes float16 and was measured beyond it, which no pin prevents, and
    for each input that stays float32 unasked, as it decides a shape.
    """
    keep, lines = precision.keep_io_types, []
    for kind, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            if not is_float32(value) or not becomes_half(value, keep):
                continue
            known = ranges.tensors.get(value.name or "", TensorRange()) if ranges is not None else TensorRange()
            if not becomes_half(value, keep, decisions.exact):
                lines.append(
                    f"graph input {value.name!r} stays float32, though keep_io_types does not name it: it decides a "
                    "shape, an index or a trip count, which float16 rounds"
                )
            elif (known.absmax or 0.0) > MAX:
                reaches = f"reaches |x| = {known.absmax:.4g} > 65504 on sample {known.sample}"
                line = f"graph {kind} {value.name!r} becomes float16 but {reaches}; keep_io_types keeps it float32"
                lines.append(line)
    return lines


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
    _report: Fp16Report = field(repr=False)
    ranges: RangesJson | None = field(default=None, repr=False)

    def report(self) -> Fp16Report:
        """What was done."""
        return self._report


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
    check_names(model, precision)
    if reason := _no_work(model, precision):
        typed = as_in_file(model).clone()
        InferTypes()(typed)
        return Conversion(model, [], False, Fp16Report(status="skipped", reason=reason, model=model_facts(typed)))
    if not precision.weights_as_inputs:
        WeightsApart()(model)
    taken_out = weights_taken_out(model)
    notes = [f"{said_of(taken_out)}; precision.weights_as_inputs=true leaves them inputs"] if taken_out else []
    notes += ToOpset(precision.opset)(model).notes()
    PREPARE(model)
    infer_open_types(model)
    if calibration is not None:
        feeds = Feeds(model_samples(calibration, model), fixed_batch(model))
        _check_no_weights(taken_out, feeds[0])
        ranges = calibrate(model, feeds, nonfinite_outputs="warn")
        input_shapes = input_shapes or {name: array.shape for name, array in feeds[0].items()}
    measured = read_ranges(ranges)
    not_done = _not_done(model, precision, measured)
    unrun = not_run(model)
    if unrun is not None:
        model = as_in_file(model)
        PREPARE(model)
        infer_open_types(model)
        notes.insert(0, unrun)
    unmatched = unmatched_fp16_ops(model, precision)
    notes += unmatched.values()
    with step("convert"):
        result = convert_to_fp16(model, measured, precision, input_shapes, pins)
    RestateIo()(model)
    stamp = f"fp16 by truehalf, rules {precision.rules.value}, placement {precision.placement.value}"
    model.metadata_props[PRECISION_KEY] = stamp
    if result.decisions.unfused:
        model.metadata_props[UNFUSED_KEY] = json.dumps(result.decisions.unfused)
    rows, facts = result.rows(), model_facts(model)
    kept, verdicts = fp32_rows(rows), dict(sorted(Counter(row["rule"] for row in rows).items()))
    if not result.fp16:
        rules = ", ".join(f"{rule} {count}" for rule, count in verdicts.items())
        stay = f"all {len(rows)} float nodes stay FP32 ({rules})" if rows else "the model has no float32 node"
        notes.append(coded("nothing-in-fp16", f"nothing was converted: {stay}"))
    report = Fp16Report(
        verdicts=verdicts,
        fp32_nodes_total=len(kept),
        fp32_nodes=kept[:LISTED_NODES],
        fp16_fraction=facts["fp16_fraction"],
        fp16_arithmetic=result.fp16_arithmetic,
        costs={"placed": asdict(result.placed), "naive": asdict(result.naive)},
        casts_to_fp16=result.counts.get("casts_to_fp16", 0),
        casts_to_fp32=result.counts.get("casts_to_fp32", 0),
        masks=[str(value.name) for value in result.decisions.masks],
        unfused_attention=result.decisions.unfused,
        unmatched_selectors=[*map(str, result.decisions.unmatched), *unmatched],
        warnings=[*notes, *(measured.warnings if measured is not None else ()), *result.decisions.warnings],
        not_done=not_done,
        model=facts,
    )
    return Conversion(model, rows, True, report, None if measured is None else measured.content)


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


def _check_no_weights(taken_out: Sequence[str], feed: Mapping[str, Any]) -> None:
    if replaced := [name for name in taken_out if name in feed]:
        is_weight = f"samples give values of {', '.join(map(repr, replaced))}, which the model holds as weights"
        raise StageError("in-conflict", f"{is_weight}; leave them out, or set precision.weights_as_inputs=true")


def _not_done(model: ir.Model, precision: Precision, ranges: Ranges | None) -> list[str]:
    """Name the rules that are on and can judge nothing: there are no ranges, or they are of another model."""
    written = {value for node in all_nodes(model) for value in node.outputs}
    floats = {value.name for value in (*written, *model.graph.inputs) if is_float32(value)}
    code, why = "needs-value", "no calibration was given"
    if ranges is not None:
        measured = {name for name, entry in ranges.tensors.items() if entry.absmax is not None}
        if not floats or floats & measured:
            return []
        code, why = "needs-value", "the samples have no element to measure"
        if not floats & set(ranges.tensors):
            code, why = "wrong-file", "the ranges are of another model (none is of a tensor of this one)"
    is_default = precision.rules is RuleSet.default
    asked = {
        "safety_factor": is_default,
        "data_max": precision.data_max is not None,
        "inner": is_default and precision.inner,
        "masks": is_default and precision.masks,
    }
    named = ", ".join(name for name, is_on in asked.items() if is_on)
    return [coded(code, f"{named}: {why}, so no node was judged by measured ranges")] if named else []


class RestateIo(Pass):
    """Makes the I/O specification that travels with a model say float16 where the model now does."""

    def edit(self, model: ir.Model, done: Done) -> None:
        if SPEC_KEY not in model.metadata_props:
            return
        spec_inside(model)  # raises where it is none; what it says besides is kept as it stands
        spec = json.loads(model.metadata_props[SPEC_KEY])
        types = {value.name: value.dtype for value in [*model.graph.inputs, *model.graph.outputs]}
        for stated in [*spec.get("inputs", []), *spec.get("outputs", [])]:
            dtype = types.get(stated["name"])
            if dtype is not None:
                stated["dtype"] = {"FLOAT": "float32", "FLOAT16": "float16"}.get(dtype.name, dtype.name.lower())
                done.counts["ends"] += 1
        model.metadata_props[SPEC_KEY] = json.dumps(spec)
