"""Reshape of what may be empty: a computed size of 0 means none, not "as it is in the input".

    Reshape(x, s)  ->  Reshape(x, s, allowzero=1)        where x may be empty, and every element of s is a positive
                                                         constant or computed from sizes of x (Shape, arithmetic on it)

As long as no size is 0, both are the same: only an element 0 reads allowzero. Where one is 0, the old form took the
size of the input at that place, or failed; the new one gives the intended empty tensor.

May be empty: what takes its size from NonZero, Unique, Compress or NonMaxSuppression. Sizes of x: those of x itself, of
what x is computed from, and of what the same of these counts.

Refused: an s with a constant 0 (a copy, as intended), with -1 (which allowzero=1 forbids beside a 0), or with an
element that is not computed from sizes, or from those of a tensor that may be empty where x is not.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import constant_of, producer_of, upstream
from truehalf.ir.ops import Trait, has
from truehalf.repairs.rewrite import NotEqualError, Repair, Writer


class AllowZero(Repair):
    """Sets allowzero on each Reshape that may make an empty tensor."""

    op_types = ("Reshape",)
    since = 14

    def rewrite(self, node: ir.Node, writer: Writer) -> None:
        x, sizes = node.inputs[:2]
        if node.attributes.get_int("allowzero", 0) or constant_of(sizes) is not None or x is None or not _counts(x):
            return
        if (why := _not_sizes(sizes) or _of_others(sizes, x)) is not None:
            raise NotEqualError(why)
        node.attributes["allowzero"] = ir.AttrInt64("allowzero", 1)
        writer.changed(node)


def _not_sizes(sizes: ir.Value | None) -> str | None:
    """Why an element of a shape may be something else than a size; None: it is one, or a positive constant."""
    concat = producer_of(sizes, "Concat")
    for element in concat.inputs if concat is not None else [sizes]:
        numbers = constant_of(element)
        if numbers is not None and (numbers == 0).any():
            return "its shape holds a constant 0, which copies a size of the input; allowzero would make it 0"
        if numbers is not None and (numbers < 0).any():
            return "its shape holds -1, which may not stand beside a 0 with allowzero; state every size"
        if numbers is None and not _is_size(element):
            return f"{element.name if element is not None else ''!r} of its shape is not computed only from sizes"
    return None


def _of_others(sizes: ir.Value | None, x: ir.Value | None) -> str | None:
    """Why a size may be 0 where x is not empty; None: it comes from x, from what made x, or from what x counts, too."""
    made_x = set(upstream(x, lambda node: True))
    for source in upstream(sizes, lambda node: has(node, Trait.STAYS_A_SIZE)):
        measured = source.producer()
        tensor = measured.inputs[0] if measured is not None and has(measured, Trait.SHAPE_ONLY) else None
        if tensor is not None and tensor not in made_x and not made_x & {*_counts(tensor)}:
            return f"a size of its shape is that of {tensor.name!r}, which may be empty where its input is not"
    return None


def _counts(value: ir.Value) -> list[ir.Value]:
    """What counts data before a value."""
    return [source for source in upstream(value, lambda node: True) if has(source.producer(), Trait.COUNTS)]


def _is_size(value: ir.Value | None) -> bool:
    """Whether all that a value is computed from are sizes and constants."""
    return value is not None and all(
        constant_of(source) is not None or has(source.producer(), Trait.SHAPE_ONLY | Trait.STAYS_A_SIZE)
        for source in upstream(value, lambda node: has(node, Trait.STAYS_A_SIZE))
    )
