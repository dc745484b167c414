"""Constants as tensors, the form that onnxslim folds by its type: of value_float and value_int it makes other types."""

from __future__ import annotations

import numpy as np
import onnx

_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def constants_as_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Rewrite Constant nodes of a graph or function and its subgraphs, in place: one number has no axis, a list one.

    A Constant that is an argument of its function stays: its value is the call's.
    """
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                constants_as_tensors(subgraph)
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            continue
        for attribute in list(node.attribute):
            if (dtype := _DTYPES.get(attribute.name)) and not attribute.ref_attr_name:
                values = np.array(onnx.helper.get_attribute_value(attribute), dtype)
                node.attribute.remove(attribute)
                node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(values)))
