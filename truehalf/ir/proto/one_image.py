"""One image as input, without an axis of images (torchvision's and Detectron2's exports): it gets one of length 1 while
it is worked on, as everything else has it, and loses it when a file is written.

    x [3, H, W] -> ...        runs as x [1, 3, H, W] -> Squeeze -> ...
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import cloned, fed_inputs, insert_after, is_op, reached
from truehalf.ir.normalize import Names

IMAGE = "truehalf.one_image"  # key of ir.Model.meta: the input's name
_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.UINT8)
_LEAST_SIDE = 16  # pixels; smaller ones are other matrices


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
    names, shape = Names(model), image.shape
    squeeze = ir.node("Squeeze", [image], name=f"{image.name}/Squeeze")
    (alone,) = squeeze.outputs
    alone.name, alone.type, alone.shape = names.fresh(f"{image.name}/alone"), image.type, shape
    image.replace_all_uses_with(alone, replace_graph_outputs=False)
    squeeze.replace_input_with(0, image)
    image.shape = ir.Shape([1, *(shape or ())])
    insert_after(image, squeeze)
    model.meta[IMAGE] = image.name
    return True


def take_axis(model: ir.Model) -> ir.Model:
    """A model as its file holds it: itself, or a copy whose image has lost its axis of images."""
    if model.meta.get(IMAGE) is None:
        return model
    made = cloned(model)
    name = made.meta.pop(IMAGE)
    (image,) = (value for value in made.graph.inputs if value.name == name)
    cast_or_image = reached([image], lambda value: [n.outputs[0] for n in value.consumers() if is_op(n, "Cast")])
    for value in list(cast_or_image):
        for node in value.consumers():
            if is_op(node, "Squeeze"):
                node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
                made.graph.remove(node, safe=True)
        value.shape = ir.Shape(tuple(value.shape or ())[1:])
    return made


def _is_image(value: ir.Value) -> bool:
    if value.dtype not in _DTYPES or value.shape is None or len(value.shape) != 3:
        return False
    channels, *sides = value.shape
    return channels == 3 and all(not isinstance(side, int) or side >= _LEAST_SIDE for side in sides)
