"""Bodies of Loop and Scan, and both branches of an If whose samples differ, as models of their own.

A body reads, beside its inputs, values of the graph around it; as a model it has these as inputs, too, and constants as
its own. What it is fed is found by running it turn by turn, so that states of any shape are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import Instrumented, main_values
from truehalf.errors import StageError
from truehalf.ir.facts import is_op, subgraphs, values_of, with_subgraphs
from truehalf.ir.inlining import inline_branch
from truehalf.runtime.ort.session import Session

Feed = Mapping[str, np.ndarray]
_MOST_TURNS = 1 << 14  # of one body over all samples, and the bytes that they read
_MOST_BYTES = 1 << 30


@dataclass
class Body:
    """A subgraph as a model.

    Attributes:
        model: a copy.
        feeds, names: of every turn over the samples.
        node: that it is of, as Op 'name'.
        read: names of the values around it that it reads.
    """

    model: ir.Model
    node: str
    read: list[str] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    bytes: int = 0

    def add(self, feed: Feed, name: str) -> None:
        self.feeds.append(feed)
        self.names.append(name)
        self.bytes += sum(map(_bytes, feed.values()))
        if len(self.feeds) > _MOST_TURNS or self.bytes > _MOST_BYTES:
            raise StageError("too-large", f"it runs more than {_MOST_TURNS} times, or reads more than 1 GB")


def _bytes(value: np.ndarray | Sequence[np.ndarray] | None) -> int:
    """Of a tensor, a sequence or an optional."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_bytes, value or ()))


def with_branches(model: ir.Model, samples: Iterable[tuple[str, Feed]]) -> ir.Model:
    """The model with, in place of each If, the branch that all samples take; an If whose samples differ stays."""
    model, left = model.clone() if any(is_op(node, "If") for node in model.graph) else model, set[str | None]()
    while ifs := [node for node in model.graph if is_op(node, "If") and node.name not in left]:
        conditions = [str(node.inputs[0].name) for node in ifs if node.inputs[0] is not None]
        session = Instrumented(model).open(conditions)
        runs = [session.run(feeds)[0] for _, feeds in samples]
        for node, condition in zip(ifs, conditions, strict=True):
            taken = {bool(run[condition].item()) for run in runs}
            if len(taken) > 1 or not inline_branch(node, taken.pop()):
                left.add(node.name)
    return model


def bodies(model: ir.Model, samples: Iterable[tuple[str, Feed]], left: dict[str, str]) -> Iterator[Body]:
    """The subgraphs of nodes of the main graph that run on some sample.

    Args:
        left: gets the nodes whose subgraphs cannot be run by themselves, as Op 'name', and why.
    """
    for node in model.graph:
        if is_op(node, "If", "Loop", "Scan"):
            run = _of_if if is_op(node, "If") else _of_loop if is_op(node, "Loop") else _of_scan
            try:
                made = [_body(model, str(node.name), number) for number in range(len(subgraphs(node)))]
                inputs = ["" if value is None else str(value.name) for value in node.inputs]
                names = [name for name in dict.fromkeys([*inputs, *(n for each in made for n in each.read)]) if name]
                session = Instrumented(model).open(names)
                for sample, feeds in samples:
                    run(node, made, session.values(feeds), sample)
            except StageError as error:
                left[f"{node.op_type} {node.name!r}"] = error.text
            else:
                yield from (body for body in made if body.feeds)


def _body(model: ir.Model, name: str, number: int) -> Body:
    """A subgraph of the node of this name, in a copy of the model."""
    copy = model.clone()
    node = next(node for node in copy.graph if node.name == name)
    graph, around = subgraphs(node)[number], main_values(copy)
    held = [each for top in graph for each in with_subgraphs(top)]
    inner = {*values_of(graph), *(value for each in held for sub in subgraphs(each) for value in values_of(sub))}
    results = [graph, *(sub for each in held for sub in subgraphs(each))]
    read = [value for each in held for value in each.inputs] + [value for each in results for value in each.outputs]
    captured = [value for value in dict.fromkeys(read) if value is not None and value not in inner]
    body = Body(copy, f"{node.op_type} {name!r}")
    copy.graph.outputs.clear()
    for value in captured:
        constant = ir.convenience.get_const_tensor(value)
        own = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=constant)
        ir.convenience.replace_all_uses_with(value, own, replace_graph_outputs=True)
        if own.const_value is not None:
            graph.register_initializer(own)
        elif value.name in around:
            graph.inputs.append(own)
            body.read.append(str(value.name))
    for key in [key for key, each in node.attributes.items() if each.type == ir.AttributeType.GRAPH]:
        node.attributes.pop(key)
    graph.opset_imports.update(copy.graph.opset_imports)
    body.model = ir.Model(graph, ir_version=copy.ir_version, functions=list(copy.functions.values()))
    return body


def _of_if(node: ir.Node, made: list[Body], run: Feed, sample: str) -> None:
    names = [key for key, each in node.attributes.items() if each.type == ir.AttributeType.GRAPH]
    taken = "then_branch" if run[_name(node, 0)].item() else "else_branch"
    body = made[names.index(taken)]
    body.add({name: run[name] for name in body.read}, sample)


def _of_loop(node: ir.Node, made: list[Body], run: Feed, sample: str) -> None:
    (body,) = made
    most = run[_name(node, 0)].item() if _name(node, 0) else np.iinfo(np.int64).max
    going = np.asarray(run[_name(node, 1)] if _name(node, 1) else True)
    states, turn = [run[_name(node, index)] for index in range(2, len(node.inputs))], 0
    step = _stepping(body, run, len(states) + 2)
    while turn < most and going.item():
        written = step([np.array(turn, np.int64), going.reshape(()), *states], f"{sample}, turn {turn}")
        going, states, turn = written[0], written[1 : 1 + len(states)], turn + 1


def _of_scan(node: ir.Node, made: list[Body], run: Feed, sample: str) -> None:
    (body,) = made
    over = node.attributes.get_int("num_scan_inputs", 0) or 0
    count = len(node.inputs) - over
    arrays = [run[_name(node, index)] for index in range(len(node.inputs))]
    axes = node.attributes.get_ints("scan_input_axes") or [0] * over
    backwards = node.attributes.get_ints("scan_input_directions") or [0] * over
    rows = [np.moveaxis(array, axis, 0) for array, axis in zip(arrays[count:], axes, strict=True)]
    rows = [array[::-1] if reverse else array for array, reverse in zip(rows, backwards, strict=True)]
    states, step = arrays[:count], _stepping(body, run, len(arrays))
    for turn, slices in enumerate(zip(*rows, strict=True)):
        states = step([*states, *map(np.ascontiguousarray, slices)], f"{sample}, turn {turn}")[:count]


def _name(node: ir.Node, index: int) -> str:
    value = node.inputs[index] if index < len(node.inputs) else None
    return "" if value is None else str(value.name)


def _stepping(body: Body, run: Feed, count: int) -> Callable[[list[np.ndarray], str], list[np.ndarray]]:
    """Run one turn of a body on its first `count` inputs, and note what it was fed."""
    session, fixed = Session(body.model), {name: run[name] for name in body.read}
    names = [str(value.name) for value in body.model.graph.inputs[:count]]
    written = [str(value.name) for value in body.model.graph.outputs]

    def step(arrays: list[np.ndarray], name: str) -> list[np.ndarray]:
        feed = dict(zip(names, arrays, strict=True)) | fixed
        body.add(feed, name)
        values = session.values(feed)
        return [values[each] for each in written]

    return step
