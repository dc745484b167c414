"""The tensors that a model holds, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import all_graphs, all_nodes


def tensors_of(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Every tensor of a model: initializers and attributes, in subgraphs and functions, too."""
    for graph in all_graphs(model):
        yield from (value.const_value for value in graph.initializers.values() if value.const_value is not None)
    for node in all_nodes(model, functions=True):
        for attribute in node.attributes.values():
            yield from attribute_tensors(attribute)


def attribute_tensors(attribute: ir.Attr) -> list[ir.TensorProtocol]:
    if attribute.is_ref():
        return []
    if attribute.type == ir.AttributeType.TENSOR:
        return [attribute.as_tensor()]
    return list(attribute.as_tensors()) if attribute.type == ir.AttributeType.TENSORS else []


def hold_as_arrays(model: ir.Model) -> None:
    """Hold the raw data of tensors, but for lists of them, as arrays: a tensor of a proto copies its bytes whenever it
    is read, and keeps the whole proto in memory.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            if (tensor := value.const_value) is not None:
                value.const_value = _as_array(tensor)
    for node in all_nodes(model, functions=True):
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                tensor, text = _as_array(attribute.as_tensor()), attribute.doc_string
                node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=text)


def _as_array(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if not isinstance(tensor, ir.TensorProtoTensor) or not tensor.raw.HasField("raw_data"):
        return tensor
    array, props = tensor.numpy(), dict(tensor.metadata_props)
    return ir.Tensor(array, tensor.dtype, name=tensor.name, doc_string=tensor.doc_string, metadata_props=props)
