"""Sizes and positions that are computed from data.

    nonzero-threshold          NonZero(scores > t), whose positions are used
    bool-index                 NonZero(mask) of another boolean, whose positions are used: x[mask], x[mask] = v
    data-dependent-size        NonZero of numbers, whose positions are used; NonMaxSuppression
    range-of-execution-tensor  Range whose limits are DATA
    dynamic-slice              Slice whose limits are DATA, a loop's round, or an input
    reshape-allowzero          Reshape of what may be empty, to sizes that may be 0
    may-be-empty               a row that is read from what may be empty, or written into it: x[0], x[:, 0] = v

A NonZero that is only counted (its result is read only by Shape) is the form that TensorRT builds.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, reached, readers_of
from truehalf.ir.ops import Trait, has
from truehalf.linting.base import MOVES, NO_NONZERO, Check, LocatedFinding, Rule, Subject, rank, upstream
from truehalf.linting.sizes import constant
from truehalf.linting.values import Origin


class NonzeroThreshold(Rule):
    """detections chosen by a threshold: NonZero over a comparison

    `x[scores > t]` is `NonZero` over a comparison of floats: the number of rows is known only in a run. TensorRT waits
    for the device there, and every later size varies from image to image.

    ```python
    kept = boxes[scores > 0.5]
    best, index = scores.topk(100)  # instead: a fixed number; threshold outside the engine
    kept = boxes[index]
    ```

    Repair pass: `bool_index`, for the sum of such rows.
    """

    id = "nonzero-threshold"
    source = "NVIDIA's guidance on exporting for TensorRT"
    compiled = NO_NONZERO


class BoolIndex(Rule):
    """indexing with a boolean tensor: NonZero, GatherND, ScatterND

    `x[mask]` and `x[mask] = v` with another boolean tensor: `NonZero`, `GatherND` and `ScatterND` with sizes that only
    a run knows. A mask that is only counted (`mask.nonzero().shape[0]`) is no finding.

    ```python
    state[seen] = update[seen]
    seen = seen.float()[:, None]  # instead
    state = state * (1 - seen) + update * seen
    ```

    Repair pass: `bool_index`. A fixed number of rows: "first rows of a mask" of docs/how-to/trt-friendly.md.
    """

    id = "bool-index"
    source = "NVIDIA's guidance on exporting for TensorRT"
    compiled = NO_NONZERO


class DataDependentSize(Rule):
    """a size that only a run knows: NonZero of numbers, NonMaxSuppression

    Warning for `NonZero` of numbers whose positions are used (`x.nonzero()`); info for
    `NonMaxSuppression`. Both build. TensorRT waits for the device, sizes all that follows for the worst case, and
    captures no CUDA graph. A `NonZero` that is only counted is no finding.

    ```python
    features[labels.nonzero()[:, 0]].sum(0)
    (features * (labels > 0).float()[:, None]).sum(0)  # instead: all rows, weighted by a mask
    ```

    A fixed number of rows: "first rows of a mask" of docs/how-to/trt-friendly.md.
    """

    id = "data-dependent-size"
    source = "NVIDIA's guidance on exporting for TensorRT; TensorRT's documentation of data-dependent shapes"
    compiled = NO_NONZERO


class Range(Rule):
    """arange over a number that is computed on the device

    A `Range` over a number that is computed on the device, so that only a run knows the size of all that follows.
    TensorRT for RTX builds it, and refuses the `NonZero` of the line below it.

    ```python
    torch.arange(mask.sum())
    torch.arange(mask.nonzero().shape[0])  # where a TensorRT refuses the line above
    ```
    """

    id = "range-of-execution-tensor"
    source = "NVIDIA's guidance on exporting for TensorRT (shape tensors and execution tensors)"


class DynamicSlice(Rule):
    """a slice whose ends are computed from data

    A slice starts or ends at a number that is computed on the device, so that only a run knows its size; or at the
    round of a `Loop` (scripted `x[i : i + 1]`), which TensorRT for RTX refuses: `x.index_select(0, i)` needs no size.
    Info where it does at the value of an input: that becomes a shape-tensor input, and `engine.profiles` gives its
    values. A slice along sizes is no finding.

    ```python
    points[:, : lengths.max()].sum(1)
    kept = torch.arange(points.shape[1]) < lengths.max()  # instead
    (points * kept.float()[None, :, None]).sum(1)
    ```

    Where the rows themselves are needed: `points.index_select(1, kept.long().nonzero()[:, 0])`, which is no `Slice`;
    still, only a run knows its size (`data-dependent-size`).
    """

    id = "dynamic-slice"
    source = "NVIDIA's guidance on exporting for TensorRT"


class ReshapeAllowzero(Rule):
    """a reshape of a tensor that may be empty, without allowzero

    A `Reshape` without `allowzero` of a tensor that may be empty, to computed sizes. A size of 0 then means "as in the
    input", not "none".

    ```python
    kept.reshape(2, kept.shape[0] // 2, index.shape[0])  # index may be empty
    kept.reshape(2, 4, -1)  # instead: infer the size that may be 0
    ```

    Repair pass: `allowzero`.
    """

    id = "reshape-allowzero"
    source = "NVIDIA's guidance on exporting for TensorRT; ONNX's definition of Reshape"


class MayBeEmpty(Rule):
    """reading a row of a tensor that may be empty, or writing into one

    A row is read at a fixed place of a tensor that may have no rows (`x[0]`, `zeros_like(x[0])`), or written into such
    a tensor (`x[:, 0] = v`). The first fails on an image where nothing is selected; the second has failed to build.

    ```python
    torch.zeros_like(kept[0])
    torch.zeros_like(tokens[0])  # instead: of what is never empty
    kept[:, 0] = 1.0
    kept = torch.cat([torch.ones_like(kept[:, :1]), kept[:, 1:]], 1)  # instead
    ```
    """

    id, severity = "may-be-empty", "info"
    source = "NVIDIA's guidance on exporting for TensorRT (assignment into empty tensors, zeros_like)"


_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}


def nonzeros(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("NonZero"):
        mask = node.inputs[0]
        if subject.values.origin(mask) <= Origin.SHAPE or not _positions_used(node, subject):
            continue
        source = upstream(mask, MOVES)
        if _compares_floats(source):
            yield NonzeroThreshold.at(
                node,
                "As many rows as pass a threshold: a size that only a run knows. TensorRT waits for the device there, "
                "and everything after it runs with sizes that vary from image to image.",
                "Take a fixed number with torch.topk, and threshold outside the engine.",
            )
        elif (mask is not None and mask.dtype == ir.DataType.BOOL) or _is_boolean(source):
            yield BoolIndex.at(
                node,
                "A boolean index becomes positions whose number only a run knows. TensorRT waits for the device there, "
                "and refuses some uses of such a size.",
                "Mix by arithmetic (x * (1 - m) + v * m), or weigh by the mask; repair pass bool_index.",
            )
        else:
            yield DataDependentSize.at(
                node,
                "As many positions as there are numbers that are not 0, which only a run knows. TensorRT waits for the "
                "device there, and sizes all that follows for the worst case.",
                "Keep all rows, and weigh them by a mask; or take a fixed number with torch.topk.",
            )


def suppressions(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("NonMaxSuppression"):
        if _positions_used(node, subject):
            yield DataDependentSize.at(
                node,
                "As many boxes as do not overlap, which only a run knows. TensorRT waits for the device there, and "
                "sizes all that follows for the worst case.",
                "Suppress outside the engine; or use a plugin that pads to a fixed number, such as EfficientNMS_TRT.",
                "info",
            )


def _positions_used(node: ir.Node, subject: Subject) -> bool:
    """Whether something besides Shape and Size reads what was found."""
    moved = {node, *(each for each in reached(readers_of(node), _moves_to))}
    ends = [each for each in moved if each is not node and not is_op(each, *MOVES)]
    return any(not has(each, Trait.SHAPE_ONLY) for each in ends) or any(
        value in subject.outputs for each in moved - {*ends} for value in each.outputs
    )


def _moves_to(node: ir.Node) -> list[ir.Node]:
    return readers_of(node) if is_op(node, *MOVES) else []


def _is_boolean(node: ir.Node | None) -> bool:
    return has(node, Trait.COMPARES | Trait.LOGIC)


def _compares_floats(node: ir.Node | None) -> bool:
    """Whether a boolean is computed from a comparison of floats."""

    def parts(node: ir.Node) -> list[ir.Node | None]:
        return [upstream(value, MOVES) for value in node.inputs] if has(node, Trait.LOGIC) else []

    return any(
        has(each, Trait.COMPARES) and any(value is not None and value.dtype in _FLOATS for value in each.inputs)
        for each in reached([node], parts)
    )


def ranges(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Range"):
        if any(subject.values.origin(value) is Origin.DATA for value in node.inputs):
            yield Range.at(
                node,
                "Its limits are computed on the device, so that only a run knows the size of all that follows.",
                "Take the size of a tensor. Where a TensorRT refuses it: mask.nonzero().shape[0] instead of "
                "mask.sum().",
            )


_SLICES = {  # by who knows where a slice starts or ends: severity, what is wrong, what to write instead
    Origin.DATA: (
        "warning",
        "Where it starts or ends is computed on the device, so that only a run knows its size.",
        "Keep all rows, and mask those beyond the end.",
    ),
    Origin.ROUND: (
        "warning",
        "Where it starts or ends is computed from the number of the loop's round. Whether TensorRT knows that on the "
        "host is not documented.",
        "Take the row with index_select: a Gather takes its place on the device, too.",
    ),
    Origin.INPUT: (
        "info",
        "Where it starts or ends is the value of an input, which becomes a shape-tensor input of the engine.",
        "Give that input's values (not its shape) in engine.profiles; or keep all rows, and mask.",
    ),
}


def slices(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Slice"):
        origin = max((subject.values.origin(value) for value in node.inputs[1:]), default=Origin.CONSTANT)
        if origin in _SLICES:
            severity, message, remedy = _SLICES[origin]
            yield DynamicSlice.at(node, message, remedy, severity)


def reshapes(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Reshape"):
        data, sizes = node.inputs[0], node.inputs[1]
        if node.attributes.get_int("allowzero", 0) or not subject.values.sized_by_data(data):
            continue
        if subject.values.counted(sizes):
            yield ReshapeAllowzero.at(
                node,
                "Its input may be empty, and so a size that it is given may be 0, which means 'as it is in the input' "
                "and not 'none'.",
                "Let the size that may be 0 be the one that reshape infers (-1), or set allowzero=1; repair pass "
                "allowzero.",
            )


def empties(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Gather", "Scatter", "ScatterElements", "ScatterND"):
        data = node.inputs[0]
        if data is None or not subject.values.sized_by_data(data) or not rank(data) or data.shape is None:
            continue
        if node.op_type != "Gather":
            yield MayBeEmpty.at(
                node,
                "It writes into a tensor that may be empty: its size is known only in a run.",
                "Put the parts together: torch.cat([torch.ones_like(x[:, :1]) * v, x[:, 1:]], 1).",
            )
            continue
        varies = not isinstance(data.shape[node.attributes.get_int("axis", 0)], int)
        if varies and constant(node.inputs[1]) is not None:
            yield MayBeEmpty.at(
                node,
                "It reads a row at a fixed place of a tensor that may be empty, where there is none.",
                "Take shapes and types of a tensor that never is (torch.zeros_like(x[0]) of the tensor before it was "
                "selected from); or add a row first.",
            )


RULES: tuple[type[Rule], ...] = (
    NonzeroThreshold,
    BoolIndex,
    DataDependentSize,
    Range,
    DynamicSlice,
    ReshapeAllowzero,
    MayBeEmpty,
)
CHECKS: tuple[Check, ...] = (nonzeros, suppressions, ranges, slices, reshapes, empties)
