"""Sizes and positions that are computed from data.

A NonZero that is only counted (its result is read only by Shape) is the form that TensorRT builds.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import FLOATS, constant_of, is_op, lengths_of, producer_of, reached, readers_of, upstream
from truehalf.ir.ops import Trait, has
from truehalf.patterns.frame import MOVES, NO_NONZERO, Match, Pattern, Subject, moved_from
from truehalf.patterns.origins import Origin, constant
from truehalf.patterns.rewrite import NotEqualError, Writer, fix_each

_WRITES = ("ScatterElements", "ScatterND")


class NonzeroThreshold(Pattern):
    """detections chosen by a threshold: NonZero over a comparison

    As many rows as pass a threshold: a size that only a run knows. TensorRT waits for the device there, and everything
    after it runs with sizes that vary from image to image.

    Instead: Take a fixed number with torch.topk, and threshold outside the engine.

    `x[scores > t]` is `NonZero` over a comparison of floats.

    ```python
    kept = boxes[scores > 0.5]
    best, index = scores.topk(100)  # instead: a fixed number; threshold outside the engine
    kept = boxes[index]
    ```

    Source: NVIDIA's guidance on exporting for TensorRT.
    """

    id, compiled = "nonzero-threshold", NO_NONZERO

    def find(self, subject: Subject) -> Iterator[Match]:
        return (Match(node) for node in used_positions(subject) if compares_floats(node))


class DataDependentSize(Pattern):
    """a size that only a run knows: NonZero of numbers, NonMaxSuppression

    Only a run knows how many positions or boxes it finds. TensorRT waits for the device there, and sizes all that
    follows for the worst case.

    Instead: Keep all rows, and weigh them by a mask; or take a fixed number with torch.topk. Suppress boxes outside the
    engine, or with a plugin that pads to a fixed number, such as EfficientNMS_TRT.

    Warning for `NonZero` of numbers whose positions are used (`x.nonzero()`); info for `NonMaxSuppression`. Both build,
    and captured is no CUDA graph. A `NonZero` that is only counted is no finding.

    ```python
    features[labels.nonzero()[:, 0]].sum(0)
    (features * (labels > 0).float()[:, None]).sum(0)  # instead: all rows, weighted by a mask
    ```

    A fixed number of rows: "first rows of a mask" of docs/how-to/trt-friendly.md.

    Source: NVIDIA's guidance on exporting for TensorRT; TensorRT's documentation of data-dependent shapes.
    """

    id, compiled = "data-dependent-size", NO_NONZERO

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in used_positions(subject):
            if not is_of_mask(node) and not compares_floats(node):
                yield Match(node)
        for node in subject.of_type("NonMaxSuppression"):
            if _is_used(node, subject):
                yield Match(node, severity="info")


def used_positions(subject: Subject) -> Iterator[ir.Node]:
    """Yield each NonZero of data whose positions are used, and not only counted."""
    for node in subject.of_type("NonZero"):
        if subject.values.origin(node.inputs[0]) > Origin.SHAPE and _is_used(node, subject):
            yield node


def _is_used(node: ir.Node, subject: Subject) -> bool:
    """Return True if something besides Shape and Size reads what a node found."""
    moved = {node, *reached(readers_of(node), lambda each: readers_of(each) if is_op(each, *MOVES) else [])}
    ends = [each for each in moved if each is not node and not is_op(each, *MOVES)]
    return any(not has(each, Trait.SHAPE_ONLY) for each in ends) or any(
        value in subject.outputs for each in moved - {*ends} for value in each.outputs
    )


def is_of_mask(node: ir.Node) -> bool:
    """Return True if a NonZero reads a boolean, or numbers made of one."""
    mask = node.inputs[0]
    return (mask is not None and mask.dtype == ir.DataType.BOOL) or has(moved_from(mask), Trait.COMPARES | Trait.LOGIC)


def compares_floats(node: ir.Node) -> bool:
    """Return True if the mask of a NonZero is computed from a comparison of floats."""

    def parts(node: ir.Node) -> list[ir.Node | None]:
        return [moved_from(value) for value in node.inputs] if has(node, Trait.LOGIC) else []

    return any(
        has(each, Trait.COMPARES) and any(value is not None and value.dtype in FLOATS for value in each.inputs)
        for each in reached([moved_from(node.inputs[0])], parts)
    )


class Range(Pattern):
    """arange over a number that is computed on the device

    Its limits are computed on the device, so that only a run knows the size of all that follows.

    Instead: Take the size of a tensor. Where a TensorRT refuses it: mask.nonzero().shape[0] instead of mask.sum().

    TensorRT for RTX builds it, and refuses the `NonZero` of the line below it.

    ```python
    torch.arange(mask.sum())
    torch.arange(mask.nonzero().shape[0])  # where a TensorRT refuses the line above
    ```

    Source: NVIDIA's guidance on exporting for TensorRT (shape tensors and execution tensors).
    """

    id, op_types = "range-of-execution-tensor", ("Range",)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        return any(subject.values.origin(value) is Origin.DATA for value in node.inputs)


class DynamicSlice(Pattern):
    """a slice whose ends are computed from data

    Only a run knows where it starts or ends: that is computed on the device, from the round of a loop, or is an input.

    Instead: Keep all rows, and mask those beyond the end; take the row of a loop's round with index_select. An input
    becomes a shape-tensor input: give its values (not its shape) in engine.profiles.

    TensorRT for RTX refuses a slice at the round of a `Loop` (scripted `x[i : i + 1]`); `x.index_select(0, i)` is a
    Gather and needs no size. Info where it starts or ends at the value of an input. A slice along sizes is no finding.

    ```python
    points[:, : lengths.max()].sum(1)
    kept = torch.arange(points.shape[1]) < lengths.max()  # instead
    (points * kept.float()[None, :, None]).sum(1)
    ```

    Where the rows themselves are needed: `points.index_select(1, kept.long().nonzero()[:, 0])`, which is no `Slice`;
    still, only a run knows its size (`data-dependent-size`).

    Source: NVIDIA's guidance on exporting for TensorRT.
    """

    id = "dynamic-slice"

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in subject.of_type("Slice"):
            origin = max((subject.values.origin(value) for value in node.inputs[1:]), default=Origin.CONSTANT)
            if origin > Origin.SHAPE:
                yield Match(node, severity="info" if origin is Origin.INPUT else "")


_ALLOWZERO_SINCE = 14  # opset


class ReshapeAllowzero(Pattern):
    """a reshape of a tensor that may be empty, without allowzero

    Its input may be empty, and so a size that it is given may be 0, which means 'as it is in the input' and not 'none'.

    Instead: Let the size that may be 0 be the one that reshape infers (-1), or allowzero=1; repair pass allowzero.

    ```python
    kept.reshape(2, kept.shape[0] // 2, index.shape[0])  # index may be empty
    kept.reshape(2, 4, -1)  # instead: infer the size that may be 0
    ```

    Source: NVIDIA's guidance on exporting for TensorRT; ONNX's definition of Reshape.
    """

    id, repair, op_types = "reshape-allowzero", "allowzero", ("Reshape",)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        may_be_empty = subject.values.sized_by_data(node.inputs[0]) and subject.values.counted(node.inputs[1])
        return may_be_empty and node.attributes.get_int("allowzero", 0) == 0

    def fix(self, writer: Writer) -> None:
        """Set allowzero where a Reshape may make an empty tensor: a computed size of 0 then means none.

            Reshape(x, s)  ->  Reshape(x, s, allowzero=1)    where x may be empty, and every element of s is a positive
                                                             constant or computed from sizes alone

        As long as no size is 0, both are the same: only an element 0 reads allowzero. Where one is 0, the old form took
        the size of the input at that place, or failed; the new one gives the intended empty tensor.

        Refused: an s with a constant 0 (a copy, as intended), with -1 (which allowzero=1 forbids beside a 0), or with
        an element that is not computed from sizes.
        """

        def rewrite(node: ir.Node) -> None:
            if (why := _not_only_sizes(node.inputs[1])) is not None:
                raise NotEqualError(why)
            node.attributes["allowzero"] = ir.AttrInt64("allowzero", 1)
            writer.done.counts["Reshape"] += 1

        if writer.opset >= _ALLOWZERO_SINCE:
            fix_each(writer, [match.node for match in self.find(Subject(writer.model))], rewrite)


def _not_only_sizes(sizes: ir.Value | None) -> str | None:
    """Say why an element of a shape may be something else than a size or a positive constant; None: none is."""
    concat = producer_of(sizes, "Concat")
    for element in concat.inputs if concat is not None else [sizes]:
        numbers = constant_of(element)
        if numbers is not None and (numbers == 0).any():
            return "its shape holds a constant 0, which copies a size of the input; allowzero would make it 0"
        if numbers is not None and (numbers < 0).any():
            return "its shape holds -1, which may not stand beside a 0 with allowzero; state every size"
        for source in upstream(element, lambda node: has(node, Trait.STAYS_A_SIZE)):
            if constant_of(source) is None and not has(source.producer(), Trait.SHAPE_ONLY | Trait.STAYS_A_SIZE):
                return f"{element.name if element is not None else ''!r} of its shape is not computed only from sizes"
    return None


class MayBeEmpty(Pattern):
    """reading a row of a tensor that may be empty, or writing into one

    It reads a row at a fixed place of a tensor that may be empty, where there is none, or writes into such a tensor.

    Instead: Take shapes and types of a tensor that never is empty, and put parts together in place of writing:
    torch.cat([torch.ones_like(x[:, :1]) * v, x[:, 1:]], 1).

    Reading (`x[0]`, `zeros_like(x[0])`) fails on an image where nothing is selected; writing (`x[:, 0] = v`) has failed
    to build.

    ```python
    torch.zeros_like(kept[0])
    torch.zeros_like(tokens[0])  # instead: of what is never empty
    kept[:, 0] = 1.0
    kept = torch.cat([torch.ones_like(kept[:, :1]), kept[:, 1:]], 1)  # instead
    ```

    Source: NVIDIA's guidance on exporting for TensorRT (assignment into empty tensors, zeros_like).
    """

    id, severity = "may-be-empty", "info"
    op_types = ("Gather", "Scatter", *_WRITES)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        lengths = lengths_of(node.inputs[0])
        if not lengths or not subject.values.sized_by_data(node.inputs[0]):
            return False
        is_row = constant(node.inputs[1]) is not None and lengths[node.attributes.get_int("axis", 0)] is None
        return is_row or node.op_type != "Gather"


class DynamicTopk(Pattern):
    """topk with a k that is known only in a run

    Its k is known only in a run: TensorRT builds for the largest, refuses more than 3840, and all that follows has a
    size that varies.

    Instead: Give topk a number.

    Sorting (`k` is the size of the axis) and a `k` that is computed from sizes are no finding.

    ```python
    scores.topk(int(count))  # scripted
    scores.topk(300)  # instead
    ```

    Source: TensorRT's operator matrix (TopK).
    """

    id, op_types = "dynamic-topk", ("TopK",)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        return subject.values.origin(node.inputs[1]) > Origin.SHAPE


PATTERNS = (
    NonzeroThreshold(),
    DataDependentSize(),
    Range(),
    DynamicSlice(),
    ReshapeAllowzero(),
    MayBeEmpty(),
    DynamicTopk(),
)
