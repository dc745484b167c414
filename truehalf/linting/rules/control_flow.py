"""Branches and loops: If, Loop, Scan.

    if-from-squeeze      If(size(x, i) == 1, Squeeze(x, i), Identity(x)): two ranks
    rope-tile            Tile of what comes out of If: torch.tile, as rotary positions use it
    data-dependent-if    any other If whose condition varies, or whose branches differ in rank
    data-dependent-loop  Loop whose trip count or condition is computed from data

A branch that a condition rules out which every run has the same (CONSTANT: fixed sizes decide it) is dropped when the
graph is folded, and so is no finding. Tile is one all the same: users report files where TensorRT refuses just that.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, subgraphs
from truehalf.linting.base import MOVES, REFUSED, Check, LocatedFinding, Rule, Subject, rank, upstream
from truehalf.linting.sizes import constant
from truehalf.linting.values import Origin


class IfFromSqueeze(Rule):
    """squeeze without a known size: an If whose branches differ in rank

    `x.squeeze(1)` becomes `If(size == 1, Squeeze(x), Identity(x))` where the exporter does not know the size of axis 1.
    The branches differ in rank, and TensorRT requires one rank: `IIfConditionalOutputLayer inputs must have the same
    shape`. There is no finding where the file states the size: the `If` then folds away.

    ```python
    y = clip.squeeze(1)  # instead: clip[:, 0], or clip.reshape(...) with known sizes
    ```

    Repair pass: `squeeze_if`, where a Conv, Transpose or Gemm after it needs one of the ranks.
    """

    id, severity = "if-from-squeeze", "error"
    source = "TensorRT's operator matrix (If); NVIDIA/TensorRT#1731, #2846"
    compiled = REFUSED


class RopeTile(Rule):
    """Tile after If: rotary positions computed in the graph

    `torch.tile` is exported with two `If`, one for each way in which tensor and repeats may differ in rank; their
    branches differ in shape. Where fixed sizes decide the condition, TensorRT 10.13 folds it. Error for versions
    before: 10.3, as on JetPack 6, refuses the file.

    ```python
    angles.tile(2)
    torch.cat([angles, angles], -1)  # instead; best of all, cosines and sines as buffers, made once in __init__
    ```

    Repair passes: `fold_constants`, `rope_constants`.
    """

    id, severity = "rope-tile", "info"
    source = "NVIDIA/TensorRT#4558 (10.3 refuses what 10.13 builds), #4603"


class DataDependentIf(Rule):
    """a branch on a tensor's value or size

    Error where the branches differ in rank. The condition of the `If` varies with data or with a size. TensorRT fuses
    nothing across its borders and captures no CUDA graph. A condition that is the same in every run folds away and is
    no finding.

    ```python
    y = a if score.max() > 0 else b  # scripted
    c = (score.max() > 0).float()  # instead; both branches must be finite: 0 * inf is NaN
    y = c * a + (1 - c) * b
    ```
    """

    id = "data-dependent-if"
    source = "NVIDIA's guidance on exporting for TensorRT; TensorRT's operator matrix (If)"


class DataDependentLoop(Rule):
    """a loop whose trip count is computed from data

    The trip count or condition of the `Loop` is computed from data. TensorRT runs it round by round. Only a run knows
    how many results are stacked. Loops over a fixed number, or over a size, are no finding.

    ```python
    for _ in range(int(rounds.max())):
        x = step(x)  # scripted
    for i in range(ROUNDS):
        x = x + (rounds.max() > i).float() * (step(x) - x)  # instead
    ```
    """

    id = "data-dependent-loop"
    source = "NVIDIA's guidance on exporting for TensorRT; TensorRT's operator matrix (Loop)"


_MOVES = MOVES | {"Concat"}
_FOLDED_SINCE = (10, 13)  # an If that fixed sizes decide (NVIDIA/TensorRT#4558)


def squeezes(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("If"):
        if (axis := squeezed_axis(node)) is not None and not _decided(node, subject):
            yield IfFromSqueeze.at(
                node,
                f"squeeze({axis}) was exported as a question at run time, because the size of that axis was not known; "
                "its branches differ in rank, and TensorRT builds no such If.",
                "Take the element (x[:, 0] for axis 1), or reshape; repair pass squeeze_if where an operator after it "
                "shows the intended rank.",
            )


def _decided(node: ir.Node, subject: Subject) -> bool:
    """Whether every run takes the same branch of an If."""
    return subject.values.origin(node.inputs[0]) is Origin.CONSTANT


def squeezed_axis(node: ir.Node) -> str | None:
    """The axes of an If that squeezes one value in one branch and passes it on in the other; None: it is another If."""
    branches = [branch for branch in subgraphs(node) if len(branch.outputs) == 1]
    if len(branches) != 2:
        return None
    made = [upstream(branch.outputs[0], {"Identity"}) for branch in branches]
    for squeeze, branch in zip(made, reversed(branches), strict=True):
        if squeeze is None or not is_op(squeeze, "Squeeze"):
            continue
        passed = branch.outputs[0].producer()
        if is_op(passed, "Identity") and passed is not None and passed.inputs[0] is squeeze.inputs[0]:
            given = constant(squeeze.inputs[1]) if len(squeeze.inputs) > 1 else None
            axes = given.numpy().ravel().tolist() if given is not None else squeeze.attributes.get_ints("axes", ())
            return ", ".join(str(axis) for axis in axes)
    return None


def tiles(subject: Subject) -> Iterator[LocatedFinding]:
    refused = any(version < _FOLDED_SINCE for version in subject.versions)
    for node in subject.of_type("Tile"):
        sources = [upstream(value, _MOVES) for value in node.inputs]
        if any(is_op(source, "If") and source is not None and _decided(source, subject) for source in sources):
            yield RopeTile.at(
                node,
                "torch.tile asks in the graph which of tensor and repeats has fewer axes, with an If whose branches "
                "differ in shape. Fixed sizes decide it; TensorRT 10.3 refuses it all the same, 10.13 folds it.",
                "Repeat with torch.cat([x, x], -1), or compute cosines and sines once, in __init__; repair passes "
                "fold_constants and rope_constants.",
                "error" if refused else None,
            )


def ifs(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("If"):
        if squeezed_axis(node) is not None or _decided(node, subject):
            continue
        unequal = _unequal_rank(node)
        if unequal:
            yield DataDependentIf.at(
                node,
                f"Its branches differ in rank ({unequal}); TensorRT builds no such If.",
                "Give both branches one rank, or fold the condition where it never changes; repair pass "
                "fold_constants.",
                "error",
            )
        else:
            of = "a size that varies" if subject.values.origin(node.inputs[0]) is Origin.SHAPE else "data"
            yield DataDependentIf.at(
                node,
                f"Its condition is computed from {of}: TensorRT cannot fuse across its borders, and captures no CUDA "
                "graph of it.",
                "Compute both branches and mix them: c * a + (1 - c) * b; where branches differ in size, pad them.",
            )


def _unequal_rank(node: ir.Node) -> str:
    """What differs between the branches of an If; "": nothing that is known."""
    branches = subgraphs(node)
    for other in branches[1:]:
        for a, b in zip(branches[0].outputs, other.outputs, strict=False):
            ranks = rank(a), rank(b)
            if None not in ranks and ranks[0] != ranks[1]:
                return f"{ranks[0]} and {ranks[1]} axes"
    return ""


def loops(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Loop"):
        count, condition = [*node.inputs[:2], None, None][:2]
        origins = subject.values
        by_count = origins.origin(count) > Origin.SHAPE
        subgraph = subgraphs(node)[0] if subgraphs(node) else None
        by_condition = subgraph is not None and bool(subgraph.outputs) and _varies(subject, subgraph.outputs[0])
        if not by_count and not by_condition and origins.origin(condition) <= Origin.SHAPE:
            continue
        what = "trip count" if by_count else "condition"
        scans = subgraph is not None and len(subgraph.outputs) > len(node.inputs) - 1
        yield DataDependentLoop.at(
            node,
            f"Its {what} is computed from data"
            + (
                ", and it stacks a result of each round, as many as only a run knows."
                if scans
                else ": TensorRT runs it round by round, with nothing fused across rounds."
            ),
            "Vectorise it; or run the largest number of rounds, and let those beyond the count change nothing.",
        )


def _varies(subject: Subject, condition: ir.Value) -> bool:
    """Whether the condition that a subgraph hands on is computed in it, and not the one that came in."""
    node = upstream(condition, {"Identity", "Cast"})
    if node is None or constant(condition) is not None:
        return False
    return subject.values.origin(condition) is Origin.DATA


RULES: tuple[type[Rule], ...] = (IfFromSqueeze, RopeTile, DataDependentIf, DataDependentLoop)
CHECKS: tuple[Check, ...] = (squeezes, tiles, ifs, loops)
