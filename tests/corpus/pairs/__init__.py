"""Planted pairs: two ONNX files, samples, and the verdict that `compare` owes them.

Each module holds the pairs of one class of defect, good ones beside bad ones, as `pairs() -> Iterator[Pair]`.
`replayed` makes a model that outputs given arrays, so that any outputs can be planted.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Pair:
    """A reference and a candidate.

    Attributes:
        name: of the case, one word with hyphens; unique among all pairs.
        reference, candidate: the two models.
        inputs: samples by input name, [samples, ...].
        expected: "passed", "failed" or "not verified".
        spec: I/O spec, as `compare` takes it.
        options: further keywords of `compare`.
        codes: of the reasons, or of `not_verified` where it passes; each has to be there.
    """

    name: str
    reference: onnx.ModelProto
    candidate: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    expected: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    codes: tuple[str, ...] = ()


def every_pair() -> Iterator[Pair]:
    for info in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{info.name}").pairs()


def replayed(arrays: Mapping[str, np.ndarray], input_name: str = "x") -> onnx.ModelProto:
    """A model that outputs the row of each array whose number its input holds.

    Args:
        arrays: by output name, [samples, ...] of one number of samples.
        input_name: of the input, float32 [N, 1]: `numbers(samples)` replays the arrays as they are.
    """
    graph_inputs = [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, ["N", 1])]
    nodes = [
        helper.make_node("Cast", [input_name], ["as_integers"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["as_integers", "last_axis"], ["rows"]),
    ]
    weights = [numpy_helper.from_array(np.array([1], np.int64), "last_axis")]
    outputs = []
    for name, values in arrays.items():
        weights.append(numpy_helper.from_array(np.ascontiguousarray(values), f"{name}_rows"))
        nodes.append(helper.make_node("Gather", [f"{name}_rows", "rows"], [name], name=f"/{name}", axis=0))
        element = helper.np_dtype_to_tensor_dtype(values.dtype)
        outputs.append(helper.make_tensor_value_info(name, element, ["N", *values.shape[1:]]))
    graph = helper.make_graph(nodes, "replayed", graph_inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def numbers(samples: int) -> np.ndarray:
    """float32 [samples, 1]: 0, 1, 2, ..."""
    return np.arange(samples, dtype=np.float32)[:, None]
