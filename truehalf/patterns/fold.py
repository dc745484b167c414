"""Constant folding, and rotary positions, whose tables no input changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, constant_of, is_op, reached, readers_of, with_subgraphs
from truehalf.ir.normalize import InferTypes, apart, rename
from truehalf.ir.ops import MOVES as OF_MOVES
from truehalf.ir.ops import Trait, has, with_trait
from truehalf.patterns.control_flow import is_decided
from truehalf.patterns.frame import MOVES, Match, Pattern, Subject, moved_from
from truehalf.patterns.origins import ints, sizes_in
from truehalf.patterns.rewrite import NotEqualError, Writer, fix_each, graph_of, ints_of

SMALL, LARGE = 1 << 16, 1 << 24  # bytes of a constant, and of a rotary table: 4096 positions of 1024 float32
_KEPT = Trait.RANDOM | Trait.SEQUENCE | Trait.QUANTIZED  # DequantizeLinear keeps weights small
_AFTER = OF_MOVES | with_trait(Trait.SAME) | {"Add", "Mul"}
_COPIES_MAX = 8
_FOLDED_SINCE = (10, 13)  # an If that fixed sizes decide (NVIDIA/TensorRT#4558)


class RopeTile(Pattern):
    """Tile after If: rotary positions computed in the graph

    torch.tile asks in the graph which of tensor and repeats has fewer axes, with an If whose branches differ in shape.
    Fixed sizes decide it; TensorRT 10.3 refuses it all the same, 10.13 folds it.

    Instead: Repeat with torch.cat([x, x], -1), or compute cosines and sines once, in __init__; repair pass
    fold_constants.

    `torch.tile` is exported with two `If`, one for each way in which tensor and repeats may differ in rank; their
    branches differ in shape. Where fixed sizes decide the condition, TensorRT 10.13 folds it. Error for versions
    before: 10.3, as on JetPack 6, refuses the file.

    ```python
    angles.tile(2)
    torch.cat([angles, angles], -1)  # instead; best of all, cosines and sines as buffers, made once in __init__
    ```

    Source: NVIDIA/TensorRT#4558 (10.3 refuses what 10.13 builds), #4603.
    """

    id, severity, repair = "rope-tile", "info", "fold_constants"
    is_of_folded = False

    def find(self, subject: Subject) -> Iterator[Match]:
        is_refused = any(version < _FOLDED_SINCE for version in subject.versions)
        for node in subject.of_type("Tile"):
            sources = [moved_from(value, MOVES | {"Concat"}) for value in node.inputs]
            if any(is_op(source, "If") and is_decided(source, subject) for source in sources):
                yield Match(node, severity="error" if is_refused else "")


def fold_constants(writer: Writer) -> None:
    """Fold what no input changes; an If whose condition is constant becomes its branch.

        f(constants)                     ->  constant
        Shape(x), x of static shape      ->  constant; an element of Shape(x) that is static, too
        If(constant) {a} {b}             ->  a or b, in the place of the If
        Tile(x, [1, ..., k, ..., 1])     ->  Concat(x, ..., x)      k times, at the axis that is repeated

    ONNX Runtime computes the constants, node by node. Nothing grows: a result stays if it is at most 64 KiB, or at most
    as large as the constants that only this node reads and that go with it. On the way to a Sin or Cos, or from one, 16
    MiB are allowed, as for rotary tables, and a Tile that stays becomes a Concat: TensorRT fails on Tile and If there.
    What is random, lists of tensors, quantised weights and operators of other domains stay.

    Refused: a Tile of a rotary table whose repeats only a run knows, with more than one repeated axis, or more than 8
    copies.
    """

    def rewrite(node: ir.Node) -> None:
        repeats = ints_of(node.inputs[1])
        repeated = [axis for axis, count in enumerate(repeats or []) if count != 1]
        if repeats is None or len(repeated) != 1 or not 1 < repeats[repeated[0]] <= _COPIES_MAX:
            counts = "as a run computes" if repeats is None else repeats
            raise NotEqualError(f"it repeats {counts}: expected one axis, repeated 2 to {_COPIES_MAX} times")
        copies = [node.inputs[0]] * repeats[repeated[0]]
        writer.replace(node, writer.at(node).op("Concat", *copies, axis=repeated[0]))

    while _folds(writer):  # the nodes of an If that became its branch
        InferTypes()(writer.model)
    near = _near_waves(writer.model)
    fix_each(writer, [node for node in all_nodes(writer.model) if node in near and is_op(node, "Tile")], rewrite)


def _near_waves(model: ir.Model) -> set[ir.Node]:
    """Find each Sin and Cos, the nodes that it is computed from, and the moves and arithmetic that read it."""

    def before(node: ir.Node) -> Iterator[ir.Node | None]:
        return (value.producer() for each in with_subgraphs(node) for value in each.inputs if value is not None)

    def after(node: ir.Node) -> list[ir.Node]:
        return [reader for reader in readers_of(node) if is_op(reader, *_AFTER)]

    waves = [node for node in all_nodes(model) if is_op(node, "Sin", "Cos")]
    return {inner for node in reached(waves, before) for inner in with_subgraphs(node)} | {*reached(waves, after)}


def _folds(writer: Writer) -> bool:
    """Fold nodes in order, and return True if an If became its branch."""
    near, has_inlined = _near_waves(writer.model), False
    for node in list(all_nodes(writer.model)):
        if node.graph is None:
            continue  # it went with another
        if is_op(node, "If") and (condition := constant_of(node.inputs[0])) is not None:
            branch = node.attributes["then_branch" if condition.any() else "else_branch"].as_graph()
            _inline(node, branch, writer)
            has_inlined = True
        elif (results := _results(node, LARGE if node in near else SMALL)) is not None:
            made = [writer.at(node).constant(array, ir.DataType.from_numpy(array.dtype)) for array in results]
            writer.replace(node, *made)
    return has_inlined


def _inline(node: ir.Node, branch: ir.Graph, writer: Writer) -> None:
    """Move the nodes of a branch before its If."""
    rename(writer.model, apart(writer.model))  # sibling subgraphs may share names
    graph, results, inside = graph_of(node), list(branch.outputs), list(branch)
    initializers = list(branch.initializers.values())
    branch.outputs.clear()
    branch.initializers.clear()
    for value in initializers:
        graph.register_initializer(value)
    for inner in inside:
        branch.remove(inner)
        graph.insert_before(node, inner)
    writer.replace(node, *results)


def _results(node: ir.Node, limit: int) -> list[np.ndarray[Any, Any]] | None:
    """Compute a node's outputs where they are the same whatever the inputs are; None where not, or too large."""
    if node.domain != "" or not node.outputs or node.op_type == "Constant" or has(node, _KEPT):
        return None
    if any(output.is_graph_output() for output in node.outputs):
        return None
    moved = sizes_in(node.outputs[0], {})
    if moved is not None and ints(moved) is not None:
        return [moved.astype(np.int64)]
    arrays = {value: constant_of(value) for value in node.inputs if value is not None}
    constants = {value: array for value, array in arrays.items() if array is not None}
    if len(constants) < len(arrays):
        return None
    freed = sum(array.nbytes for value, array in constants.items() if len(value.uses()) == 1)
    if sum(map(_bytes, node.outputs)) > max(limit, freed):
        return None
    results = _computed(node, constants)
    return results if results is not None and sum(each.nbytes for each in results) <= max(limit, freed) else None


def _bytes(value: ir.Value) -> int:
    """Count the bytes of a tensor; 0 where its size is not known before it is computed."""
    if value.dtype is None or value.shape is None or not value.shape.is_static():
        return 0
    return int(math.prod(value.shape.numpy()) * value.dtype.itemsize)


def _computed(node: ir.Node, constants: dict[ir.Value, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]] | None:
    """Run one node in ONNX Runtime; None for one that it does not run on its own."""
    from truehalf.runtime.ort import Session

    proto, feeds = ir.to_proto(node), {value.name or "": array for value, array in constants.items()}
    inputs = [onnx.helper.make_tensor_value_info(each.name or "", int(each.dtype or 0), None) for each in constants]
    names = [name for name in proto.output if name]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    graph = onnx.helper.make_graph([proto], "fold", inputs, outputs)
    opset = onnx.helper.make_opsetid("", graph_of(node).opset_imports.get("", 0))
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    with contextlib.suppress(StageError):
        results = Session(model.SerializeToString(), optimize=False, intra_op_num_threads=1).run(feeds)
        if len(names) == len(node.outputs):
            return [results[name] for name in names]
    return None


PATTERNS = (RopeTile(),)
