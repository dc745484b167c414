"""Precision of each node, FP32 or FP16, with the reason. The first rule that applies decides:

    no_fp16_kernel, quantized, subgraph, any_type    the graph itself settles it (truehalf.conversion.rules.structure)
    shape_arithmetic                  it decides a shape, an index or a trip count
    (truehalf.conversion.shape_arithmetic)
    overflow                          a measured |x| that float16 cannot hold
    op_include_list, node_, scope_, pattern_         listed: FP16, whatever the block lists and candidate rules say
    op_block_list, node_, scope_, pattern_           listed: FP32
    measured                          a check of an earlier conversion has found that it must stay FP32
    declared, init_max, data_max, inner, epsilon,    candidate rules: FP32 (truehalf.conversion.rules)
    variance, reduction_depth, custom_rule, unmeasured
    fp16_ops                          operator types that run in FP16 whatever their casts cost; by default matrix
                                      products and convolutions
    fused_attention                   FP16 keeps an attention fused (truehalf.conversion.rules.attention)
    none                              free: whatever is cheaper

No list overrides the first three lines. With rules="autocast", overflow and fused_attention do not speak, and of the
candidate rules only init_max, data_max and reduction_depth do.

A node is judged by the float32 tensors that would become float16 with it, never by integers, nor by those that stay
float32 anyway. Attention masks (truehalf.conversion.masks) are judged by no range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.calibration.ranges_form import Ranges
from truehalf.config.precision import Precision, RuleSet
from truehalf.conversion.masks import Masks, find_masks
from truehalf.conversion.rules import limits
from truehalf.conversion.rules.attention import keep_fused
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict
from truehalf.conversion.rules.custom import custom, custom_rule_of, declared
from truehalf.conversion.rules.epsilons import epsilons
from truehalf.conversion.rules.structure import is_judged, sealed_nodes, structure
from truehalf.conversion.rules.variance import variance
from truehalf.conversion.shape_arithmetic import ShapeArithmetic, shape_arithmetic
from truehalf.ir.facts import all_nodes, is_op
from truehalf.ir.patterns import is_named
from truehalf.ir.selectors import Lists, Selection, Selector, select, selectors, unmatched_message

Rule = Callable[[ir.Node, RuleContext], Decision | None]


@dataclass(frozen=True)
class Decisions:
    """What was decided.

    Attributes:
        nodes: every node that has a float32 input or output, in graph order, subgraphs included.
        unmatched: selectors that matched no node.
        warnings: one line each.
        masks: constants below -65504 that only mask.
        exact: values that decide a shape, an index or a trip count.
        unfused: attentions that the decisions do not leave in one kernel, by name of the Softmax, and why.
    """

    nodes: dict[ir.Node, Decision]
    unmatched: list[Selector] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    masks: list[ir.Value] = field(default_factory=list)
    exact: frozenset[ir.Value] = frozenset()
    unfused: dict[str, str] = field(default_factory=dict)


def decide(
    model: ir.Model,
    ranges: Ranges | None,
    precision: Precision,
    pins: Mapping[str, Decision] | None = None,
) -> Decisions:
    """Judge every node that has a float32 input or output.

    Args:
        model: normalized (names, types known). Nothing in it is changed.
        ranges: what was measured; None: no range rule speaks.
        precision: thresholds and lists.
        pins: by node name, the decision that a check of an earlier conversion came to.

    Raises:
        StageError: a custom rule that cannot be imported.
    """
    blocks, includes = selectors(_lists(precision, "block"), _lists(precision, "include"))
    blocked, included = select(model, blocks), select(model, includes)
    unmatched = [*blocked.unmatched, *included.unmatched]
    warnings = [unmatched_message(selector, model) for selector in unmatched]
    custom_rule = None if precision.custom_rule is None else custom_rule_of(precision.custom_rule)
    context = RuleContext(model, ranges, precision, custom_rule)
    finds_masks = precision.masks and precision.rules is RuleSet.default
    masks = find_masks(model, ranges, context.constant) if finds_masks else Masks()
    context.masking = masks.tensors
    region = shape_arithmetic(model)
    judge = _Judge(context, blocked, included, region, pins or {})
    nodes = {node: judge.decision(node) for node in all_nodes(model) if is_judged(node)}
    unfused = keep_fused(model, nodes, decides=precision.rules is RuleSet.default)
    return Decisions(nodes, unmatched, [*warnings, *masks.refused], masks.clamped, frozenset(region.values), unfused)


def _lists(precision: Precision, use: str) -> Lists:
    return Lists(*(tuple(getattr(precision, f"{kind}_{use}_list")) for kind in ("op", "node", "scope", "pattern")))


class _Judge:
    def __init__(
        self,
        context: RuleContext,
        blocked: Selection,
        included: Selection,
        region: ShapeArithmetic,
        pins: Mapping[str, Decision],
    ) -> None:
        self._context, self._blocked, self._included, self._region = context, blocked, included, region
        self._pins = pins
        self._sealed = sealed_nodes(context.model)
        self._candidate_rules = _candidate_rules(context)

    def decision(self, node: ir.Node) -> Decision:
        include = self._included.nodes.get(node)
        settled = structure(node, self._context, self._sealed.get(node), include is not None)
        if settled is None and (decided := self._region.nodes.get(node)) is not None:
            reason = f"it decides {decided}: shapes, indices and trip counts are computed in FP32"
            settled = Decision(Verdict.fp32, "shape_arithmetic", reason)
        if settled is None and self._context.precision.rules is RuleSet.default:
            settled = limits.overflow(node, self._context)
        if settled is not None:
            return settled
        if include is not None:
            return self._include(node, include)
        return self._blocked_by(node) or self._pins.get(node.name or "") or self._candidate(node) or self._rest(node)

    def _include(self, node: ir.Node, include: Selector) -> Decision:
        beaten = [found for found in (self._blocked_by(node), self._candidate(node)) if found is not None]
        against = "; against " + "; ".join(f"{found.rule} ({found.reason})" for found in beaten) if beaten else ""
        return Decision(Verdict.fp16, include.list_name, f"listed in {include}{against}")

    def _blocked_by(self, node: ir.Node) -> Decision | None:
        block = self._blocked.nodes.get(node)
        return None if block is None else Decision(Verdict.fp32, block.list_name, f"listed in {block}")

    def _candidate(self, node: ir.Node) -> Decision | None:
        findings = (rule(node, self._context) for rule in self._candidate_rules)
        return next((found for found in findings if found is not None), None)

    def _rest(self, node: ir.Node) -> Decision:
        precision = self._context.precision
        wanted = next((text for text in precision.wanted_in_fp16 if is_named(node, text)), None)
        if wanted is not None and (precision.fp16_ops is not None or not _is_quantized(node)):
            return Decision(Verdict.fp16, "fp16_ops", f"{wanted} is wanted in FP16")
        return Decision(Verdict.free, "none", "no rule keeps it FP32")


def _is_quantized(node: ir.Node) -> bool:
    """True if a node reads dequantized integers: it runs in INT8, unless a cast comes between."""
    return any(value is not None and is_op(value.producer(), "DequantizeLinear") for value in node.inputs)


def _candidate_rules(context: RuleContext) -> list[Rule]:
    if context.precision.rules is RuleSet.autocast:
        return [limits.init_max, limits.data_max, limits.depth]
    return [
        declared,
        limits.init_max,
        limits.data_max,
        limits.inner,
        epsilons(context),
        variance(context),
        limits.depth,
        custom,
        limits.unmeasured,
    ]
