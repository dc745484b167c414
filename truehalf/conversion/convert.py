"""FP32 graph -> mixed graph, in memory: decide, place, convert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from truehalf.config.precision import Placement, Precision
from truehalf.conversion import partition
from truehalf.conversion.decide import Decisions, decide
from truehalf.conversion.ports import FP16, Owner, io_type_of, ports
from truehalf.conversion.rewrite import ConversionReport, rewrite
from truehalf.conversion.rules.base import Verdict
from truehalf.conversion.rules.interface import interface_decides, interface_overflows
from truehalf.ir.arithmetic import flops
from truehalf.ir.normalize import concrete_shapes

PLACEMENTS = {Placement.min_cut: partition.min_cut, Placement.eager: partition.eager}


@dataclass(frozen=True)
class ConversionResult:
    """What was done to a model.

    Attributes:
        decisions: verdict and reason of every judged node.
        fp16: the judged nodes that run in FP16; control flow when all that it passes on is FP16.
        fp16_arithmetic: their share of the arithmetic of all judged nodes, 0 to 1; None where there is none.
        placed, naive: cost of the placement that was made, and of the naive one (truehalf.conversion.partition).
        conversion: counts of Casts and weights.
    """

    decisions: Decisions
    fp16: frozenset[ir.Node]
    fp16_arithmetic: float | None
    placed: partition.Cost
    naive: partition.Cost
    conversion: ConversionReport


def convert_to_fp16(
    model: ir.Model,
    ranges: Mapping[str, Any] | None,
    precision: Precision,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> ConversionResult:
    """Convert a model in place.

    Args:
        model: as truehalf.ir.ready leaves it.
        ranges: content of ranges.json; None: no rule that needs ranges judges anything.
        precision: what decides, and how.
        input_shapes: by graph input, the shape at which costs are compared; symbolic dimensions that it does not bind
            count 1.

    Raises:
        StageError: see truehalf.conversion.decide.decide.
    """
    shapes, keep = concrete_shapes(model, input_shapes), precision.keep_io_types
    decisions = decide(model, ranges, precision)
    decisions.warnings.extend(interface_overflows(model, ranges, io_type_of(keep, decisions.exact)))
    decisions.warnings.extend(interface_decides(model, decisions.exact, io_type_of(keep)))
    movable = [node for node, decision in decisions.nodes.items() if decision.verdict is not Verdict.fp32]
    found = ports(model, movable, keep, precision.init_conversion_max_bytes, decisions.exact)
    problem = partition.problem(found, decisions.nodes, shapes)
    assignment = PLACEMENTS[precision.placement](problem)
    placed, naive = partition.cost(problem, assignment), partition.cost(problem, partition.eager(problem))
    fp16 = frozenset(partition.nodes_in_fp16(found, assignment))
    arithmetic = {node: flops(node, shapes) for node in decisions.nodes}
    total = sum(arithmetic.values())
    share = sum(arithmetic[node] for node in arithmetic if node in fp16) / total if total else None
    decisions = _needed_clamps(decisions, assignment)
    conversion = rewrite(model, found, assignment, decisions.clamps)
    return ConversionResult(decisions, fp16, share, placed, naive, conversion)


def _needed_clamps(decisions: Decisions, assignment: Mapping[Owner, ir.DataType]) -> Decisions:
    """Without the clamps of mask constants that meet FP32 nodes alone."""
    idle = {
        value: path
        for value, path in decisions.paths.items()
        if not any(assignment.get(node) == FP16 for node in path.nodes)
    }
    left = {path.clamped: path.left for path in idle.values()}
    clamps = {value: floor for value, floor in decisions.clamps.items() if value not in idle}
    return replace(decisions, clamps=clamps, masks=[left.get(line, line) for line in decisions.masks])
