"""Branches and loops: If and Loop.

A branch that a condition rules out which every run has the same (CONSTANT: fixed sizes decide it) is dropped when the
graph is folded, and so is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of, subgraphs
from truehalf.patterns.frame import Match, Pattern, Subject, moved_from
from truehalf.patterns.origins import Origin, constant


class IfFromSqueeze(Pattern):
    """squeeze without a known size: an If whose branches differ in rank

    A squeeze was exported as a question at run time, because the size of its axis was not known; its branches differ in
    rank, and TensorRT builds no such If.

    Instead: Take the element (x[:, 0] for axis 1), or reshape; or fix the size of the axis when exporting.

    `x.squeeze(1)` becomes `If(size == 1, Squeeze(x), Identity(x))` where the exporter does not know the size of axis 1.
    TensorRT requires one rank: `IIfConditionalOutputLayer inputs must have the same shape`. There is no finding where
    the file states the size: the `If` then folds away.

    ```python
    y = clip.squeeze(1)  # instead: clip[:, 0], or clip.reshape(...) with known sizes
    ```

    Source: TensorRT's operator matrix (If); NVIDIA/TensorRT#1731, #2846.
    """

    id, severity, op_types = "if-from-squeeze", "error", ("If",)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        return _squeezes(node) and not is_decided(node, subject)


class DataDependentIf(Pattern):
    """a branch on a tensor's value or size

    Its condition is known only in a run: TensorRT cannot fuse across its borders, and captures no CUDA graph of it.

    Instead: Compute both branches and mix them: c * a + (1 - c) * b; where branches differ in rank or size, pad them;
    or fix the sizes that decide.

    Error where the branches differ in rank. The condition varies with data or with a size. A condition that is the same
    in every run folds away and is no finding.

    ```python
    y = a if score.max() > 0 else b  # scripted
    c = (score.max() > 0).float()  # instead; both branches must be finite: 0 * inf is NaN
    y = c * a + (1 - c) * b
    ```

    Source: NVIDIA's guidance on exporting for TensorRT; TensorRT's operator matrix (If).
    """

    id = "data-dependent-if"

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in subject.of_type("If"):
            if not _squeezes(node) and not is_decided(node, subject):
                results = zip(*(branch.outputs for branch in subgraphs(node)), strict=False)
                ranks = [{len(value.shape) for value in values if value.shape is not None} for values in results]
                if any(len(each) > 1 for each in ranks):
                    yield Match(node, "Its branches differ in rank; TensorRT builds no such If.", severity="error")
                else:
                    yield Match(node)


class DataDependentLoop(Pattern):
    """a loop whose trip count is computed from data

    Its trip count or condition is computed from data: TensorRT runs it round by round, with nothing fused across
    rounds.

    Instead: Vectorise it; or run the largest number of rounds, and let those beyond the count change nothing.

    Only a run knows how many results are stacked. Loops over a fixed number, or over a size, are no finding.

    ```python
    for _ in range(int(rounds.max())):
        x = step(x)  # scripted
    for i in range(ROUNDS):
        x = x + (rounds.max() > i).float() * (step(x) - x)  # instead
    ```

    Source: NVIDIA's guidance on exporting for TensorRT; TensorRT's operator matrix (Loop).
    """

    id, op_types = "data-dependent-loop", ("Loop",)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        origin = max((subject.values.origin(value) for value in node.inputs[:2]), default=Origin.CONSTANT)
        (body,) = subgraphs(node)
        return origin > Origin.SHAPE or _goes_on_by_data(body.outputs[0], subject)


def is_decided(node: ir.Node, subject: Subject) -> bool:
    """Return True if every run takes the same branch of an If."""
    return subject.values.origin(node.inputs[0]) is Origin.CONSTANT


def _squeezes(node: ir.Node) -> bool:
    """Return True for an If that squeezes a value in one branch and passes it on in the other."""
    results = [branch.outputs[0] for branch in subgraphs(node) if len(branch.outputs) == 1]
    for result, other in zip(results, reversed(results), strict=True):
        squeeze, passed = moved_from(result, {"Identity"}), producer_of(other, "Identity")
        if is_op(squeeze, "Squeeze") and passed is not None and passed.inputs[0] is squeeze.inputs[0]:
            return True
    return False


def _goes_on_by_data(condition: ir.Value, subject: Subject) -> bool:
    """Return True if a loop computes its condition anew, rather than passing on the one that came in."""
    if moved_from(condition, {"Identity", "Cast"}) is None or constant(condition) is not None:
        return False
    return subject.values.origin(condition) is Origin.DATA


PATTERNS = (IfFromSqueeze(), DataDependentIf(), DataDependentLoop())
