"""Attention masks: large negative constants that only mask: where a row has others, a Softmax makes them 0.

    softmax(s + m),  m = where(c, C, 0)  or  (1 - mask) * C, through moves       C := max(C, -32768 / k)
    softmax(where(c, C, s)), only moves between                                  C := max(C, -65504)

C is a float32 constant with elements below -65504, or -Inf; k is how many such masks accumulate in front of the
Softmax. As plain float16 they would be -Inf, and a row that is masked all over would be NaN.

The first rule asks of what else is added there (the scores) that calibration found |s| < 32000 and
max s - min s <= 32768 / k - 32. Then the sum stays finite, -32768 - 32000 > -65504, and every masked element stays at
least 32 below every other one, where exp gives 1e-14. Without calibration it does not hold. The second asks of s, where
it was measured, that it stays above -65472.

It is proven by pattern: every use of the constant, and of what is computed from it, must end in a Softmax through these
operators, and none of it may be a graph output. Otherwise the constant stays as it is, and the finding says why.

    moves (Expand, Reshape, Transpose, Slice, Concat, ...), Add, Where, Max; Mul by what is 0 or 1; Shape, Size

A row that is masked all over is another matter, as nothing in it is left to be chosen:

    -Inf added, or chosen                  FP32: NaN                         clamped: softmax(s), or uniform
    finite C added, |C| >> |s|             FP32: uniform, s is rounded off   clamped: softmax(s), in steps of 32
    finite C chosen                        FP32: uniform                     clamped: uniform

A consumer of such a row gets other numbers; models mask whole rows only where they ignore them (padding). A model that
looks for that NaN, to replace it, is left as it is: when -Inf, or several masks that may accumulate to it, can make
one, no IsNaN or IsInf may read what the Softmax gives (`_nan_reader`).

A clamp is needed only where something on the way runs in FP16; where all of it stays FP32 (`Path`), the constant stays
as it is.

Constants with elements between -128 and -65504 that pass the same proof need no clamp: they are exact enough, and
`tolerated` by data_max and init_max.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from truehalf.calibration.ranges_form import Ranges
from truehalf.codes import coded
from truehalf.conversion.masks.spread import MOVES, Facts, Mark, Spread
from truehalf.conversion.rules.facts import facts_of
from truehalf.float16 import MAX
from truehalf.ir.facts import is_op, reached, subgraphs
from truehalf.ir.ops import Trait, with_trait

_LEVEL = 32768.0
_SCORES_MAX = 32000.0
_GAP = 32.0
_KEEPS_NAN = MOVES | with_trait(Trait.KEEPS_NAN)


@dataclass(frozen=True)
class Path:
    """The way of a constant.

    Attributes:
        nodes: those that it passes, up to the Softmaxes and with them.
        clamped: its line among the findings.
        left: the line that stands there instead when all nodes stay FP32.
    """

    nodes: tuple[ir.Node, ...]
    clamped: str
    left: str


@dataclass
class Masks:
    """What was found.

    Attributes:
        clamps: by constant, what its elements below become.
        paths: by clamped constant, the way that it goes.
        exempt: names of the tensors on the paths of clamped constants, which no range rule need judge.
        tolerated: names of those on the paths of other mask constants; data_max and init_max need not judge them.
        findings: one line for each constant that is proven to mask.
        refused: one line for each that float16 does not hold and that is not.
    """

    clamps: dict[ir.Value, float] = field(default_factory=dict)
    paths: dict[ir.Value, Path] = field(default_factory=dict)
    exempt: set[str] = field(default_factory=set)
    tolerated: set[str] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def find_masks(model: ir.Model, ranges: Ranges | None, facts: Facts = facts_of) -> Masks:
    """Find mask constants and what they may become.

    Args:
        model: normalized.
        ranges: what was measured; None: only a Where directly before the Softmax is clamped.
        facts: of a value, None of what is no constant; where they are known already.
    """
    return _judged(Spread(model, ranges, facts))


def _judged(spread: Spread) -> Masks:
    levels = dict.fromkeys(spread.clamped, -MAX)
    ended: set[ir.Value] = set()
    for _, mark in spread.ends:
        level = -_LEVEL / max(1, mark.stacked) if mark.computed else -MAX
        levels.update((constant, max(levels[constant], level)) for constant in mark.constants)
        ended.update(mark.constants)
    leaving = _leaving(spread.nodes)
    for node, mark in spread.ends:
        problem = _end_problem(node, mark, max(levels[constant] for constant in mark.constants))
        problem = problem or _nan_check_problem(spread, node, mark, leaving)
        if problem is not None:
            spread.reject(mark, problem)
    for constant in spread.clamped:
        if constant not in ended:
            spread.rejected.setdefault(constant, "no Softmax reads it")
    _share_rejections(spread)
    masks = Masks()
    for constant, clamped in spread.clamped.items():
        facts = spread.facts(constant)
        before = "-inf" if facts is None or facts.neginf else f"{facts.lowest:.4g}"
        if constant in spread.rejected:
            masks.refused += [f"{constant.name!r} ({before}) is not clamped: {spread.rejected[constant]}"] * clamped
        elif clamped:
            level = masks.clamps[constant] = float(np.float16(levels[constant]))
            line = f"{constant.name!r} ({before}) only masks"
            path = Path(tuple(spread.passed[constant]), f"{line}: clamped to {level:g}", f"{line}, in FP32 nodes only")
            masks.paths[constant] = path
            masks.findings.append(path.clamped)
        else:
            masks.findings.append(f"{constant.name!r} ({before}) only masks")
    for value, mark in spread.marked.items():
        if value.name and not any(constant in spread.rejected for constant in mark.constants):
            (masks.exempt if mark.stacked else masks.tolerated).add(value.name)
    return masks


def _nan_check_problem(
    spread: Spread, node: ir.Node, mark: Mark, leaving: Mapping[ir.Value, list[ir.Value]]
) -> str | None:
    """Why the consumers of a Softmax forbid a clamp, which removes the NaN of a row that is masked all over."""
    infinite = any((facts := spread.facts(constant)) is not None and facts.neginf for constant in mark.constants)
    reader = _nan_reader(node.outputs[0], leaving) if infinite or mark.stacked > 1 else None
    if reader is None:
        return None
    return f"{reader.op_type} {reader.name!r} looks for the NaN of a fully masked row after Softmax {node.name!r}"


def _nan_reader(value: ir.Value, leaving: Mapping[ir.Value, list[ir.Value]]) -> ir.Node | None:
    """An IsNaN or IsInf that reads a value, or what keeps the NaN in it, out of subgraphs as well."""

    def kept(value: ir.Value) -> list[ir.Value]:
        keeping = (node for node in value.consumers() if is_op(node, *_KEEPS_NAN))
        return [*leaving.get(value, ()), *(result for node in keeping for result in node.outputs)]

    readers = (node for each in reached([value], kept) for node in each.consumers())
    return next((node for node in readers if is_op(node, "IsNaN", "IsInf")), None)


def _share_rejections(spread: Spread) -> None:
    """A constant that meets a rejected one in some value is not safe either."""
    meetings: dict[ir.Value, list[Mark]] = {}
    for mark in spread.marked.values():
        for constant in mark.constants if len(mark.constants) > 1 else ():
            meetings.setdefault(constant, []).append(mark)
    waiting = list(spread.rejected)
    while waiting:
        other = waiting.pop()
        for mark in meetings.pop(other, ()):
            waiting += [constant for constant in mark.constants if constant not in spread.rejected]
            spread.reject(mark, spread.rejected[other])


def _end_problem(node: ir.Node, mark: Mark, level: float) -> str | None:
    """Why a Softmax does not allow its masks the level; the one nearest to 0, where they have several."""
    if not mark.stacked:
        return None
    if level == -MAX and not mark.computed:
        low = 0.0 if mark.rest is None else mark.rest[0]
        return None if low >= _GAP - MAX else f"the scores before Softmax {node.name!r} go down to {low:.6g}"
    if mark.rest is None:
        return coded("not-measured", f"the scores before Softmax {node.name!r} were not measured")
    low, high = mark.rest
    if max(-low, high) >= _SCORES_MAX:
        return f"the scores before Softmax {node.name!r} reach |s| = {max(-low, high):.6g}; expected below 32000"
    if high - low > -level - _GAP:
        return f"the scores before Softmax {node.name!r} span {high - low:.6g}; expected at most {-level - _GAP:g}"
    return None


def _leaving(nodes: list[ir.Node]) -> dict[ir.Value, list[ir.Value]]:
    """By output of a subgraph, what the node that holds the subgraph writes."""
    found: dict[ir.Value, list[ir.Value]] = {}
    for node in nodes:
        for value in (value for subgraph in subgraphs(node) for value in subgraph.outputs):
            found.setdefault(value, []).extend(node.outputs)
    return found
