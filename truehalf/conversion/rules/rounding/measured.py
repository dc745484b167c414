"""What calibration measured at nodes that amplify rounding: the nodes that stay FP32, by kind of loss.

    limit   2^-7 of the largest element of such a node's output; 0.005 of phases, and where it is steep or a result

float16 rounds a result to 2^-11 of it, so 2^-7 is sixteen roundings: four of eleven bits are lost. What is lost by less
is what a graph of some nodes loses anyway. 0.005 is half of the tolerance of outputs. Of logarithms, roots and
quotients a few samples do not show the largest error: another one comes nearer to where they are steep. Phases, which
the whole of a network reads, cost little in FP32. calibration tried the node alone in FP32, then with more and more of
what it is computed from. What stays FP32 is the first of these steps from which on the error is within half the limit:
the other half is for other samples, and a step whose roundings hide each other by chance, as those of x and of 2 x do,
is followed by one where they do not.

Two kinds have nothing but what was measured, and no pattern.

    underflow  where a row is normalized: rows far smaller than the others, their squares, and sums of exponentials.
               Below 2^-14 float16's values are 2^-24 apart, and 2^-25 is 0: of x^2 all is lost where |x| <= 2^-12.5, of
               exp(x) where x < -17.3. A tensor's range shows none of that, when other rows are large. With
               error(x) / |x| = 2^-25 / |x|, a quotient, root or logarithm exceeds 2^-7 of its largest element where
               |x| < 2^-18, or |x| < 2^-9 of what is squared first.
    inner      sums that go on growing, named as those that overflow: a CumSum that rounds after each term, as float16
               kernels without tensor cores do. A sum of S has an error up to 2^-11 S from each term, and a term below
               2^-12 S adds nothing at all: 1 to 2048, for one. Of n terms of one sign that is up to n 2^-11 of the last
               sum, beyond 2^-7 from n = 17 on; where roundings of both signs cancel, from some hundred on; never of
               whole numbers up to 2048.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from truehalf.calibration.ranges_form import Rounding
from truehalf.conversion.rules.base import Decision, RuleContext, Verdict, on_sample


def decisions(kind: str, context: RuleContext) -> dict[str, Decision]:
    """By name, the nodes that stay FP32 for a kind of loss."""
    rounding = context.ranges.rounding if context.ranges is not None else None
    found: dict[str, Decision] = {}
    for end, entry in (rounding or {}).items():
        if entry.kind == kind and entry.error > entry.limit:
            decision = _decision(end, entry)
            for name in kept(entry):
                found.setdefault(name, decision)
    return found


def measured(kind: str, context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model, of a kind that has no pattern."""
    found = decisions(kind, context) if kind != "inner" or context.precision.inner else {}
    return lambda node, context: found.get(node.name or "")


def is_measured(context: RuleContext) -> bool:
    """Whether calibration looked for such nodes: then what a pattern suggests is no evidence."""
    return context.ranges is not None and context.ranges.rounding is not None


def _decision(end: str, entry: Rounding) -> Decision:
    lost = f"{entry.error:.3g} of the largest element" if entry.error < 1 else "all of it"
    reason = f"float16 here and in front of it changes what {end!r} writes by {lost}{on_sample(entry.sample)}"
    return Decision(Verdict.fp32, entry.kind, reason, entry.error, entry.limit, sample=entry.sample)


def kept(entry: Rounding) -> tuple[str, ...]:
    """Names of the nodes that stay FP32 for a loss; of all steps where none is enough."""
    nodes = entry.steps[-1].nodes if entry.steps else ()
    for step in reversed(entry.steps):
        if step.error > entry.limit / 2:
            break
        nodes = step.nodes
    return nodes
