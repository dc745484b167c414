"""Plugins inside a model, which no runtime here has (`EfficientNMS_TRT`): what stands in front of them is the model
that is slimmed, run and compared; they, with all that depends on them, come back where it is converted or written.

    x -> front -> a, b -> plugin -> c -> Gather -> d        runs as x -> front -> a, b

A plugin is a node of a domain that neither ONNX nor ONNX Runtime has; without a domain, of a name that TensorRT's
plugins have. One in a body stays where it is, and so does one with nothing in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx
import onnx_ir as ir
from onnx.defs import has

from truehalf.codes import coded
from truehalf.ir.facts import all_values, cloned, is_op, label_of, values_read
from truehalf.ir.normalize import InferTypes, Names, rename
from truehalf.ir.ops import NAMED_AS_PLUGIN
from truehalf.ir.opset import ToOpset
from truehalf.ir.proto.one_image import take_axis

BEHIND = "truehalf.behind_plugins"  # key of ir.Model.meta: ir.Model of the plugins and all behind them
OF_PLUGINS = "truehalf.plugins"  # domain of those that have none, for onnx
_KNOWN = ("ai.onnx.", "com.microsoft.", "com.ms.", "org.pytorch.aten.")
_Node: TypeAlias = onnx.NodeProto | ir.Node


def is_known(domain: str) -> bool:
    """Whether a domain is one of ONNX or ONNX Runtime, or inside one."""
    return f"{domain}.".startswith(_KNOWN)


def is_plugin(node: _Node) -> bool:
    """Whether a node is a plugin, see above."""
    if node.domain in ("", "ai.onnx"):
        return not has(node.op_type) and bool(NAMED_AS_PLUGIN.search(node.op_type))
    return not is_known(node.domain)


def take_out(model: ir.Model) -> bool:
    """Leave in a model what stands in front of plugins, in place; its outputs are those that depend on none, then what
    plugins and the nodes behind them read. The rest goes to its meta.

    Returns:
        whether there are plugins with something in front.
    """
    graph = model.graph
    made, varying, behind = set[ir.Value](), set(graph.inputs), list[ir.Node]()
    for node in graph:
        read = values_read(node)
        if is_plugin(node) or not made.isdisjoint(read):
            made.update(node.outputs)
            behind.append(node)
        elif not varying.isdisjoint(read):
            varying.update(node.outputs)
    kept = [value for value in graph.outputs if value not in made]
    outside, computed = {*kept, *graph.inputs}, varying - {*graph.inputs}
    read_behind = dict.fromkeys(v for node in sorted(behind, key=lambda n: not is_plugin(n)) for v in values_read(node))
    read_behind = {value: None for value in read_behind if value in computed}
    casts = {value for value in read_behind if is_op(maker := value.producer(), "Cast") and maker.inputs[0] in outside}
    entering = [value for value in read_behind if value not in outside | casts]
    is_read = not made.isdisjoint(graph.outputs)
    if not is_read or not (entering or computed.intersection(kept)):
        return False
    if any(value.type is None for value in entering):
        InferTypes()(model)
    tail = _part(graph, [*entering, *kept, *graph.inputs], list(graph.outputs))
    model.meta[BEHIND] = ir.Model(tail, ir_version=model.ir_version)
    model.graph = _part(graph, list(graph.inputs), [*kept, *entering])
    return True


def _part(graph: ir.Graph, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
    """A part of a graph, its weights in the order of the graph."""
    part = ir.convenience.extract(graph, list(dict.fromkeys(inputs)), outputs)
    weights = [part.initializers[name] for name in graph.initializers if name in part.initializers]
    part.initializers.clear()
    for weight in weights:
        part.initializers.add(weight)
    return part


def entering(model: ir.Model) -> list[str]:
    """Names of the tensors that enter the plugins of a model, then of those that are read behind."""
    if (behind := model.meta.get(BEHIND)) is None:
        return []
    ends = {value.name for value in model.graph.outputs}
    return [str(value.name) for value in behind.graph.inputs if value.uses() and value.name in ends]


def plugins_of(model: ir.Model) -> list[ir.Node]:
    """The plugins that were taken out of a model."""
    behind = model.meta.get(BEHIND)
    return [] if behind is None else [node for node in behind.graph if is_plugin(node)]


def not_run(model: ir.Model) -> str | None:
    """What is to be said of the plugins that were taken out of a model; None where there are none."""
    if not (plugins := plugins_of(model)):
        return None
    others = sum(not is_plugin(node) and bool(node.inputs) for node in model.meta[BEHIND].graph)
    also = f" and {others} nodes that depend on them" if others else ""
    names, tensors = (", ".join(each) for each in (map(named, plugins), map(repr, entering(model))))
    what = f"what plugins compute: nothing here runs {names}{also}"
    return coded("plugin-not-run", f"{what}; what enters is looked at: {tensors or 'nothing'}")


def named(plugin: ir.Node) -> str:
    """A plugin in a sentence."""
    return f"{label_of(plugin)!r} ({plugin.op_type})"


def name_alike(reference: ir.Model, candidate: ir.Model) -> None:
    """Call what enters the plugins of a candidate what it is called in its reference, in place: whatever casts it gives
    it another name.
    """
    ours, theirs = entering(reference), entering(candidate)
    types = [[node.op_type for node in plugins_of(model)] for model in (reference, candidate)]
    if types[0] != types[1] or len(ours) != len(theirs):
        return
    ends, names = {value.name: value for value in candidate.graph.outputs}, Names(candidate)
    renamed = {ends[old]: new for old, new in zip(theirs, ours, strict=True) if old != new and new not in ends}
    inside = {value for value in all_values(candidate) if value.name in renamed.values()}
    rename(candidate, {value: names.fresh(f"{value.name}/inside") for value in inside} | renamed)


def _raise(behind: ir.Model, opset: int | None) -> None:
    """Bring what is behind plugins to an opset; onnx has no rule for these, and leaves other domains alone."""
    if opset == behind.graph.opset_imports.get(""):
        return
    plugins = [node for node in behind.graph if node.domain == "" and is_plugin(node)]
    for node in plugins:
        node.domain = OF_PLUGINS
    behind.graph.opset_imports[OF_PLUGINS] = 1
    ToOpset(opset)(behind)
    behind.graph.opset_imports.pop(OF_PLUGINS, None)
    for node in behind.graph:
        node.domain = "" if node.domain == OF_PLUGINS else node.domain


def as_in_file(model: ir.Model) -> ir.Model:
    """A model as its file holds it: itself, or a copy with the plugins and all behind them, whose meta says so, and
    without the axis of images that its input was given.

    Raises:
        StageError: nodes behind plugins that cannot be brought to the opset that the model has by now.
    """
    model = take_axis(model)
    if model.meta.get(BEHIND) is None:
        return model
    made = cloned(model)
    taken = made.meta.pop(BEHIND).clone()
    _raise(taken, made.graph.opset_imports.get(""))
    graph, ends = taken.graph, {value.name: value for value in (*made.graph.inputs, *made.graph.outputs)}
    moved, weights = list(graph), list(graph.initializers.values())
    outputs = [ends[value.name] if value.is_graph_input() else value for value in graph.outputs]
    graph.outputs.clear()
    for value in graph.inputs:
        value.replace_all_uses_with(ends[value.name])
    graph.initializers.clear()
    graph.remove(moved)
    names, used = Names(made), {value.name for value in all_values(made)}
    for value in (*weights, *(value for node in moved for value in node.outputs if value not in outputs)):
        value.name = names.fresh(f"{value.name}/behind") if value.name in used else value.name
    for node in moved:
        node.meta[BEHIND] = bool(node.inputs)
    for weight in weights:
        made.graph.register_initializer(weight)
    made.graph.extend(moved)
    made.graph.outputs.clear()
    made.graph.outputs.extend(outputs)
    for domain, version in graph.opset_imports.items():
        made.graph.opset_imports.setdefault(domain, version)
    return made
