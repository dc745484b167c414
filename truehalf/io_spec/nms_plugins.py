"""Outputs that enter a plugin for non-maximum suppression, as its attributes declare them:

    EfficientNMS_TRT         boxes, scores    box_coding, score_activation, background_class
    BatchedNMS_TRT,          boxes, scores    corners, scores as they are, backgroundLabelId
    BatchedNMSDynamic_TRT
    TRTBatchedNMS            the same, background_label_id (mmdeploy)

Boxes are [N, n, 4] or [N, n, 1, 4]; boxes of each class, and offsets from anchors, are any tensors.
"""

from __future__ import annotations

import re

import onnx_ir as ir

from truehalf.io_spec.boxes import box_layout
from truehalf.io_spec.outputs import Outputs
from truehalf.io_spec.spec import FIRST, OutputSpec
from truehalf.ir.proto.plugins import named, plugins_of

_FORMATS = ("xyxy", "cxcywh")  # by box_coding
_BACKGROUND = ("background_class", "backgroundLabelId", "background_label_id")
_NMS = re.compile("EfficientNMS_TRT|BatchedNMS(Dynamic)?_TRT|TRTBatchedNMS")


def outputs_of_plugins(model: ir.Model, outputs: Outputs) -> dict[str, tuple[OutputSpec, str]]:
    """Read boxes and scores from the first such plugin, by name, with the reason; empty where there is none.

    Args:
        outputs: of the model by name, from a run.
    """
    for plugin in plugins_of(model):
        names = [str(value.name) for value in plugin.inputs if value is not None]
        if not _NMS.fullmatch(plugin.op_type) or len(names) != 2 or not outputs.keys() >= {*names}:
            continue
        boxes, scores = (outputs[name] for name in names)
        if scores.ndim != 3 or boxes.shape not in {(*scores.shape[:2], 4), (*scores.shape[:2], 1, 4)}:
            continue
        activation = "sigmoid" if _integer(plugin, "score_activation", 0) else "identity"
        background = next((_integer(plugin, key, -1) for key in _BACKGROUND if key in plugin.attributes), -1)
        none: dict[int, bool | str] = {0: FIRST, scores.shape[2] - 1: True}  # a sigmoid's scores have no such class
        no_object = none.get(background) if activation == "identity" else None
        box_format = _FORMATS[_integer(plugin, "box_coding", 0) == 1]
        shape = ("images", "boxes", 1, 4) if boxes.ndim == 4 else None
        found = (
            OutputSpec(names[0], "boxes", shape=shape, format=box_format, normalized=box_layout(boxes)[1]),
            OutputSpec(names[1], "logits", activation=activation, no_object=no_object),
        )
        return {each.name: (each, f"enters {named(plugin)}, whose attributes say so") for each in found}
    return {}


def _integer(plugin: ir.Node, key: str, default: int) -> int:
    """An attribute that is an integer, or a list of one, as some exporters write it."""
    attribute = plugin.attributes.get(key)
    value = None if attribute is None else attribute.value
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    return value if isinstance(value, int) else default
