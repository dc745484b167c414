"""How large tensors are at the shapes that a model will run with: symbolic dimensions bound, shapes inferred anew."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from truehalf.ir.normalize import light_proto, names_apart

_Shapes = dict[ir.Value, tuple[int, ...]]


def concrete_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[int]] | None = None) -> _Shapes:
    """Shape of every value whose rank is known, bodies included; dimensions that stay unknown count 1.

    Args:
        model: typed; it is left as it is.
        input_shapes: shapes of graph inputs by name, such as an optimization profile's `opt`; inputs that are not named
            keep theirs, with 1 for each symbolic dimension.
    """
    with names_apart(model):
        proto = light_proto(model)
        del proto.graph.value_info[:]  # shapes with symbols would win over the inferred ones
        for value in proto.graph.input:
            _bind(value.type.tensor_type, (input_shapes or {}).get(value.name))
        for value in proto.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
        with contextlib.suppress(onnx.shape_inference.InferenceError):  # then the symbolic shapes are all there is
            proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        inferred = ir.from_proto(proto)
        shapes: _Shapes = {}
        for graph, typed in zip(model.graphs(), inferred.graphs(), strict=True):
            known = ir.convenience.create_value_mapping(typed)
            for name, value in ir.convenience.create_value_mapping(graph).items():
                shape = known[name].shape if name in known else None
                shape = shape if shape is not None else value.shape
                if shape is not None:
                    shapes[value] = tuple(dim if isinstance(dim, int) else 1 for dim in shape)
    return shapes


def elements(shape: Sequence[int] | None) -> int:
    """Elements of a tensor; 1 where its rank is unknown."""
    return math.prod(shape) if shape is not None else 1


def _bind(tensor: onnx.TypeProto.Tensor, shape: Sequence[int] | None) -> None:
    for axis, dim in enumerate(tensor.shape.dim):
        if shape is not None and axis < len(shape):
            dim.dim_value = shape[axis]
        elif not dim.HasField("dim_value"):
            dim.dim_value = 1
