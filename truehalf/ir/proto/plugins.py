"""Plugins inside a model, which no runtime here has (`EfficientNMS_TRT`): what stands in front of them is the model
that is slimmed, run and compared; they, with all that depends on them, come back where it is converted or written.

    x -> front -> a, b -> plugin -> c -> Gather -> d        runs as x -> front -> a, b

A plugin is a node of a domain that neither ONNX, ONNX Runtime nor a function of the file has; without a domain, of a
name that TensorRT's plugins have. One in a body or a function stays where it is, and so does one with nothing in front.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

import onnx
import onnx_ir as ir
from onnx.defs import has

from truehalf.codes import coded
from truehalf.ir.facts import all_values, cloned, label_of
from truehalf.ir.normalize import Names, rename
from truehalf.ir.ops import NAMED_AS_PLUGIN
from truehalf.ir.opset import ToOpset
from truehalf.ir.proto.names import graphs_of
from truehalf.ir.proto.one_image import take_axis

BEHIND = "truehalf.behind_plugins"  # key of ir.Model.meta: ir.Model of the plugins and all behind them
OF_PLUGINS = "truehalf.plugins"  # domain of those that have none, for onnx
_KNOWN = ("ai.onnx.", "com.microsoft.", "com.ms.", "org.pytorch.aten.")
_Node: TypeAlias = onnx.NodeProto | ir.Node


def is_known(domain: str) -> bool:
    """Whether a domain is one of ONNX or ONNX Runtime, or inside one."""
    return f"{domain}.".startswith(_KNOWN)


def is_plugin(node: _Node, functions: Collection[tuple[str, str]] = ()) -> bool:
    """Whether a node is a plugin, see above.

    Args:
        functions: domain and name of those of the file.
    """
    if node.domain in ("", "ai.onnx"):
        return not has(node.op_type) and bool(NAMED_AS_PLUGIN.search(node.op_type))
    return not is_known(node.domain) and (node.domain, node.op_type) not in functions


def take_out(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Leave in a model what stands in front of plugins; its outputs are those that depend on none, then what is read
    behind.

    Returns:
        the plugins and all that depends on them: of what it reads, and of outputs that need no plugin, the inputs; with
        the outputs of the model. None where there are none, or nothing stands in front.
    """
    graph, functions = proto.graph, {(each.domain, each.name) for each in proto.functions}
    made, size = set[str](), -1
    while len(made) > size:  # once, where nodes are sorted
        size = len(made)
        for node in graph.node:
            if not made.isdisjoint(_read(node)) or is_plugin(node, functions):
                made.update(filter(None, node.output))
    if not made:
        return None
    behind = [node for node in graph.node if not made.isdisjoint(node.output)]
    front = [node for node in graph.node if made.isdisjoint(node.output)]
    read = dict.fromkeys(n for node in sorted(behind, key=lambda each: not is_plugin(each)) for n in _read(node))
    kept = [value.name for value in graph.output if value.name not in made]
    outside = {*kept, *(value.name for value in graph.input)}
    taken_along = {node.output[0]: node for node in front if node.output[0] in read and _is_repeated(node, outside)}
    read |= dict.fromkeys(name for node in taken_along.values() for name in node.input)
    computed = {name for node in front for name in node.output} - taken_along.keys()
    entering = [name for name in read if name in computed and name not in kept]
    if not entering and not computed.intersection(kept):
        return None
    taken = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    if any((node.domain, node.op_type) in functions for node in behind):
        taken.functions.extend(proto.functions)
    taken.graph.name = graph.name
    taken.graph.node.extend([*taken_along.values(), *behind])
    taken.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in read)
    taken.graph.value_info.extend(value for value in graph.value_info if value.name in made)
    taken.graph.output.extend(graph.output)
    needed = {*kept, *(name for node in front for name in _read(node))}
    _keep(graph.node, lambda node: made.isdisjoint(node.output) and not taken_along.keys() - needed >= {*node.output})
    needed |= {value.name for value in graph.input}  # and listed there: its default stays with it
    _keep(graph.initializer, lambda tensor: tensor.name in needed or tensor.name not in read)
    _keep(graph.output, lambda value: value.name in kept)
    graph.output.extend(_typed(proto, entering))
    ends = {value.name: value for value in (*graph.input, *graph.output)}
    weights = {tensor.name for tensor in taken.graph.initializer}
    taken.graph.input.extend(ends[name] for name in {**read, **dict.fromkeys(kept)} if name in ends.keys() - weights)
    return taken


def _is_repeated(node: onnx.NodeProto, outside: Collection[str]) -> bool:
    """Whether a node in front is one behind, too: a constant, and a Cast of what the model takes or puts out."""
    return node.op_type == "Constant" or (node.op_type == "Cast" and node.input[0] in outside)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node and the graphs in it read, those of these graphs among them."""
    yield from filter(None, node.input)
    for graph in graphs_of(node):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from _read(inner)


def _keep(entries: Any, wanted: Callable[[Any], bool]) -> None:
    for index in reversed(range(len(entries))):
        if not wanted(entries[index]):
            del entries[index]


def _typed(proto: onnx.ModelProto, names: list[str]) -> list[onnx.ValueInfoProto]:
    """The type of each value, as it is stated or inferred; one without a type where neither says it."""
    stated = {value.name: value for value in proto.graph.value_info if value.type.HasField("tensor_type")}
    if not stated.keys() >= {*names}:
        stated |= {value.name: value for value in onnx.shape_inference.infer_shapes(proto).graph.value_info}
    return [stated.get(name) or onnx.ValueInfoProto(name=name) for name in names]


def entering(model: ir.Model) -> list[str]:
    """Names of the tensors that enter the plugins of a model, then of those that are read behind."""
    if (behind := model.meta.get(BEHIND)) is None:
        return []
    return [str(value.name) for value in behind.graph.inputs if value.uses() and value.name in _ends(model.graph)]


def plugins_of(model: ir.Model) -> list[ir.Node]:
    """The plugins that were taken out of a model."""
    if (behind := model.meta.get(BEHIND)) is None:
        return []
    return [node for node in behind.graph if is_plugin(node, {key[:2] for key in behind.functions})]


def not_run(model: ir.Model) -> str | None:
    """What is to be said of the plugins that were taken out of a model; None where there are none."""
    if not (plugins := plugins_of(model)):
        return None
    others = sum(node not in plugins and bool(node.inputs) for node in model.meta[BEHIND].graph)
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
    ends, names = _ends(candidate.graph), Names(candidate)
    renamed = {ends[old]: new for old, new in zip(theirs, ours, strict=True) if old != new and new not in ends}
    inside = {value for value in all_values(candidate) if value.name in renamed.values()}
    rename(candidate, {value: names.fresh(f"{value.name}/inside") for value in inside} | renamed)


def _ends(graph: ir.Graph) -> dict[str | None, ir.Value]:
    return {value.name: value for value in graph.outputs}


def _raise(behind: ir.Model, opset: int | None) -> None:
    """Bring what is behind plugins to an opset; onnx has no rule for these, and leaves other domains alone."""
    if opset == behind.graph.opset_imports.get(""):
        return
    for node in behind.graph:
        node.domain = OF_PLUGINS if node.domain == "" and is_plugin(node) else node.domain
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
    graph, ends = taken.graph, _ends(made.graph) | {value.name: value for value in made.graph.inputs}
    inputs, moved, weights = list(graph.inputs), list(graph), list(graph.initializers.values())
    outputs = [ends[value.name] if value.is_graph_input() else value for value in graph.outputs]
    graph.outputs.clear()
    graph.initializers.clear()
    graph.remove(moved)
    names, values = Names(made), {value.name: value for value in all_values(made)}
    for value in (*weights, *(value for node in moved for value in node.outputs)):
        if value.name and value.name in values:
            other = names.fresh(f"{value.name}/other")
            if value in outputs:  # whose names stay
                rename(made, {values[value.name]: other})
            else:
                value.name = other
    for value in inputs:
        value.replace_all_uses_with(ends[value.name])
    for node in moved:
        node.meta[BEHIND] = bool(node.inputs)
    for weight in weights:
        made.graph.register_initializer(weight)
    made.graph.extend(moved)
    made.graph.outputs.clear()
    made.graph.outputs.extend(outputs)
    for key, function in taken.functions.items():
        made.functions.setdefault(key, function)
    for domain, version in graph.opset_imports.items():
        made.graph.opset_imports.setdefault(domain, version)
    return made
