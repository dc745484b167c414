"""Weights are taken out of the inputs, and the taken branch of an If into its graph, so that a walk over a graph sees
all nodes and all constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from truehalf.ir.facts import values_of
from truehalf.ir.passes import Done, Pass

_TAKEN_OUT = "truehalf.weights_taken_out"  # key of ir.Model.meta
_LISTED = 5  # names in a line of a report


class WeightsApart(Pass):
    """Takes weights out of the inputs, where exporters list them all by habit. Where every input has a value, all stay:
    one of them is what the model computes from.
    """

    def edit(self, model: ir.Model, done: Done) -> None:
        listed = [str(value.name) for value in model.graph.inputs if value.is_initializer()]
        if 0 < len(listed) < len(model.graph.inputs):
            RemoveInitializersFromInputsPass()(model)
            model.meta[_TAKEN_OUT] = listed
            done.counts["weights"] += len(listed)


OUTPUT_OF = "output_of"  # key of ir.Node.meta: name of the If whose output a node hands on


def inline_branch(node: ir.Node, taken: bool) -> bool:
    """Put the branch of an If that is taken in its place; what the If outputs keeps its names. False, and nothing is
    changed, where the graph has a value of the same name as the branch.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    branch = node.attributes["then_branch" if taken else "else_branch"].as_graph()
    if {value.name for value in values_of(branch)} & {value.name for value in values_of(graph)}:
        return False
    written, moved, constants = list(branch.outputs), list(branch), list(branch.initializers.values())
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(moved)
    for constant in constants:
        graph.register_initializer(constant)
    for value, result in zip(node.outputs, written, strict=True):
        same = ir.node("Identity", [result], name=f"{node.name}/{value.name}")
        same.meta[OUTPUT_OF] = node.name
        same.outputs[0].name, same.outputs[0].type, same.outputs[0].shape = value.name, value.type, value.shape
        moved.append(same)
        ir.convenience.replace_all_uses_with(value, same.outputs[0], replace_graph_outputs=True)
    graph.insert_before(node, moved)
    graph.remove(node, safe=True)
    return True


def weights_taken_out(model: ir.Model) -> list[str]:
    """Names of those that a run could replace before WeightsApart took them out of the inputs."""
    return list(model.meta.get(_TAKEN_OUT, ()))


def said_of(weights: Sequence[str]) -> str:
    """What a report says of such weights."""
    named = ", ".join(weights[:_LISTED]) + (", ..." if len(weights) > _LISTED else "")
    return f"weights that a run could replace are inputs no longer: {len(weights)} ({named})"
