"""Subgraphs that torch exports for x[mask]: positions of the true elements, read or written one by one.

Transpose(NonZero(m))                          positions of m                    mask_of_positions
GatherND(x, positions of m)                    x[m]
ScatterND(x, positions of m, v)                x[m] = v
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from truehalf.ir.facts import constant_of, is_op, lengths_of, producer_of
from truehalf.repairs.rewrite import Build, axes_of

_ROWS_FIRST = [1, 0]


@dataclass(frozen=True)
class Mask:
    """A mask over the leading axes of a tensor.

    Attributes:
        value: any type; what is not 0 is true.
        axes: how many leading axes it covers.
        repeated: whether an Expand repeats it where the tensor is larger.
    """

    value: ir.Value
    axes: int
    repeated: bool = False

    def over(self, build: Build, rank: int) -> ir.Value:
        """A boolean mask that broadcasts over a tensor of this rank."""
        mask = build.cast(self.value, ir.DataType.BOOL, "mask")
        inner = list(range(self.axes, rank))
        return build.op("Unsqueeze", mask, build.ints(inner, "axes"), label="mask") if inner else mask


def mask_of_positions(positions: ir.Value | None) -> Mask | None:
    """m of Transpose(NonZero(m)); of an expanded m, the one before its last axes were repeated."""
    transpose = producer_of(positions, "Transpose")
    nonzero = producer_of(transpose.inputs[0], "NonZero") if transpose is not None else None
    if transpose is None or nonzero is None or list(transpose.attributes.get_ints("perm", _ROWS_FIRST)) != _ROWS_FIRST:
        return None
    value = nonzero.inputs[0]
    dims = lengths_of(value)
    return Mask(value, len(dims)) if value is not None and dims else None


def narrowed(mask: Mask, x: ir.Value) -> Mask:
    """m where the mask is Expand(Unsqueeze(m, last axes), Shape(x)): it is the same for all elements along them."""
    expand = producer_of(mask.value, "Expand")
    shape = producer_of(expand.inputs[1], "Shape") if expand is not None else None
    unsqueeze = producer_of(expand.inputs[0], "Unsqueeze") if expand is not None else None
    inner = unsqueeze.inputs[0] if unsqueeze is not None else None
    dims = lengths_of(inner)
    if shape is None or shape.inputs[0] is not x or unsqueeze is None or inner is None or not dims:
        return mask
    axes = axes_of(unsqueeze, mask.axes)
    return Mask(inner, len(dims), repeated=True) if axes == list(range(len(dims), mask.axes)) else mask


def covers(mask: Mask, x: ir.Value) -> bool:
    """Whether a mask has the sizes of the leading axes of x.

    Positions of a mask of one element do not select the second row of x; a Where broadcasts the mask over it.
    """
    if mask.value.shape is None or x.shape is None or len(x.shape) < mask.axes:
        return False
    sizes = zip(mask.value.shape, x.shape, strict=False)
    return all(_same(size, other) or (mask.repeated and size == 1) for size, other in sizes)


def same_sizes(x: ir.Value, y: ir.Value, axes: int) -> bool:
    """Whether the first axes of x and y have equal sizes."""
    if x.shape is None or y.shape is None or min(len(x.shape), len(y.shape)) < axes:
        return False
    return all(_same(x.shape[axis], y.shape[axis]) for axis in range(axes))


def _same(size: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    """Whether two sizes are one number, or have one name."""
    if isinstance(size, int) or isinstance(other, int):
        return isinstance(size, int) and isinstance(other, int) and size == other
    return size.value is not None and size.value == other.value


def same_inner_sizes(x: ir.Value, y: ir.Value, axes: int) -> bool:
    """Whether x and y have equal, static sizes after their first axes."""
    first, second = lengths_of(x), lengths_of(y)
    return first is not None and second is not None and None not in first[axes:] and first[axes:] == second[axes:]


def flattened_source(updates: ir.Value | None) -> ir.Value | None:
    """v of Slice(Reshape(v, [-1]), 0, n), as torch hands over what it writes; v itself otherwise."""
    source = producer_of(updates, "Slice")
    if source is not None and constant_of(source.inputs[1]) is not None and _is_zero(source.inputs[1]):
        updates = source.inputs[0]
    reshape = producer_of(updates, "Reshape")
    if reshape is not None and (sizes := constant_of(reshape.inputs[1])) is not None and sizes.tolist() == [-1]:
        updates = reshape.inputs[0]
    return updates


def _is_zero(value: ir.Value | None) -> bool:
    numbers = constant_of(value)
    return numbers is not None and numbers.tolist() == [0]


def summed_rows(node: ir.Node) -> ir.Node | None:
    """The ReduceSum over the rows of x[m], where nothing else reads them."""
    output = node.outputs[0]
    readers = [reader for reader, _ in output.uses()]
    if len(readers) != 1 or output.is_graph_output() or not is_op(readers[0], "ReduceSum"):
        return None
    total, dims = readers[0], lengths_of(output)
    return total if dims is not None and axes_of(total, len(dims)) == [0] and total.inputs[0] is output else None


def masked_sum(build: Build, gather: ir.Node, total: ir.Node, mask: Mask) -> ir.Value | None:
    """Sum over the first axes of Where(m, x, 0) for Sum(x[m], 0); None: x or its sizes are not known well enough.

    0 adds nothing, and what the mask leaves out is not multiplied, so it may be Inf or NaN.
    """
    x = gather.inputs[0]
    dims = lengths_of(x)
    if x is None or dims is None or x.dtype is None or x.dtype == ir.DataType.BOOL or not covers(mask, x):
        return None
    kept = build.op("Where", mask.over(build, len(dims)), x, build.constant(0, x.dtype, "zero"), label="kept")
    result = build.op("ReduceSum", kept, build.ints(list(range(mask.axes)), "axes"), keepdims=0)
    if total.attributes.get_int("keepdims", 1):
        result = build.op("Unsqueeze", result, build.ints([0]))
    summed: ir.Value = result
    return summed
