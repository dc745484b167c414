"""Options of the conversion, compared with the model: names of inputs and outputs, shapes, wanted operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.precision import Precision
from truehalf.errors import refuse

if TYPE_CHECKING:
    import onnx_ir as ir


def check_names(model: ir.Model, precision: Precision, input_shapes: Mapping[str, Sequence[int]] | None) -> None:
    """Compare the options that name inputs and outputs with the model.

    Raises:
        StageError: listing every input and output that the model does not have, and every shape that does not fit its
            input.
    """
    from truehalf.ir.proto.plugins import as_in_file

    model = as_in_file(model)
    inputs = {value.name: value for value in model.graph.inputs}
    known = [*inputs, *(value.name for value in model.graph.outputs)]
    named = precision.keep_io_types if isinstance(precision.keep_io_types, tuple) else ()
    problems = [
        coded("wrong-name", f"keep_io_types: {name!r} is no input or output of the model; it has {_quoted(known)}")
        for name in named
        if name not in known
    ]
    if not isinstance(input_shapes, (Mapping, type(None))):
        problems.append(coded("wrong-type", f"input_shapes: expected shapes by input name, got {input_shapes!r}"))
        input_shapes = None
    for name, shape in (input_shapes or {}).items():
        if name not in inputs:
            message = f"input_shapes: {name!r} is no input of the model; it has {_quoted(inputs)}"
            problems.append(coded("wrong-name", message))
        elif problem := _misfit(inputs[name], shape):
            problems.append(coded("wrong-shape", f"input_shapes: {name!r}: {problem}, got {shape!r}"))
    refuse("bad-options", "options do not fit the model", problems)


def _misfit(value: ir.Value, shape: Any) -> str | None:
    sides = list(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else None
    if sides is None or not all(hasattr(side, "__index__") and side >= 0 for side in sides):
        return "expected integers, 0 or more"
    if value.shape is not None and len(sides) != len(value.shape):
        return f"expected {len(value.shape)} axes"
    fixed = enumerate(value.shape if value.shape is not None else ())
    if wrong := next(((axis, size) for axis, size in fixed if isinstance(size, int) and size != sides[axis]), None):
        return f"axis {wrong[0]} is fixed to {wrong[1]}"
    return None


def _quoted(names: Iterable[str | None]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def unmatched_fp16_ops(model: ir.Model, precision: Precision) -> dict[str, str]:
    """Map each entry of fp16_ops that matches no node to a line on it."""
    from truehalf.ir.facts import all_nodes
    from truehalf.ir.patterns import is_named
    from truehalf.ir.selectors import Selector, unmatched_message

    nodes, wanted = list(all_nodes(model)), [Selector("fp16_ops", text) for text in precision.fp16_ops or ()]
    unmatched = [each for each in wanted if not any(is_named(node, each.text) for node in nodes)]
    return {str(each): unmatched_message(each, model) for each in unmatched}
