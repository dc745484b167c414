"""Conversion of the embedded detectors' graphs, exported with random weights: what holds whatever the weights are."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import onnx
import pytest

from examples.digits.detector import DECODERS, build
from tests.measuring.converted import to_fp16
from tests.measuring.shipped import shipped
from truehalf.conversion.casts_of_file import clean_casts
from truehalf.models.calling import calling


def exported(decoder: str, folder: Path) -> Path:
    import onnxslim
    import torch

    values = shipped("model/ltdetr_nano")
    torch.manual_seed(0)
    network = build(**values["options"]["kwargs"] | {"decoder": decoder, "classes": values["classes"]})
    model = calling(network, ["logits", "pred_boxes"])
    path = folder / "fp32.onnx"
    with torch.no_grad():
        torch.onnx.export(
            model,
            (torch.rand(1, 3, 128, 128),),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["images"],
            output_names=["logits", "boxes"],
            dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}, "boxes": {0: "batch"}},
        )
    with contextlib.redirect_stdout(io.StringIO()):
        onnx.save(onnxslim.slim(str(path)), path)
    return path


@pytest.mark.slow  # the embedded one goes through the whole chain in `make test`
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.filterwarnings("ignore")
def test_a_detector_converts(decoder: str, tmp_path: Path) -> None:
    source = exported(decoder, tmp_path)
    report = to_fp16(source, tmp_path / "fp16.onnx", op_block_list=["Softmax"])
    assert report.fp16_arithmetic > 0.999
    cleaned = clean_casts(tmp_path / "fp16.onnx", tmp_path / "clean.onnx")
    softmaxes = sum(node.op_type == "Softmax" for node in onnx.load(source).graph.node)
    assert report.verdicts["op_block_list"] == softmaxes
    # placing may keep a scale or a mask beside a Softmax in FP32, too
    assert report.fp32_nodes_total - report.verdicts.get("placement", 0) == softmaxes
    assert report.fp16_fraction > 0.97
    # nothing to clean up in our own graph: at most two casts for each pinned node, one for each input and output
    assert cleaned.casts_after == cleaned.casts_before <= 2 * softmaxes + 3
    before, after = onnx.load(source), onnx.load(tmp_path / "clean.onnx")
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)

    import onnxruntime as ort

    images = np.random.default_rng(0).random((2, 3, 128, 128), dtype=np.float32)
    for model in (source, tmp_path / "clean.onnx"):
        logits, boxes = ort.InferenceSession(str(model)).run(None, {"images": images})
        assert logits.shape == (2, 60, 10)
        assert boxes.dtype == np.float32
        assert np.isfinite(logits).all()
        assert np.isfinite(boxes).all()
