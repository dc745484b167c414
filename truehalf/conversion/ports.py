"""Map of each end of a float32 tensor to the node or graph input or output that decides its precision; both placing and
converting read it.

    owner    something that has one precision: a node, or a `Slot` of an If
    tensor   a float32 value with the owner that writes it and, for each use, the owner that reads it

An ordinary node owns its half slots (truehalf.ir.slots); its other float slots are FP32 whatever the node does. An If
has a precision for each output, which is that of the same output of both branches. Subgraphs of other operators (Loop,
Scan, ...) stay FP32, and so does what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
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
    io_type = io_type_of(keep_io_types, exact)
    return _Finder(model, set(movable), io_type, init_conversion_max_bytes, set(exact)).found()


def io_type_of(
    keep_io_types: bool | Collection[str], exact: Collection[ir.Value] = ()
) -> Callable[[str | None], ir.DataType]:
    """The type of a float32 graph input or output, by name; arguments as in `ports`."""
    if keep_io_types is True:
        return lambda name: FP32
    kept = {value.name for value in exact if value.is_graph_input()}
    kept |= set() if keep_io_types is False else set(keep_io_types)
    return lambda name: FP32 if name in kept else FP16


class _Finder:
    def __init__(
        self,
        model: ir.Model,
        movable: set[ir.Node],
        io_type: Callable[[str | None], ir.DataType],
        init_conversion_max_bytes: int | None,
        exact: set[ir.Value],
    ) -> None:
        self.model, self.movable, self.io_type = model, movable, io_type
        self.init_conversion_max_bytes, self.exact = init_conversion_max_bytes, exact
        self.ports = Ports()
        self.graph_outputs: dict[ir.Graph, list[End]] = {}
        self.if_outputs: dict[ir.Node, dict[int, Slot]] = {}

    def found(self) -> Ports:
        main = self.model.graph
        self.graph_outputs[main] = [self.io_type(value.name) for value in main.outputs]
        for node in all_nodes(self.model):
            if subgraphs(node):
                self._own_outputs(node)
            elif node in self.movable and (slots := movable_slots(node)):
                self.ports.slots[node] = slots
                self.ports.owners[node] = node
        outputs = self._uses_as_output()
        for graph in _graphs(self.model):
            for value, producer, constant in self._values(graph):
                if value.name and is_float32(value):
                    uses = [Use(use.node, use.idx, self._input_end(use.node, use.idx)) for use in value.uses()]
                    tensor = Tensor(value, graph, producer, (*uses, *outputs.get(value, ())), constant)
                    self.ports.tensors.append(tensor)
        return self.ports

    def _values(self, graph: ir.Graph) -> Iterator[tuple[ir.Value, End, bool]]:
        """Every value that a graph defines, with the end that writes it, and whether it is a constant."""
        main = graph is self.model.graph
        for value in graph.inputs:
            yield value, self.io_type(value.name) if main else FP32, False
        for value in graph.initializers.values():
            if not value.is_graph_input():
                tensor, limit = value.const_value, self.init_conversion_max_bytes
                large = limit is not None and tensor is not None and tensor.nbytes > limit
                yield value, FP32, not large and tensor is not None
        for node in graph:
            for index, value in enumerate(node.outputs):
                yield value, self._output_end(node, index), False

    def _uses_as_output(self) -> dict[ir.Value, list[Use]]:
        uses: dict[ir.Value, list[Use]] = {}
        for graph in _graphs(self.model):
            ends = self.graph_outputs.get(graph)
            for index, value in enumerate(graph.outputs):
                uses.setdefault(value, []).append(Use(graph, index, ends[index] if ends else FP32))
        return uses

    def _input_end(self, node: ir.Node, index: int) -> End:
        if takes_any_type(node):
            return FP32 if node.op_type == "Cast" and node.inputs[index] in self.exact else None
        slots = self.ports.slots.get(node)
        return node if slots is not None and index in slots.inputs else FP32

    def _output_end(self, node: ir.Node, index: int) -> End:
        if node in self.if_outputs:
            return self.if_outputs[node].get(index, FP32)
        slots = self.ports.slots.get(node)
        return node if slots is not None and index in slots.outputs else FP32

    def _own_outputs(self, node: ir.Node) -> None:
        """Make each float32 output of an If that may be FP16 an owner."""
        if node not in self.movable or not is_op(node, "If"):
            return
        branches = subgraphs(node)
        if any(len(branch.outputs) < len(node.outputs) for branch in branches):
            return
        for branch in branches:
            self.graph_outputs[branch] = [FP32] * len(branch.outputs)
        for index, value in enumerate(node.outputs):
            values = [value, *(branch.outputs[index] for branch in branches)]
            if value not in self.exact and all(is_float32(each) for each in values if each.name):
                slot = Slot(node, index)
                self.ports.owners[slot] = node
                self.if_outputs.setdefault(node, {})[index] = slot
                for branch in branches:
                    self.graph_outputs[branch][index] = slot


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph first, then subgraphs in the order of their nodes."""
    yield model.graph
    for node in all_nodes(model):
        yield from subgraphs(node)
