"""Map of each end of a float32 tensor to the node or graph input or output that decides its precision; both placing and
converting read it.

    owner    something that has one precision: a node, or a `Slot` of an If
    tensor   a float32 value with the owner that writes it and, for each use, the owner that reads it

An ordinary node owns its half slots (truehalf.ir.slots); its other float slots are FP32 whatever the node does. An If
has a precision for each output, which is that of the same output of both branches. Subgraphs of other operators (Loop,
Scan, ...) stay FP32, and so does what they read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.ir.facts import all_nodes, is_op, subgraphs
from truehalf.ir.slots import Slots, is_float32, movable_slots, takes_any_type

FP32, FP16 = ir.DataType.FLOAT, ir.DataType.FLOAT16


@dataclass(frozen=True)
class Slot:
    """Output `index` of an If, and of both its branches."""

    node: ir.Node
    index: int


Owner = ir.Node | Slot
End = Owner | ir.DataType | None  # DataType: this type, whatever the assignment says; None: either type as it stands


@dataclass(frozen=True)
class Use:
    """One reader of a tensor: input `index` of `reader`, or output `index` of the graph `reader`."""

    reader: ir.Node | ir.Graph
    index: int
    end: End

    def read(self, value: ir.Value) -> None:
        """Make this reader read `value` instead."""
        if isinstance(self.reader, ir.Node):
            self.reader.replace_input_with(self.index, value)
        else:
            self.reader.outputs[self.index] = value


@dataclass(frozen=True)
class Tensor:
    """A float32 value, its two ends. `constant`: an initializer, which can be stored in either type."""

    value: ir.Value
    graph: ir.Graph
    producer: End
    uses: tuple[Use, ...]
    constant: bool = False


@dataclass
class Ports:
    """The owners of a model and the tensors between them, both in graph order.

    Attributes:
        owners: each with the node whose verdict holds for it (a slot's is its If).
        slots: half slots by ordinary node.
        tensors: the float32 values of all graphs that have a name.
    """

    owners: dict[Owner, ir.Node] = field(default_factory=dict)
    slots: dict[ir.Node, Slots] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)


def type_at(end: End, assignment: Mapping[Owner, ir.DataType]) -> ir.DataType | None:
    """The type of an end under an assignment; what is not assigned stays FP32."""
    return end if end is None or isinstance(end, ir.DataType) else assignment.get(end, FP32)


def ports(
    model: ir.Model,
    movable: Collection[ir.Node],
    keep_io_types: bool | Collection[str] = True,
    init_conversion_max_bytes: int | None = None,
    exact: Collection[ir.Value] = (),
) -> Ports:
    """Find owners and tensors.

    Args:
        model: typed, sorted; float constants are initializers (truehalf.ir.normalize.PREPARE).
        movable: nodes that are not pinned, Ifs included; the others are FP32.
        keep_io_types: graph inputs and outputs that stay float32: all, none, or those named; an input that is `exact`
            stays so in any case.
        init_conversion_max_bytes: larger float32 initializers stay FP32 and are cast at run time; None: none does.
        exact: float32 values that stay so: an If puts them out as such, and a Cast reads them as such.
    """
    finder = _Finder(model, {*movable}, {*exact}, keep_io_types)
    limit, outputs = init_conversion_max_bytes, finder.uses_as_output()
    for graph in _graphs(model):
        for value, producer in finder.values(graph):
            if value.name and is_float32(value):
                uses = [Use(use.node, use.idx, finder.input_end(use.node, use.idx)) for use in value.uses()]
                constant = value.const_value if value.is_initializer() and not value.is_graph_input() else None
                stored = constant is not None and (limit is None or constant.nbytes <= limit)
                finder.ports.tensors.append(Tensor(value, graph, producer, (*uses, *outputs.get(value, ())), stored))
    return finder.ports


def becomes_half(value: ir.Value, keep_io_types: bool | Collection[str], exact: Collection[ir.Value] = ()) -> bool:
    """Whether a float32 graph input or output becomes float16; arguments as in `ports`."""
    kept = keep_io_types if isinstance(keep_io_types, bool) else value.name in keep_io_types
    return not kept and not (value.is_graph_input() and value in exact)


class _Finder:
    def __init__(
        self, model: ir.Model, movable: set[ir.Node], exact: set[ir.Value], keep_io_types: bool | Collection[str]
    ) -> None:
        self._model, self._movable, self._exact, self._keep = model, movable, exact, keep_io_types
        self.ports = Ports()
        # of the main graph, of each If that may be FP16, and of its branches
        self._outputs: dict[ir.Graph | ir.Node, list[End]] = {model.graph: list(map(self._border, model.graph.outputs))}
        for node in all_nodes(model):
            if subgraphs(node):
                self._own_outputs(node)
            elif node in movable and (slots := movable_slots(node)):
                self.ports.slots[node] = slots
                self.ports.owners[node] = node

    def _border(self, value: ir.Value) -> ir.DataType:
        return FP16 if becomes_half(value, self._keep, self._exact) else FP32

    def values(self, graph: ir.Graph) -> Iterator[tuple[ir.Value, End]]:
        """Every value that a graph defines, with the end that writes it."""
        for value in graph.inputs:
            yield value, self._border(value) if graph is self._model.graph else FP32
        for value in graph.initializers.values():
            if not value.is_graph_input():
                yield value, FP32
        for node in graph:
            slots, ends = self.ports.slots.get(node), self._outputs.get(node)
            for index, value in enumerate(node.outputs):
                own: End = node if slots is not None and index in slots.outputs else FP32
                yield value, ends[index] if ends else own

    def uses_as_output(self) -> dict[ir.Value, list[Use]]:
        uses: dict[ir.Value, list[Use]] = {}
        for graph in _graphs(self._model):
            ends = self._outputs.get(graph)
            for index, value in enumerate(graph.outputs):
                uses.setdefault(value, []).append(Use(graph, index, ends[index] if ends else FP32))
        return uses

    def input_end(self, node: ir.Node, index: int) -> End:
        if takes_any_type(node):
            return FP32 if node.op_type == "Cast" and node.inputs[index] in self._exact else None
        slots = self.ports.slots.get(node)
        return node if slots is not None and index in slots.inputs else FP32

    def _own_outputs(self, node: ir.Node) -> None:
        """Make each float32 output of an If that may be FP16 an owner."""
        if node not in self._movable or not is_op(node, "If"):
            return
        branches = subgraphs(node)
        ends: list[End] = []
        for index, values in enumerate(zip(node.outputs, *(branch.outputs for branch in branches), strict=True)):
            is_owner = values[0] not in self._exact and all(is_float32(each) for each in values if each.name)
            ends.append(Slot(node, index) if is_owner else FP32)
        self.ports.owners.update({end: node for end in ends if isinstance(end, Slot)})
        self._outputs.update(dict.fromkeys((node, *branches), ends))


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph first, then subgraphs in the order of their nodes."""
    yield model.graph
    for node in all_nodes(model):
        yield from subgraphs(node)
