"""Map of each end of a float32 tensor to the node or graph input or output that decides its precision; both placing and
converting read it.

    owner    something that has one precision: a node, or a `Slot` of If, Loop or Scan
    tensor   a float32 value with the owner that writes it and, for each use, the owner that reads it

An ordinary node owns its half slots (truehalf.ir.slots); its other float slots are FP32 whatever the node does. If,
Loop and Scan have a precision for each thing that they pass on, as one type must hold at all its places:

    If    output i:   the output, and output i of both branches
    Loop  state k:    input k+2, subgraph input k+2, subgraph output k+1, output k
    Loop  scan j:     subgraph output 1+K+j, output K+j           (K states)
    Scan  state k:    input k, subgraph input k, subgraph output k, output k
    Scan  input j:    input K+j, subgraph input K+j
    Scan  output j:   subgraph output K+j, output K+j

Subgraphs of other operators stay FP32, and so does what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from truehalf.ir.facts import all_nodes, subgraphs
from truehalf.ir.opset import SCAN_WITHOUT_BATCH
from truehalf.ir.slots import Slots, is_float32, movable_slots, schema_of, takes_any_type

FP32, FP16 = ir.DataType.FLOAT, ir.DataType.FLOAT16


@dataclass(frozen=True)
class Slot:
    """What If, Loop or Scan pass on under one type: output `index`, or Scan's input j as index len(outputs) + j."""

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
        owners: each with the node whose verdict holds for it (a slot's is its control-flow node).
        slots: half slots by ordinary node.
        tensors: the float32 values of all graphs that have a name.
        holders: by subgraph, the node that holds it.
    """

    owners: dict[Owner, ir.Node] = field(default_factory=dict)
    slots: dict[ir.Node, Slots] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    holders: dict[ir.Graph, ir.Node] = field(default_factory=dict)


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
        movable: nodes that are not pinned, control flow included; the others are FP32.
        keep_io_types: graph inputs and outputs that stay float32: all, none, or those named; an input that is `exact`
            stays so in any case.
        init_conversion_max_bytes: larger float32 initializers stay FP32 and are cast at run time; None: none does.
        exact: float32 values that stay so: control flow passes them on as such, and a Cast reads them as such.
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
        # What control flow passes on: ends of subgraph inputs, graph outputs and control-flow nodes.
        self.subgraph_inputs: dict[ir.Value, End] = {}
        self.graph_outputs: dict[ir.Graph, list[End]] = {}
        self.node_inputs: dict[ir.Node, dict[int, End]] = {}
        self.node_outputs: dict[ir.Node, dict[int, End]] = {}

    def found(self) -> Ports:
        main = self.model.graph
        self.graph_outputs[main] = [self.io_type(value.name) for value in main.outputs]
        for node in all_nodes(self.model):
            if subgraphs(node):
                self._control_flow(node)
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
            yield value, self.io_type(value.name) if main else self.subgraph_inputs.get(value, FP32), False
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
        if node in self.node_inputs:
            return self.node_inputs[node].get(index, FP32)
        if takes_any_type(node):
            return FP32 if node.op_type == "Cast" and node.inputs[index] in self.exact else None
        slots = self.ports.slots.get(node)
        return node if slots is not None and index in slots.inputs else FP32

    def _output_end(self, node: ir.Node, index: int) -> End:
        if node in self.node_outputs:
            return self.node_outputs[node].get(index, FP32)
        slots = self.ports.slots.get(node)
        return node if slots is not None and index in slots.outputs else FP32

    def _control_flow(self, node: ir.Node) -> None:
        self.node_inputs[node], self.node_outputs[node] = {}, {}
        held = subgraphs(node)
        for subgraph in held:
            self.graph_outputs[subgraph] = [FP32] * len(subgraph.outputs)
            self.ports.holders[subgraph] = node
        for slot, places in passed_on(node, held):
            values = [value for value in places.values(node) if value.name]
            exact = not self.exact.isdisjoint(places.passed(node))
            if node in self.movable and not exact and values and all(is_float32(value) for value in values):
                self.ports.owners[slot] = node
                self._own(slot, places)

    def _own(self, slot: Slot, places: SlotPorts) -> None:
        if places.input is not None:
            self.node_inputs[slot.node][places.input] = slot
        if places.output is not None:
            self.node_outputs[slot.node][places.output] = slot
        for value in places.subgraph_inputs:
            self.subgraph_inputs[value] = slot
        for subgraph, index in places.subgraph_outputs:
            self.graph_outputs[subgraph][index] = slot


@dataclass(frozen=True)
class SlotPorts:
    """All places of one slot: an input and an output of the node, inputs and outputs of its subgraphs."""

    input: int | None = None
    output: int | None = None
    subgraph_inputs: tuple[ir.Value, ...] = ()
    subgraph_outputs: tuple[tuple[ir.Graph, int], ...] = ()

    def passed(self, node: ir.Node) -> list[ir.Value]:
        """What the node outputs there, and what its subgraphs get."""
        return [*self.subgraph_inputs, *([node.outputs[self.output]] if self.output is not None else [])]

    def values(self, node: ir.Node) -> list[ir.Value]:
        inner = [*self.subgraph_inputs, *(subgraph.outputs[index] for subgraph, index in self.subgraph_outputs)]
        if self.output is not None:
            inner.append(node.outputs[self.output])
        read = node.inputs[self.input] if self.input is not None else None
        return inner if read is None else [*inner, read]


def passed_on(node: ir.Node, held: list[ir.Graph]) -> Iterable[tuple[Slot, SlotPorts]]:
    """What If, Loop and Scan pass on, of any type; nothing for other operators, and for Scan before opset 9.

    Args:
        held: the subgraphs of the node.
    """
    kind = node.op_type if node.domain == "" else ""
    outputs = range(len(node.outputs))
    if kind == "If":
        if all(len(subgraph.outputs) >= len(node.outputs) for subgraph in held):
            for i in outputs:
                yield Slot(node, i), SlotPorts(output=i, subgraph_outputs=tuple((subgraph, i) for subgraph in held))
    elif kind == "Loop":
        (subgraph,) = held
        states = len(subgraph.inputs) - 2
        for i in outputs:
            state = SlotPorts(i + 2, i, (subgraph.inputs[i + 2],), ((subgraph, i + 1),)) if i < states else None
            yield Slot(node, i), state or SlotPorts(output=i, subgraph_outputs=((subgraph, i + 1),))
    elif kind == "Scan" and (schema := schema_of(node)) is not None and schema.since_version >= SCAN_WITHOUT_BATCH:
        (subgraph,) = held
        states = len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)
        for i in outputs:
            state = SlotPorts(i, i, (subgraph.inputs[i],), ((subgraph, i),)) if i < states else None
            yield Slot(node, i), state or SlotPorts(output=i, subgraph_outputs=((subgraph, i),))
        for i in range(states, len(node.inputs)):
            yield Slot(node, len(node.outputs) + i - states), SlotPorts(input=i, subgraph_inputs=(subgraph.inputs[i],))


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph first, then subgraphs in the order of their nodes."""
    yield model.graph
    for node in all_nodes(model):
        yield from subgraphs(node)
