"""What enters a plugin for non-maximum suppression is compared as the detections that its values show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.corpus.pairs import replayed
from tests.corpus.pairs.detections import Scene, as_queries, lowered, noisy, scene
from tests.truehalf.io_spec.test_proposal import images, in_layout, with_pictures
from truehalf.codes import codes_in
from truehalf.verification.chain.compare import compare
from truehalf.verification.propose import propose_spec
from truehalf.verification.report import Report

SIGMOID, PLAIN = {"score_activation": 1}, {"score_activation": 0}
CORNERS, CENTRES = {"box_coding": 0}, {"box_coding": 1}


def end_to_end(path: Path, s: Scene, op_type: str, axes: int, **attributes: Any) -> Path:
    """A detector that ends in a plugin."""
    activation = "sigmoid" if attributes.get("score_activation") else "identity"
    box_format = "cxcywh" if attributes.get("box_coding") else "xyxy"
    found = in_layout(as_queries(s, activation), box_format, normalized=False)
    boxes = found["boxes"] if axes == 3 else found["boxes"][:, :, None]
    model = replayed({"b": np.ascontiguousarray(boxes), "s": found["logits"]})
    node = helper.make_node(op_type, ["b", "s"], ["num", "found"], "nms", domain="TRT", **attributes)
    model.graph.node.append(node)
    model.graph.value_info.extend(model.graph.output)
    del model.graph.output[:]
    ends = [("num", TensorProto.INT32, ["N", 1]), ("found", TensorProto.FLOAT, ["N", 100, 4])]
    model.graph.output.extend(helper.make_tensor_value_info(*end) for end in ends)
    model.opset_import.append(helper.make_opsetid("TRT", 1))
    return with_pictures(model, path)


def compared(folder: Path, change: Any, *plugin: Any, **attributes: Any) -> Report:
    other = change(scene(3), np.random.default_rng(0))
    files = [
        end_to_end(folder / f"{name}.onnx", each, *plugin, **attributes)
        for name, each in (("fp32", scene(3)), ("other", other))
    ]
    return compare(*files, images(), locate=False)


PLUGINS = [
    ("EfficientNMS_TRT", 3, CORNERS | PLAIN | {"background_class": -1}, "xyxy", "identity"),
    ("EfficientNMS_TRT", 3, CENTRES | SIGMOID, "cxcywh", "sigmoid"),
    ("EfficientNMS_TRT", 4, CENTRES | PLAIN, "cxcywh", "identity"),
    ("EfficientNMS_TRT", 4, {}, "xyxy", "identity"),
    ("EfficientNMS_TRT", 3, {"box_coding": [1]}, "cxcywh", "identity"),
    ("BatchedNMSDynamic_TRT", 4, {"backgroundLabelId": -1, "shareLocation": 1}, "xyxy", "identity"),
    ("TRTBatchedNMS", 4, {"background_label_id": -1}, "xyxy", "identity"),
]


@pytest.mark.parametrize(("op_type", "axes", "attributes", "box_format", "activation"), PLUGINS)
def test_detections_are_as_the_plugin_takes_them(
    op_type: str, axes: int, attributes: dict[str, Any], box_format: str, activation: str, tmp_path: Path
) -> None:
    report = compared(tmp_path, noisy, op_type, axes, **attributes)
    assert (report.verdict, report.task) == ("not verified", "detections")
    assert report.proposed is not None and codes_in(" ".join(report.reasons)) == ["plugin-not-run"]
    kinds = {each["kind"]: each for each in report.proposed["outputs"]}
    assert (kinds["boxes"]["name"], kinds["boxes"]["format"], kinds["boxes"]["normalized"]) == ("b", box_format, False)
    assert (kinds["logits"]["name"], kinds["logits"]["activation"]) == ("s", activation)
    found = propose_spec(tmp_path / "fp32.onnx", images())
    assert not found.doubts and {*found.reasons} >= {"b", "s"}
    again = compare(tmp_path / "fp32.onnx", tmp_path / "other.onnx", images(), spec=found.spec.to_json(), locate=False)
    assert (again.verdict, again.task, again.detections) == ("not verified", "detections", report.detections)
    assert compared(tmp_path, lowered, op_type, axes, **attributes).verdict == "failed"


def shifted(s: Scene, _: np.random.Generator) -> Scene:
    return Scene(s.scores, s.labels, s.boxes + np.float32(12))


def test_boxes_that_are_off_fail(tmp_path: Path) -> None:
    assert compared(tmp_path, shifted, "EfficientNMS_TRT", 3, **CENTRES).verdict == "failed"


def test_boxes_of_four_axes_are_taken_apart_in_any_file(tmp_path: Path) -> None:
    """As YOLOv4 has them."""
    found = in_layout(as_queries(scene(3), "identity"), "xyxy", normalized=True)
    arrays = {"boxes": np.ascontiguousarray(found["boxes"][:, :, None]), "confs": found["logits"]}
    file = with_pictures(replayed(arrays), tmp_path / "m.onnx")
    report = compare(file, file, images(), locate=False)
    assert (report.verdict, report.task) == ("passed", "detections")
    assert [*report.outputs] == ["boxes", "confs"]
