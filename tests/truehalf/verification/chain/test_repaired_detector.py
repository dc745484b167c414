"""Faults planted in a trained detector, which no rule knows: `convert` alone delivers a file that passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.embedded import embedded, scenes
from truehalf import compare, convert

PLACES = {"encoder/aifi.0/layers.0/self_attn_layer_norm": 8000, "decoder/layers.1/final_layer_norm": 2000}


def with_offset(path: Path, place: str, offset: float) -> onnx.ModelProto:
    """The model with an offset added and taken away before a LayerNormalization: FP16 rounds in large steps between."""
    model = onnx.load(path)
    (norm,) = [node for node in model.graph.node if place in node.name and node.op_type == "LayerNormalization"]
    position = list(model.graph.node).index(norm)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(offset), "offset"))
    nodes = [
        helper.make_node("Add", [norm.input[0], "offset"], ["raised"], name="planted/add"),
        helper.make_node("Sub", ["raised", "offset"], ["lowered"], name="planted/sub"),
    ]
    norm.input[0] = "lowered"
    for node in reversed(nodes):
        model.graph.node.insert(position, node)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("place", "offset"), PLACES.items())
def test_a_detector_with_a_fault_is_delivered_with_pins_with_which_it_passes(
    place: str, offset: float, tmp_path: Path
) -> None:
    proto = with_offset(embedded(tmp_path / "fp32.onnx"), place, offset)
    pictures = scenes(24)["images"]
    samples, unseen = ([{"images": each[None]} for each in part] for part in (pictures[:8], pictures[8:]))
    spoiled = convert(proto, samples=samples, skip=["slim", "check"])
    assert compare(proto, spoiled.model, unseen, locate=False).verdict == "failed"
    found = convert(proto, samples=samples, skip=["slim"])
    assert found.report.check.state == "verified" and {*found.report.check.pinned} == {"planted/add", "planted/sub"}
    assert compare(proto, found.model, unseen, locate=False).verdict == "passed"
    assert found.report.fp16.fp16_arithmetic > 0.99
