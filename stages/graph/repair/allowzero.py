"""Reshape of what may be empty: a computed size of 0 means none, not "as it is in the input".

    Reshape(x, s)  ->  Reshape(x, s, allowzero=1)        where x may be empty, and every element of s is a positive
                                                         constant or computed from sizes (Shape, and arithmetic on it)

As long as no size is 0, both are the same: only an element 0 reads allowzero. Where one is 0, the old form took the
size of the input at that place, or failed; the new one gives the empty tensor that was meant.

May be empty: what takes its size from NonZero, Unique, Compress or NonMaxSuppression.

Refused: an s with a constant 0 (a copy, which is meant), with -1 (which allowzero=1 forbids beside a 0), or with an
element that is not computed from sizes.
"""

from __future__ import annotations

import onnx_ir as ir

from stages.graph.facts import all_nodes, is_op, made_by
from stages.graph.repair.rewrite import Done, behind, constant_of, opset

_COUNTS = ("NonZero", "Unique", "Compress", "NonMaxSuppression")
_SIZES = ("Shape", "Size")
_ON_SIZES = (
    *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Max", "Min", "Mul", "ReduceProd", "Reshape", "Slice"),
    *("Squeeze", "Sub", "Unsqueeze"),
)
_ALLOWZERO_FROM = 14


def allowzero(model: ir.Model) -> Done:
    """Set allowzero on each Reshape that may make an empty tensor, in place."""
    done = Done()
    if opset(model) < _ALLOWZERO_FROM:
        return done
    for node in [node for node in all_nodes(model) if is_op(node, "Reshape")]:
        sizes = node.inputs[1]
        if (
            node.attributes.get_int("allowzero", 0)
            or constant_of(sizes) is not None
            or not _may_be_empty(node.inputs[0])
        ):
            continue
        if (why := _not_sizes(sizes)) is not None:
            done.refuse(node, why)
            continue
        node.attributes["allowzero"] = ir.AttrInt64("allowzero", 1)
        done.changed += 1
    return done


def _may_be_empty(value: ir.Value | None) -> bool:
    """Whether what counts data stands anywhere before a value."""
    return any(is_op(source.producer(), *_COUNTS) for source in behind(value, lambda node: True))


def _not_sizes(sizes: ir.Value | None) -> str | None:
    """Why an element of a shape may be something else than a size; None: it is one, or a positive constant."""
    concat = made_by(sizes, "Concat")
    for element in concat.inputs if concat is not None else [sizes]:
        numbers = constant_of(element)
        if numbers is not None and (numbers == 0).any():
            return "its shape holds a constant 0, which copies a size of the input; allowzero would make it 0"
        if numbers is not None and (numbers < 0).any():
            return "its shape holds -1, which may not stand beside a 0 with allowzero; state every size"
        if numbers is None and not _is_size(element):
            return f"{element.name if element is not None else ''!r} of its shape is not computed from sizes alone"
    return None


def _is_size(value: ir.Value | None) -> bool:
    """Whether all that a value is computed from are sizes and constants."""
    return value is not None and all(
        constant_of(source) is not None or is_op(source.producer(), *_SIZES, *_ON_SIZES)
        for source in behind(value, lambda node: is_op(node, *_ON_SIZES))
    )
