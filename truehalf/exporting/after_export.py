"""Exported graphs made readable: scopes in node names, named axes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.passes import Done, Pass
from truehalf.ir.selectors import NAME_SCOPES

DynamicAxes = Mapping[str, Mapping[int, str]]
_NO_SCOPE = "_empty_nn_module_stack"  # what torch.export calls the scope of nodes that it added itself


class KeepConstants(Pass):
    """Makes weights of constants that a graph reads and does not hold: torch's optimizer loses bounds of Clip, as of a
    grid_sample spelt out in gathers (onnxscript 0.7.2).
    """

    def edit(self, model: ir.Model, done: Done) -> None:
        graph = model.graph
        for value in [each for node in graph for each in node.inputs if each is not None]:
            is_defined = value.producer() is not None or value.is_graph_input() or value.is_initializer()
            if not is_defined and value.const_value is not None:
                graph.register_initializer(value)
                done.counts["kept"] += 1


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
