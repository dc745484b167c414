"""Exported graphs made readable: scopes in node names, named axes, no casts to the same type, no sequences."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import constant_of
from truehalf.ir.passes import Done, Pass
from truehalf.ir.selectors import NAME_SCOPES

DynamicAxes = Mapping[str, Mapping[int, str]]
_NO_SCOPE = "_empty_nn_module_stack"  # what torch.export calls the scope of nodes that it added itself


class SplitWithoutSequences(Pass):
    """SequenceAt(SplitToSequence(x, sizes), i) -> Split(x, sizes)[i], where i and the number of sizes are known."""

    def edit(self, model: ir.Model, done: Done) -> None:
        graph = model.graph
        for split in [node for node in graph if node.op_type == "SplitToSequence" and len(node.inputs) == 2]:
            sizes = _part_sizes(split)
            picks = [use.node for use in split.outputs[0].uses()]
            indices = [constant_of(pick.inputs[1]) for pick in picks if pick.op_type == "SequenceAt"]
            known = [index for index in indices if index is not None]
            if sizes is None or len(known) < len(picks):
                done.refuse(split, "its sizes, or what is taken of the sequence, are known only in a run")
                continue
            lengths, count = sizes
            axis = {"axis": split.attributes.get_int("axis", 0)}
            parts = ir.node("Split", [split.inputs[0], lengths], axis, num_outputs=count)
            made = [node for node in (lengths.producer(), parts) if node is not None and node.graph is None]
            for node in made:
                node.metadata_props.update(split.metadata_props)
            graph.insert_before(split, made)
            for pick, index in zip(picks, known, strict=True):
                ir.convenience.replace_all_uses_with(pick.outputs[0], parts.outputs[int(index)])
            graph.remove(picks, safe=True)
            graph.remove(split, safe=True)
            done.counts["SplitToSequence"] += 1


def _part_sizes(split: ir.Node) -> tuple[ir.Value, int] | None:
    """Lengths of the parts and how many there are: as given, or, given one length, as many as fit and the rest; None
    where not known.
    """
    x, given = split.inputs
    part = constant_of(given)
    if given is not None and (part is None or part.ndim == 1):
        count = _elements(given)
        return None if count is None else (given, count)
    length = None if x is None or x.shape is None else x.shape[split.attributes.get_int("axis", 0)]
    if part is None or not isinstance(length, int):
        return None
    whole, rest = divmod(length, int(part))
    sizes = [int(part)] * whole + [rest] * bool(rest)
    return ir.node("Constant", [], {"value": ir.tensor(sizes, ir.DataType.INT64)}).outputs[0], len(sizes)


def _elements(sizes: ir.Value) -> int | None:
    """How many sizes there are in a constant, or in a Concat of scalars, as the exporter writes sizes that vary."""
    constant, producer = constant_of(sizes), sizes.producer()
    if constant is not None:
        return constant.size
    if producer is not None and producer.op_type == "Concat":
        counts = [_elements(value) for value in producer.inputs if value is not None]
        return None if None in counts else sum(count for count in counts if count is not None)
    scalar = producer.inputs[0] if producer is not None and producer.op_type == "Reshape" else None
    return 1 if scalar is not None and scalar.shape is not None and len(scalar.shape) == 0 else None


class DropCastsToOwnType(Pass):
    """CastLike(x, y) -> x where x and y have one type: the exporter writes them where torch promotes."""

    def edit(self, model: ir.Model, done: Done) -> None:
        ends = set(model.graph.outputs)
        for node in [node for node in model.graph if node.op_type == "CastLike"]:
            x, like = node.inputs
            if x is None or like is None or x.dtype is None or x.dtype != like.dtype or node.outputs[0] in ends:
                continue
            ir.convenience.replace_all_uses_with(node.outputs[0], x)
            model.graph.remove(node, safe=True)
            done.counts["CastLike"] += 1


class NameByScope(Pass):
    """Names nodes and their outputs as TorchScript does: /outer/inner/OpType, then _1, _2, ..., and <node>_output_0.

    The exporter may give a name twice (an initializer `mean` beside a node's output `mean`), and its notes on
    nodes hold stack traces with paths of this machine.
    """

    def edit(self, model: ir.Model, done: Done) -> None:
        seen: Counter[str] = Counter()
        for node in model.graph.all_nodes():
            scopes = ast.literal_eval(node.metadata_props.get(NAME_SCOPES, "[]"))[:-1]
            scopes = [scope for scope in scopes if not scope.startswith(_NO_SCOPE)]
            parts = [
                inner.removeprefix(f"{outer}.") for outer, inner in zip(["", *scopes], scopes, strict=False) if inner
            ]
            name = "/".join(["", *parts, node.op_type])
            node.name = f"{name}_{seen[name]}" if seen[name] else name
            seen[name] += 1
            node.metadata_props.clear()
            for index, value in enumerate(node.outputs):
                if not value.is_graph_output():
                    value.name = f"{node.name}_output_{index}"
        done.counts["named"] += seen.total()


@dataclass(frozen=True)
class NameAxes(Pass):
    """Gives axes that vary their declared symbols; what lies between is left to shape inference.

    Raises:
        StageError: when an axis that should vary has a number.
    """

    axes: DynamicAxes

    def edit(self, model: ir.Model, done: Done) -> None:
        ends = {value.name: value for value in (*model.graph.inputs, *model.graph.outputs)}
        for node in model.graph.all_nodes():
            for value in node.outputs:
                if value.name not in ends:
                    done.counts["cleared"] += (value.type, value.shape) != (None, None)
                    value.type = value.shape = None
        for name, axes in self.axes.items():
            shape = ends[name].shape
            assert shape is not None
            sizes = list(shape)
            for axis, symbol in axes.items():
                if isinstance(sizes[axis], int):
                    raise StageError(
                        "axis-fixed",
                        f"export: axis {axis} of {name!r} should vary ({symbol}), and the module's code fixes it at "
                        f"{sizes[axis]}; use tensor.shape in the module, or take the axis out of trace.dynamic_axes",
                    )
                done.counts["axes"] += sizes[axis] != ir.SymbolicDim(symbol)
                sizes[axis] = ir.SymbolicDim(symbol)
            ends[name].shape = ir.Shape(sizes)
