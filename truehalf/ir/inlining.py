"""Functions become the nodes that they stand for, and weights are taken out of the inputs, so that a walk over a graph
sees all nodes and all constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveInitializersFromInputsPass

from truehalf.ir.facts import all_nodes, name_of, subgraphs, values_of
from truehalf.ir.passes import Done, Pass
from truehalf.ir.slots import schema_of

_CALL = "truehalf.call"  # of the call that a node is being inlined from
_TAKEN_OUT = "truehalf.weights_taken_out"  # key of ir.Model.meta
_WEIGHTS_AMONG_INPUTS_UNTIL = 3  # IR version
_LISTED = 5  # names in a line of a report
_NODE_NAME = "truehalf.name"  # that a node has in its function
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


class InlineFunctions(Pass):
    """Inlines all functions, by onnx_ir's pass: a new one for each run, as it keeps what it was given."""

    def edit(self, model: ir.Model, done: Done) -> None:
        if model.functions:
            done.modified = _inline_calls(model, lambda function: True)
            _keep_apart(model)


@dataclass(frozen=True)
class InlineNamed(Pass):
    """Inlines functions so that the name of a node states all the calls that lead to it, innermost functions first.

        call "head" of Block, which holds "slice"    ->    "head/slice"

    Functions that nothing calls are left out. Refused, with the model as it was: functions that cannot be inlined,
    those of another opset than the graph's among them (reading a file gives them the graph's, where that is the same).

    Attributes:
        kept: functions that stay, as Op or domain::Op.
    """

    kept: Collection[str] = ()

    def edit(self, model: ir.Model, done: Done) -> None:
        count = len(model.functions)
        try:
            if count:
                _inline(model.clone(), self.kept)  # which may stop halfway
                _inline(model, self.kept)
        except (ir.passes.PassError, RuntimeError, ValueError) as error:  # a cycle, a graph that is handed over, ...
            done.refuse(None, str(error.__cause__ or error))
        else:
            done.counts["functions"] += count - len(model.functions)


def _inline(model: ir.Model, kept: Collection[str]) -> None:
    while ready := _leaves(model, kept):
        for node in [node for node in all_nodes(model, functions=True) if node.op_identifier() in ready]:
            node.metadata_props[_CALL] = name_of(node)
        for key in ready:
            for node in model.functions[key].all_nodes():
                node.meta[_NODE_NAME] = name_of(node)
        _inline_calls(model, lambda function: function.identifier() in ready)
        for node in all_nodes(model, functions=True):
            call = node.metadata_props.pop(_CALL, None)
            if call is not None and _NODE_NAME in node.meta:
                node.name = f"{call}/{node.meta[_NODE_NAME].lstrip('/')}"
        for key in sorted(ready):
            model.functions.pop(key, None)  # of calls that are never made
    left = sorted(name for domain, name, *_ in model.functions if not _is_kept(domain, name, kept))
    if left:
        raise ValueError(f"{', '.join(left)}: functions that call each other")
    _keep_apart(model)


def _inline_calls(model: ir.Model, inlined: Callable[[ir.Function], bool]) -> bool:
    """Run onnx_ir's pass on what it reads as it is meant: each output of a function is one value that the function
    computes, as the pass gives it the name that the call has for it, and a call has all of them.
    """
    for function in filter(inlined, model.functions.values()):
        graph = function.graph
        for index, value in enumerate(graph.outputs):
            if value.is_graph_input() or value in graph.outputs[:index]:
                graph.append(same := ir.node("Identity", [value], name=f"Identity_{value.name}"))
                graph.outputs[index] = same.outputs[0]
    for node in all_nodes(model, functions=True):
        if (called := model.functions.get(node.op_identifier())) is not None and inlined(called):
            given = len(node.outputs)
            node.resize_outputs(len(called.outputs))
            for value in node.outputs[given:]:
                value.name = ""  # skipped
    return InlinePass(criteria=inlined)(model).modified


def _keep_apart(model: ir.Model) -> None:
    """Name what was inlined where onnx_ir's pass does not: outputs that a call skips, and that are read or required,
    and values of inner graphs called as one around them, which they would hide.
    """
    from truehalf.ir.normalize import Names, rename

    names = Names(model)
    for node in all_nodes(model):
        for index, value in enumerate(node.outputs):
            if not value.name and (value.uses() or _is_required(node, index)):
                value.name = names.fresh(name_of(node))
    rename(model, {value: names.fresh(str(value.name)) for value in _hiding(model.graph, frozenset())})


def _is_required(node: ir.Node, index: int) -> bool:
    schema = schema_of(node)
    return schema is not None and schema.outputs[min(index, len(schema.outputs) - 1)].option != _OPTIONAL


def _hiding(graph: ir.Graph, outer: frozenset[str | None]) -> Iterator[ir.Value]:
    """Values of inner graphs whose name one of a graph around them has."""
    own = dict.fromkeys(values_of(graph))
    yield from (value for value in own if value.name and value.name in outer)
    around = outer.union(value.name for value in own)
    for node in graph:
        for inner in subgraphs(node):
            yield from _hiding(inner, around)


def _leaves(model: ir.Model, kept: Collection[str]) -> set[ir.OperatorIdentifier]:
    """Functions that call none, those left out that are kept."""
    wanted = {key for key in model.functions if not _is_kept(key[0], key[1], kept)}
    return {
        key for key in wanted if not any(node.op_identifier() in wanted for node in model.functions[key].all_nodes())
    }


def _is_kept(domain: str, name: str, kept: Collection[str]) -> bool:
    return name in kept or f"{domain}::{name}" in kept


@dataclass(frozen=True)
class WeightsApart(Pass):
    """Takes weights out of the inputs. Until IR version 3 every weight had to be listed there; a later file lists those
    that a run may replace.

    Attributes:
        of_any_version: whether those of later files are taken out, too, as exporters list all weights by habit. Where
            every input has a value, all stay: one of them is what the model computes from.
    """

    of_any_version: bool = False

    def edit(self, model: ir.Model, done: Done) -> None:
        listed = [str(value.name) for value in model.graph.inputs if value.is_initializer()]
        if model.ir_version is not None and model.ir_version <= _WEIGHTS_AMONG_INPUTS_UNTIL:
            RemoveInitializersFromInputsPass()(model)
            model.ir_version = _WEIGHTS_AMONG_INPUTS_UNTIL + 1
            done.counts["ir_version"] += 1
        elif self.of_any_version and 0 < len(listed) < len(model.graph.inputs):
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
