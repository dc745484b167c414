"""Options of the conversion, compared with the model: names of inputs and outputs, wanted operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.codes import coded
from truehalf.config.precision import Precision
from truehalf.errors import refuse

if TYPE_CHECKING:
    import onnx_ir as ir


def check_names(model: ir.Model, precision: Precision) -> None:
    """Compare the options that name inputs and outputs with the model.

    Raises:
        StageError: listing every input and output that the model does not have.
    """
    from truehalf.ir.proto.plugins import as_in_file

    graph = as_in_file(model).graph
    known = [value.name for value in (*graph.inputs, *graph.outputs)]
    quoted = ", ".join(map(repr, known)) or "none"
    named = precision.keep_io_types if isinstance(precision.keep_io_types, tuple) else ()
    problems = [
        coded("wrong-name", f"keep_io_types: {name!r} is no input or output of the model; it has {quoted}")
        for name in named
        if name not in known
    ]
    refuse("bad-options", "options do not fit the model", problems)


def unmatched_fp16_ops(model: ir.Model, precision: Precision) -> dict[str, str]:
    """Map each entry of fp16_ops that matches no node to a line on it."""
    from truehalf.ir.facts import all_nodes
    from truehalf.ir.patterns import is_named
    from truehalf.ir.selectors import Selector, unmatched_message

    nodes, wanted = list(all_nodes(model)), [Selector("fp16_ops", text) for text in precision.fp16_ops or ()]
    unmatched = [each for each in wanted if not any(is_named(node, each.text) for node in nodes)]
    return {str(each): unmatched_message(each, model) for each in unmatched}
