"""The opset that FP16 needs, or a later one that is asked for.

    target None, opset >= 7   ->  as it is
    target None, opset <  7   ->  7    (Cast names its type, shapes broadcast by attribute, no runtime has FP16 kernels)
    target > opset            ->  target
    target < opset            ->  as it is, with a note: operators cannot be taken back in general

onnx.version_converter does the work on a model without its weights, which come back afterwards; onnxscript's, which has
other rules from opset 18 on, comes only with torch and drops nodes that nothing reads.
A model that onnx cannot raise is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx_ir as ir

from truehalf.errors import StageError, first_line
from truehalf.ir.facts import all_nodes, all_values
from truehalf.ir.normalize import LiftConstants, proto_without_weights, rename, unique_names
from truehalf.ir.passes import Done, Pass

_FP16_FROM = 7
_CONSTANTS_OF_ANY_TYPE = 9


@dataclass(frozen=True)
class ToOpset(Pass):
    """Brings a model to an opset in which FP16 can be stated; its weights are not read.

    Names of inputs, outputs, nodes and tensors stay. What was done is one of the notes.

    Attributes:
        target: opset of the operators of ONNX's default domain; None: raised only below 7.

    Raises:
        StageError: when the target is unknown to the installed onnx, or an operator cannot be converted.
    """

    target: int | None = None

    def edit(self, model: ir.Model, done: Done) -> None:
        source, target = model.graph.opset_imports.get(""), self.target
        if source is None or (target is None and source >= _FP16_FROM) or source == target:
            return
        target = target or _FP16_FROM
        latest = onnx.defs.onnx_opset_version()
        if target > latest:
            raise StageError(
                "wrong-opset", f"opset {target}: expected at most {latest}, the latest that the installed onnx knows"
            )
        if target < source:
            done.refuse(None, f"opset {source} is kept: the target {target} lies below it, and models are only raised")
            return
        try:
            _raise(model, target)
        except (RuntimeError, ValueError) as error:
            raise StageError(
                "wrong-opset",
                f"the model cannot be raised from opset {source} to {target}: {_reason(error)}. "
                "Export it anew at a later opset",
            ) from error
        done.counts[f"opset raised from {source} to {target}"] += 1


def _raise(model: ir.Model, target: int) -> None:
    """Give a model the graph that onnx makes of it; it stays as it is where onnx fails."""
    with unique_names(model) as originals:
        raised = ir.from_proto(onnx.version_converter.convert_version(proto_without_weights(model), target))
        _restore_weights(model, raised)
        _restore_metadata(model, raised)
        rename(raised, {value: originals[value.name] for value in all_values(raised) if value.name in originals})
    model.graph = raised.graph
    if target < _CONSTANTS_OF_ANY_TYPE:
        LiftConstants(lambda dtype: not dtype.is_floating_point())(model)  # integers of the converter


def _restore_weights(model: ir.Model, raised: ir.Model) -> None:
    """Put back by name what was only mentioned; sibling subgraphs may share names, so they are unique by now."""
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    tensors = {value.name: value.const_value for value in values}
    for graph in raised.graphs():
        for value in graph.initializers.values():
            value.const_value = tensors.get(value.name, value.const_value)


def _restore_metadata(model: ir.Model, raised: ir.Model) -> None:
    """The properties of nodes, such as the module that they come from, which onnx does not copy."""
    nodes = {node.outputs[0].name: node for node in all_nodes(model) if node.outputs}
    for node in all_nodes(raised):
        if node.outputs and (before := nodes.get(node.outputs[0].name)) and before.op_type == node.op_type:
            node.metadata_props.update(before.metadata_props)


def _reason(error: Exception) -> str:
    """What onnx says, without the place in its source."""
    text = first_line(error)
    return text.split("` failed: ")[-1].replace("$", "")
