"""Indexing with a boolean tensor, and x[mask] = v as a Where.

torch exports positions of the true elements, read or written one by one:

    Transpose(NonZero(m))                          positions of m
    GatherND(x, positions of m)                    x[m]
    ScatterND(x, positions of m, v)                x[m] = v
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.ir.facts import lengths_of, producer_of
from truehalf.patterns.data_sizes import compares_floats, is_of_mask, used_positions
from truehalf.patterns.frame import NO_NONZERO, Match, Pattern, Subject
from truehalf.patterns.rewrite import Build, NotEqualError, Writer, axes_of, fix_each, ints_of

_WRITE = "what it writes is neither one value nor another tensor under the same mask; write x * (1 - m) + v * m"
_READ = "the number of rows that it gives is the number of true elements; weigh with the mask, or take topk rows"
_SIZES = coded(
    "sizes-unknown",
    "its mask is not known to have the sizes of the axes that it indexes, which positions need not and a Where must; "
    "give both the same name among the dynamic axes, or fixed sizes",
)
_SINCE = 13  # opset


class BoolIndex(Pattern):
    """indexing with a boolean tensor: NonZero, GatherND, ScatterND

    A boolean index becomes positions whose number only a run knows. TensorRT waits for the device there, and refuses
    some uses of such a size.

    Instead: Mix by arithmetic (x * (1 - m) + v * m), or weigh by the mask; repair pass bool_index, for x[m] = v.

    `x[mask]` and `x[mask] = v` with another boolean tensor: `NonZero`, `GatherND` and `ScatterND` with sizes that only
    a run knows. A mask that is only counted (`mask.nonzero().shape[0]`) is no finding.

    ```python
    state[seen] = update[seen]
    seen = seen.float()[:, None]  # instead
    state = state * (1 - seen) + update * seen
    ```

    Repair pass: `bool_index`, for `x[mask] = v`. A fixed number of rows: "first rows of a mask" of
    docs/how-to/trt-friendly.md. Source: NVIDIA's guidance on exporting for TensorRT.
    """

    id, compiled, repair = "bool-index", NO_NONZERO, "bool_index"

    def find(self, subject: Subject) -> Iterator[Match]:
        return (Match(node) for node in used_positions(subject) if is_of_mask(node) and not compares_floats(node))

    def fix(self, writer: Writer) -> None:
        """Replace an assignment under a mask by a Where.

            x[m] = v       ->  Where(m, v, x)                    v of one element
            x[m] = y[m]    ->  Where(m, y, x)                    y of the sizes of x after the axes of the mask

        Positions come in the order of the elements, the same for x and y; each is written once.

        Refused: x[m] that something else reads, as its size is the number of true elements; other values that are
        written; a mask that is not known to have the sizes of the axes that it indexes, by numbers or by names:
        positions in a shorter one do not select the other rows, and a Where would broadcast it over them.
        """

        def rewrite(node: ir.Node) -> None:
            mask, x = _mask_of(node), node.inputs[0]
            if mask is None or x is None:
                return
            if node.op_type == "GatherND":
                raise NotEqualError(_READ)
            mask, build = _narrowed(mask, x), writer.at(node)
            if not _leads(mask, x):
                raise NotEqualError(_SIZES)
            value = _one_value(build, node.inputs[2]) or _under_the_same_mask(node.inputs[2], mask, x)
            if value is None:
                raise NotEqualError(_WRITE)
            condition = build.cast(mask, ir.DataType.BOOL, "mask")
            if inner := list(range(_rank(mask), _rank(x))):
                condition = build.op("Unsqueeze", condition, build.ints(inner, "axes"), label="mask")
            writer.replace(node, build.op("Where", condition, value, x))

        if writer.opset >= _SINCE:
            subject = Subject(writer.model)
            fix_each(writer, [*subject.of_type("ScatterND"), *subject.of_type("GatherND")], rewrite)


def _rank(value: ir.Value) -> int:
    return len(value.shape or ())


def _mask_of(node: ir.Node) -> ir.Value | None:
    """Find m where a node reads or writes all elements at Transpose(NonZero(m)), as they are."""
    if node.attributes.get_string("reduction", "none") != "none" or node.attributes.get_int("batch_dims", 0) != 0:
        return None
    transpose = producer_of(node.inputs[1], "Transpose")
    nonzero = producer_of(transpose.inputs[0], "NonZero") if transpose is not None else None
    if transpose is None or nonzero is None or list(transpose.attributes.get_ints("perm", (1, 0))) != [1, 0]:
        return None
    return nonzero.inputs[0] if lengths_of(nonzero.inputs[0]) else None


def _narrowed(mask: ir.Value, x: ir.Value) -> ir.Value:
    """Find m where the mask is Expand(Unsqueeze(m, last axes), Shape(x)): it is repeated along them."""
    expand = producer_of(mask, "Expand")
    shape = producer_of(expand.inputs[1], "Shape") if expand is not None else None
    unsqueeze = producer_of(expand.inputs[0], "Unsqueeze") if expand is not None else None
    inner = unsqueeze.inputs[0] if unsqueeze is not None else None
    if shape is None or shape.inputs[0] is not x or unsqueeze is None or inner is None or not lengths_of(inner):
        return mask
    return inner if axes_of(unsqueeze, _rank(mask)) == list(range(_rank(inner), _rank(mask))) else mask


def _leads(mask: ir.Value, x: ir.Value) -> bool:
    """Return True if the sizes of a mask, numbers or names, are those of the leading axes of x.

    Positions of a mask of one element do not select the second row of x; a Where broadcasts the mask over it.
    """
    sizes, sizes_of_x = list(mask.shape or ()), list(x.shape or ())
    named = all(isinstance(size, int) or size.value is not None for size in sizes)
    return bool(sizes) and named and sizes == sizes_of_x[: len(sizes)]


def _one_value(build: Build, written: ir.Value | None) -> ir.Value | None:
    """Find the only element of a tensor that Expand and Reshape repeat, as a scalar; None: there are several."""
    source = _unflattened(written)
    while (expand := producer_of(source, "Expand", "Reshape")) is not None:
        source = expand.inputs[0]
    sizes = lengths_of(source)
    if source is None or sizes is None or any(size != 1 for size in sizes):
        return None
    value = source if not sizes else build.op("Reshape", source, build.ints([], "scalar"))
    value.type = source.type
    return value


def _under_the_same_mask(written: ir.Value | None, mask: ir.Value, x: ir.Value) -> ir.Value | None:
    """Find y where y[m] is written to x[m], and y has the sizes of x."""
    gather = producer_of(_unflattened(written), "GatherND")
    y = gather.inputs[0] if gather is not None else None
    other = _mask_of(gather) if gather is not None else None
    if y is None or other is None or _narrowed(other, y) is not mask or not _leads(mask, y):
        return None
    behind = lengths_of(y) or []
    return y if y.shape == x.shape and None not in behind[_rank(mask) :] else None


def _unflattened(written: ir.Value | None) -> ir.Value | None:
    """Find v of Slice(Reshape(v, [-1]), 0, n), as torch hands over the values to write; another value is returned."""
    cut = producer_of(written, "Slice")
    if cut is not None and ints_of(cut.inputs[1]) == [0]:
        written = cut.inputs[0]
    flat = producer_of(written, "Reshape")
    if flat is not None and ints_of(flat.inputs[1]) == [-1]:
        written = flat.inputs[0]
    return written


PATTERNS = (BoolIndex(),)
