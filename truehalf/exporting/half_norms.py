"""Norms of a graph that torch traced in FP16, as ONNX and onnxslim can take them.

fold     BatchNormalization(Conv(x: float16, W, b), s, t, m, v) -> Conv(x, W', b'),  g = s / sqrt(v + epsilon)
         W' = W g,  b' = (b - m) g + t: computed in float32 and rounded once; onnxslim computes it in float16, and
         gets the types wrong where s, t, m, v are float32, as autocast leaves them
widen    Norm(x: float16, s: float32) -> Cast(Norm(Cast(x, float32), s), float16): what torch computes, which leaves
         norms of float16 with float32 parameters as they are under autocast; ONNX wants one type of LayerNormalization
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import cast_node
from truehalf.ir.ops import Trait, has
from truehalf.ir.passes import Done, Pass

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT


class SettleNorms(Pass):
    """Folds and widens norms. Types of values are known."""

    def edit(self, model: ir.Model, done: Done) -> None:
        norms = [node for node in model.graph.all_nodes() if has(node, Trait.NORMALIZES) and len(node.inputs) > 1]
        folded = [node for node in norms if _fold(node)]
        widened = [node for node in norms if node not in folded and _widen(node)]
        done.counts.update(folded=len(folded), widened=len(widened))


def _fold(norm: ir.Node) -> bool:
    """Where the Conv is read by nothing else, writes float16, and all that is computed with is constant."""
    conv = norm.inputs[0].producer() if norm.op_type == "BatchNormalization" and norm.inputs[0] is not None else None
    if conv is None or conv.op_type != "Conv" or conv.graph is not norm.graph or norm.graph is None:
        return False
    written, out = conv.outputs[0], norm.outputs[0]
    if written.dtype != _HALF or len(written.uses()) != 1 or written.is_graph_output() or len(conv.inputs) < 2:
        return False
    numbers = [_constant(value) for value in norm.inputs[1:5]]
    weight = _constant(conv.inputs[1])
    given = conv.inputs[2] if len(conv.inputs) > 2 else None
    bias = np.float32(0) if given is None else _constant(given)
    if weight is None or bias is None or any(number is None for number in numbers):
        return False
    scale, shift, mean, variance = (np.asarray(number) for number in numbers)
    gain = scale / np.sqrt(variance + np.float32(norm.attributes.get_float("epsilon", 1e-5)))
    made = [_made(norm, "weight", weight * gain.reshape(-1, *[1] * (weight.ndim - 1)))]
    made.append(_made(norm, "bias", (bias - mean) * gain + shift))
    norm.graph.insert_before(conv, made)
    conv.resize_inputs(3)
    for index, constant in enumerate(made, 1):
        conv.replace_input_with(index, constant.outputs[0])
    name, shape = out.name, out.shape
    ir.convenience.replace_all_uses_with(out, written, replace_graph_outputs=True)
    norm.graph.remove(norm, safe=True)
    written.name, written.shape = name, shape if written.shape is None else written.shape
    return True


def _made(norm: ir.Node, what: str, array: np.ndarray) -> ir.Node:
    rounded = ir.tensor(array.astype(np.float16))
    node = ir.node("Constant", [], {"value": rounded}, name=f"{norm.name}/folded_{what}")
    node.outputs[0].name = f"{norm.outputs[0].name}_{what}"
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(_HALF), ir.Shape(array.shape)
    return node


def _constant(value: ir.Value | None) -> np.ndarray | None:
    """A constant in float32, and one that is cast, as float32 of what the cast makes of it."""
    if value is None:
        return None
    cast = value.producer()
    if cast is not None and cast.op_type == "Cast" and value.dtype in (_HALF, _SINGLE):
        inner = _constant(cast.inputs[0])
        return None if inner is None else inner.astype(value.dtype.numpy()).astype(np.float32)
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy().astype(np.float32)


def _widen(norm: ir.Node) -> bool:
    x, scale, out = norm.inputs[0], norm.inputs[1], norm.outputs[0]
    if x is None or scale is None or norm.graph is None or x.dtype != _HALF or scale.dtype != _SINGLE:
        return False
    before = cast_node(x, _SINGLE, f"{norm.name}/Cast_in", f"{norm.name}/Cast_in_output_0")
    after = cast_node(out, _HALF, f"{norm.name}/Cast_out", f"{norm.name}/Cast_out_output_0")
    norm.replace_input_with(0, before.outputs[0])
    name = out.name
    out.replace_all_uses_with(after.outputs[0], replace_graph_outputs=True)
    after.replace_input_with(0, out)
    out.name, after.outputs[0].name = f"{name}_float32", name
    out.type = ir.TensorType(_SINGLE)
    norm.graph.insert_before(norm, before)
    norm.graph.insert_after(norm, after)
    return True
