"""A file whose outputs are taken apart as its I/O spec declares (truehalf.io_spec.columns), in memory: what runs,
judges and locates then sees an output for each kind of column, whatever the file has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from truehalf.io_spec.columns import has_parts
from truehalf.io_spec.in_file import shape_of
from truehalf.io_spec.spec import Columns, IoSpec, OutputSpec
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
        model = self.whole.model.clone()
        values = {str(value.name): value for value in model.graph.outputs}
        parts = [(each, each.part_of) for each in self.spec.outputs if each.part_of and each.part_of.output in values]
        _give_way(model.graph, {part.name for part, _ in parts})
        names = dict.fromkeys(at.output for _, at in parts)
        whole = {name: _added(model.graph, "Cast", [values[name]], f"{name}.float32", to=_FLOAT32) for name in names}
        outputs = [value for name, value in values.items() if name not in whole]
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
    name, axis, is_one = part.name, at.axis, part.kind in ("scores", "labels")
    ranges = {"starts": [at.start], "ends": [_TO_THE_END if at.stop is None else at.stop], "axes": [axis]}
    if is_one:
        taken = _added(graph, "Gather", [whole, _integers(graph, at.start, f"{name}.column")], name, axis=axis)
    elif (graph.opset_imports.get("") or 1) >= _RANGES_ARE_INPUTS:
        inputs = [_integers(graph, numbers, f"{name}.{key}") for key, numbers in ranges.items()]
        taken = _added(graph, "Slice", [whole, *inputs], name)
    else:
        taken = _added(graph, "Slice", [whole], name, **ranges)
    if at.factor is not None:
        column = _integers(graph, [at.factor], f"{name}.factor")
        factor = _added(graph, "Gather", [whole, column], f"{name}.factor", axis=axis)
        taken = _added(graph, "Mul", [taken, factor], name)
    if axis == 1 and not is_one:
        taken = _added(graph, "Transpose", [taken], name, perm=[0, 2, 1])
    taken.name = name
    if part.shape is not None:
        taken.shape = shape_of(part)
    return taken


def _added(graph: ir.Graph, op_type: str, inputs: list[ir.Value], name: str, **attributes: int | list[int]) -> ir.Value:
    """The float32 output of a node at the end of a graph."""
    node = ir.node(op_type, inputs, attributes, name=f"{name}/{op_type}")
    node.metadata_props[_ADDED] = ""
    node.outputs[0].name = f"{name}/{op_type}"
    node.outputs[0].type = ir.TensorType(_FLOAT32)
    graph.append(node)
    return node.outputs[0]


def _integers(graph: ir.Graph, values: int | list[int], name: str) -> ir.Value:
    """An int64 initializer."""
    tensor = ir.tensor(np.array(values, np.int64), name=name)
    graph.register_initializer(constant := ir.val(name, const_value=tensor))
    return constant
