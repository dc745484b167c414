"""A file whose outputs are taken apart as its I/O spec declares (truehalf.io_spec.columns), in memory: what runs,
judges and locates then sees an output for each kind of column, whatever the file has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from truehalf.io_spec.columns import apart, in_one
from truehalf.io_spec.in_file import SPEC_KEY, shape_of, spec_inside, spec_text
from truehalf.io_spec.spec import IoSpec, OutputSpec, Place
from truehalf.ir.model_forms import ModelFile

_FLOAT32 = ir.DataType.FLOAT
_TO_THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Apart(ModelFile):
    """A file of the same path and digest.

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
        parts = [(each, each.place) for each in self.spec.outputs if each.place and each.place.output in values]
        names = dict.fromkeys(place.output for _, place in parts)
        whole = {name: _added(model.graph, "Cast", [values[name]], f"{name}.float32", to=_FLOAT32) for name in names}
        outputs = [value for name, value in values.items() if name not in whole]
        outputs += [_part(model.graph, whole[place.output], each, place) for each, place in parts]
        model.graph.outputs.clear()
        model.graph.outputs.extend(outputs)
        if SPEC_KEY in model.metadata_props:
            model.metadata_props[SPEC_KEY] = spec_text(apart(spec_inside(model)))
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
    return _Apart(file.path, file, spec) if in_one(spec) and not isinstance(file, _Apart) else file


def _part(graph: ir.Graph, whole: ir.Value, part: OutputSpec, place: Place) -> ir.Value:
    """What `truehalf.io_spec.columns.in_parts` takes."""
    name, axis, is_one = part.name, place.axis, part.kind in ("scores", "labels")
    numbers = {"starts": [place.start], "ends": [_TO_THE_END if place.stop is None else place.stop], "axes": [axis]}
    if is_one:
        taken = _added(graph, "Gather", [whole, _integers(graph, place.start, f"{name}.column")], name, axis=axis)
    elif (graph.opset_imports.get("") or 1) >= 10:
        inputs = [_integers(graph, each, f"{name}.{key}") for key, each in numbers.items()]
        taken = _added(graph, "Slice", [whole, *inputs], name)
    else:
        taken = _added(graph, "Slice", [whole], name, **numbers)
    if place.factor is not None:
        column = _integers(graph, [place.factor], f"{name}.factor")
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
    node.outputs[0].name = f"{name}/{op_type}"
    node.outputs[0].type = ir.TensorType(_FLOAT32)
    graph.append(node)
    return node.outputs[0]


def _integers(graph: ir.Graph, values: int | list[int], name: str) -> ir.Value:
    """An int64 initializer."""
    tensor = ir.tensor(np.array(values, np.int64), name=name)
    graph.register_initializer(constant := ir.val(name, const_value=tensor))
    return constant
