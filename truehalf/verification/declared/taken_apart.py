"""A file whose outputs are taken apart as its I/O spec declares (truehalf.io_spec.columns), in memory: what runs,
judges and locates then sees an output for each kind of column, whatever the file has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.io_spec.columns import ROWS_OF_IMAGE, has_parts, left_out, runs_by_image
from truehalf.io_spec.in_file import shape_of
from truehalf.io_spec.spec import Columns, IoSpec, OutputSpec
from truehalf.ir.facts import cloned
from truehalf.ir.model_forms import ModelFile

_FLOAT32 = ir.DataType.FLOAT
_TO_THE_END = np.iinfo(np.int64).max
_ADDED = "truehalf.taken_apart"  # in a node's metadata
_RANGES_ARE_INPUTS = 10  # of Slice, from this opset on


@dataclass(frozen=True)
class PartsFile(ModelFile):
    """A file of the same path and digest, whose model has further nodes at its end.

    Attributes:
        whole: the file.
        spec: that was taken apart.
    """

    whole: ModelFile
    spec: IoSpec

    @cached_property
    def model(self) -> ir.Model:
        model = cloned(self.whole.model)
        values = {str(value.name): value for value in model.graph.outputs}
        parts = [(each, each.part_of) for each in self.spec.outputs if each.part_of and each.part_of.output in values]
        _give_way(model.graph, {part.name for part, _ in parts})
        names = dict.fromkeys(at.output for _, at in parts)
        whole = {name: _added(model.graph, "Cast", [values[name]], f"{name}.float32", to=_FLOAT32) for name in names}
        outputs = [value for name, value in values.items() if name not in {*whole, *left_out(self.spec)}]
        outputs += [_part(model.graph, whole[at.output], part, at) for part, at in parts]
        model.graph.outputs.clear()
        model.graph.outputs.extend(outputs)
        return model

    @cached_property
    def runnable(self) -> ir.Model:
        return self.model

    @cached_property
    def digest(self) -> str:
        return self.whole.digest

    @cached_property
    def fixed_batch(self) -> int | None:
        """1 where the outputs are those of one image.

        Raises:
            StageError: where the inputs are fixed to more then.
        """
        fixed = self.whole.fixed_batch
        if not runs_by_image(self.spec) or fixed == 1:
            return fixed
        if fixed is not None:
            raise StageError(
                "in-conflict",
                f"{self.path}: its inputs take {fixed} images, and the I/O spec says that its outputs are of one",
            )
        return 1


def taken_apart(file: ModelFile, spec: IoSpec) -> ModelFile:
    """The file, its outputs taken apart; the file itself where no output is a part of another.

    Args:
        spec: that was taken apart (truehalf.io_spec.columns.apart).
    """
    return PartsFile(file.path, file, spec) if has_parts(spec) and not isinstance(file, PartsFile) else file


def as_written(file: ModelFile) -> ModelFile:
    """The file that was taken apart; any other as it is."""
    return file.whole if isinstance(file, PartsFile) else file


def is_added(node: ir.Node) -> bool:
    """Whether a node is none of the file's."""
    return _ADDED in node.metadata_props


def _give_way(graph: ir.Graph, names: set[str]) -> None:
    """Other names for the values inside that have one of these."""
    inside = [*graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    for value in (value for value in inside if value.name in names):
        value.name = f"{value.name}.inside"


def _part(graph: ir.Graph, whole: ir.Value, part: OutputSpec, at: Columns) -> ir.Value:
    """What `truehalf.io_spec.columns.in_parts` takes."""
    name, axis, is_vector = part.name, at.axis, part.kind in ("scores", "labels") or at.is_single
    if axis is None:
        taken = whole
    elif is_vector:
        taken = _added(graph, "Gather", [whole, _integers(graph, at.start, f"{name}.column")], name, axis=axis)
    else:
        taken = _slice(graph, whole, name, (at.start, at.stop), axis)
    if at.factor is not None and axis is not None:
        column = _integers(graph, [at.factor], f"{name}.factor")
        factor = _added(graph, "Gather", [whole, column], f"{name}.factor", axis=axis)
        taken = _added(graph, "Mul", [taken, factor], name)
    if at.is_one_image:
        taken = _filled(graph, taken, part)
    elif axis == 1 and not is_vector:
        taken = _added(graph, "Transpose", [taken], name, perm=[0, 2, 1])
    taken.name = name
    if part.shape is not None:
        taken.shape = shape_of(part)
    return taken


def _filled(graph: ir.Graph, rows: ir.Value, part: OutputSpec) -> ir.Value:
    """Rows of one image [n, ...] as [1, ROWS_OF_IMAGE, ...]."""
    sides = [side for side in part.sides if isinstance(side, int)]
    zeros = _constant(graph, np.zeros(sides[1:], np.float32), f"{part.name}.zeros")
    more = _added(graph, "Concat", [rows, zeros], part.name, axis=0)
    cut = _slice(graph, more, f"{part.name}.rows", (0, ROWS_OF_IMAGE), 0)
    return _added(graph, "Reshape", [cut, _integers(graph, sides, f"{part.name}.shape")], part.name)


def _slice(graph: ir.Graph, value: ir.Value, name: str, ends: tuple[int, int | None], axis: int) -> ir.Value:
    start, stop = ends
    ranges = {"starts": [start], "ends": [_TO_THE_END if stop is None else stop], "axes": [axis]}
    if (graph.opset_imports.get("") or 1) < _RANGES_ARE_INPUTS:
        return _added(graph, "Slice", [value], name, **ranges)
    inputs = [_integers(graph, numbers, f"{name}.{key}") for key, numbers in ranges.items()]
    return _added(graph, "Slice", [value, *inputs], name)


def _added(graph: ir.Graph, op_type: str, inputs: list[ir.Value], name: str, **attributes: int | list[int]) -> ir.Value:
    """The float32 output of a node at the end of a graph."""
    node = ir.node(op_type, inputs, attributes, name=f"{name}/{op_type}")
    node.metadata_props[_ADDED] = ""
    node.outputs[0].name = f"{name}/{op_type}"
    node.outputs[0].type = ir.TensorType(_FLOAT32)
    graph.append(node)
    return node.outputs[0]


def _integers(graph: ir.Graph, values: int | list[int], name: str) -> ir.Value:
    return _constant(graph, np.array(values, np.int64), name)


def _constant(graph: ir.Graph, values: np.ndarray, name: str) -> ir.Value:
    tensor = ir.tensor(values, name=name)
    graph.register_initializer(constant := ir.val(name, const_value=tensor))
    return constant
