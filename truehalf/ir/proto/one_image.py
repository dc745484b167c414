"""One image as input, without an axis of images (torchvision's and Detectron2's exports): it gets one of length 1 while
it is worked on, as everything else has it, and loses it when a file is written.

    x [3, H, W] -> ...        runs as x [1, 3, H, W] -> Squeeze -> ...
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import cloned, fed_inputs, is_op
from truehalf.ir.normalize import Names

IMAGE = "truehalf.one_image"  # key of ir.Model.meta: the input's name
_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.UINT8)
_LEAST_SIDE = 16  # pixels; smaller ones are other matrices
_AXES_ARE_INPUTS = 13  # of Squeeze, from this opset on


def give_axis(model: ir.Model, known: str | None = None) -> bool:
    """Give the input of one image an axis of images, in place.

    It is one of three axes, of which the first is 3, where no output has 3 on its first axis, as those of three samples
    would.

    Args:
        known: its name, "" for none, where that was decided before the shapes of outputs were changed.

    Returns:
        whether there is such an input.
    """
    images = [value for value in fed_inputs(model) if (_is_image(value) if known is None else value.name == known)]
    of_samples = any(value.shape is None or tuple(value.shape)[:1] == (3,) for value in model.graph.outputs)
    if len(images) != 1 or (known is None and of_samples):
        return False
    (image,) = images
    graph, shape = model.graph, image.shape
    opset, names = graph.opset_imports.get("") or _AXES_ARE_INPUTS, Names(model)
    name = names.fresh(f"{image.name}/axes")
    axes = ir.val(name, const_value=ir.tensor(np.array([0]), name=name))
    if opset >= _AXES_ARE_INPUTS:
        graph.register_initializer(axes)
    by_opset = ([axes], {}) if opset >= _AXES_ARE_INPUTS else ([], {"axes": [0]})
    squeeze = ir.node("Squeeze", [image, *by_opset[0]], by_opset[1], name=f"{image.name}/Squeeze")
    (alone,) = squeeze.outputs
    alone.name, alone.type, alone.shape = names.fresh(f"{image.name}/alone"), image.type, shape
    image.replace_all_uses_with(alone, replace_graph_outputs=False)
    squeeze.replace_input_with(0, image)
    image.shape = ir.Shape([1, *(shape or ())])
    graph.insert_before(next(iter(graph)), squeeze)
    model.meta[IMAGE] = image.name
    return True


def take_axis(model: ir.Model) -> ir.Model:
    """A model as its file holds it: itself, or a copy whose image has lost its axis of images."""
    if model.meta.get(IMAGE) is None:
        return model
    made = cloned(model)
    name, graph = made.meta.pop(IMAGE), made.graph
    (image,) = (value for value in graph.inputs if value.name == name)
    shape = tuple(image.shape or ())[1:]
    stack = [image]
    while stack:  # the input, and its casts
        value = stack.pop()
        for node in value.consumers():
            if is_op(node, "Squeeze"):
                axes = node.inputs[1:]
                node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
                graph.remove(node, safe=True)
                for unread in (str(each.name) for each in axes if each is not None and not each.uses()):
                    graph.initializers.pop(unread, None)
            elif is_op(node, "Cast"):
                stack.append(node.outputs[0])
        value.shape = ir.Shape(shape)
    return made


def _is_image(value: ir.Value) -> bool:
    if value.dtype not in _DTYPES or value.shape is None or len(value.shape) != 3:
        return False
    channels, *sides = value.shape
    return channels == 3 and all(not isinstance(side, int) or side >= _LEAST_SIDE for side in sides)
