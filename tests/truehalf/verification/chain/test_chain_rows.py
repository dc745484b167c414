"""A chain whose files put out boxes and scores in one tensor: judged, located and pinned as detections, and so is an
engine; the files keep their output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper

from tests.configurations import composed
from tests.truehalf.verification.small_detector import (
    FP16,
    FP32,
    SIZE,
    SPEC,
    Detector,
    unlabelled,
    verified,
    write,
)
from truehalf.config.validate import validate
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.pinning.reconversion import Reconversion

AMPLIFIED = FP32.replace(
    "logits = Add (logits_moved, logits_bias)",
    "logits_added = Add (logits_moved, logits_bias)\n    [amplify] logits_up = Mul (logits_added, up)\n"
    "    [reduce] logits = Mul (logits_up, down)",
)
ROWS = {"name": "found", "kind": "rows", "format": "cxcywh", "normalized": False, "columns": ["boxes", "scores"]}
IN_ONE = IoSpec.from_json(SPEC.to_json() | {"outputs": [ROWS | {"axis": 1}]})


class InOne(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor]:
        logits, boxes = Detector()(images)
        return (torch.cat([boxes * SIZE, logits.softmax(2)], 2).mT,)


def in_one(path: Path) -> Path:
    """A file of the small detector with one output [batch, 4 + classes, queries]."""
    model = onnx.load(path)
    nodes = [
        ("Softmax", ["logits"], "scores", {"axis": 2}),
        ("Mul", ["boxes", "size"], "pixels", {}),
        ("Concat", ["pixels", "scores"], "rows", {"axis": 2}),
        ("Transpose", ["rows"], "found", {"perm": [0, 2, 1]}),
    ]
    model.graph.node.extend(helper.make_node(op, ins, [out], name=out, **more) for op, ins, out, more in nodes)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(SIZE, np.float32), "size"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("found", onnx.TensorProto.FLOAT, ["batch", 7, 4]))
    onnx.save(model, path)
    return path


def checked(folder: Path, final: Path, **more: Any) -> dict[str, Any]:
    given = {"fp32": in_one(write(folder / "fp32.onnx", FP32)), "samples": unlabelled()} | more
    return verified(folder, final, spec=IN_ONE, module=InOne(), **given)


def test_a_good_file_is_passed_as_a_detector(tmp_path: Path) -> None:
    final = in_one(write(tmp_path / "final.onnx", FP16))
    report = checked(tmp_path, final)
    assert report["verdict"] == "passed" and report["detections"]["matched"] == 36
    assert {*report["outputs"]} == {"found"}
    graph = onnx.load(final).graph
    shown = json.loads((tmp_path / "out" / "graph.json").read_text())
    assert [value.name for value in graph.output] == [value["name"] for value in shown["outputs"]] == ["found"]


def test_a_file_that_overflows_is_located(tmp_path: Path) -> None:
    precision = validate(composed("experiment=overflow_naive")).precision
    conversion = Reconversion(precision, None, None)
    fp32 = in_one(write(tmp_path / "slim" / "model.onnx", AMPLIFIED, gain=2.0**15))
    final = tmp_path / "final" / "model.onnx"
    final.parent.mkdir()
    conversion.convert(fp32, final, [])
    report = checked(tmp_path, final, fp32=fp32)
    assert report["verdict"] == "failed" and report["first_bad_node"] == "amplify"
    assert "^amplify$" in report["place"]["selectors"]
