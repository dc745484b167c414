"""Samples at the front doors: batches that a file fixes, and labels that are read once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases.doors import parsed, saved, truehalf
from tests.configurations import composed
from truehalf.config.validate import validate
from truehalf.data import images as module
from truehalf.data.run_samples import run_sources

SIGNATURES = [
    "float[4,3,8,8] a, float[4,2] b",
    "float[4,3,8,8] a, float[n,2] b",
    "float[n,3,8,8] a, float[4,2] b",
]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_one_rule_says_which_batch_a_file_fixes(tmp_path: Path, signature: str) -> None:
    """calibrate, convert and verify read the same samples in the same batches."""
    rng = np.random.default_rng(0)
    feeds = {"a": rng.random((8, 3, 8, 8), dtype=np.float32), "b": rng.random((8, 2), dtype=np.float32)}
    nodes = "z = ReduceSum<keepdims=0>(a) w = ReduceSum<keepdims=0>(b) s = Mul(z, w) y = Tanh(s)"
    source = saved(tmp_path / "m.onnx", parsed(f"g ({signature}) => (float y) {{ {nodes} }}"))
    np.savez(tmp_path / "s.npz", **feeds)
    target = tmp_path / "out.onnx"
    codes = {
        "calibrate": truehalf("calibrate", source, "--samples", tmp_path / "s.npz", "-o", tmp_path / "r.json"),
        "convert": truehalf("convert", source, "--samples", tmp_path / "s.npz", "-o", target),
        "verify": truehalf("verify", source, target, "--samples", tmp_path / "s.npz"),
    }
    assert {door: printed for door, (code, printed) in codes.items() if code not in (0, 1, 3)} == {}


def test_labels_are_read_once_for_all_purposes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """COCO val2017's labels took 4.3 s a read, twice a stage."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    images, boxes = [], []
    for number in range(200):
        name = f"{number:012d}.jpg"
        Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(tmp_path / "images" / name)
        images.append({"id": number, "file_name": name, "width": 32, "height": 32})
        boxes.append({"id": number, "image_id": number, "category_id": 1, "bbox": [1.0, 1.0, 5.0, 5.0], "area": 25.0})
    labels = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "one"}]}
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    reads: list[object] = []
    read = module._read_coco

    def counting(path: Path) -> object:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(module, "_read_coco", counting)
    config = validate(composed("data=coco", "data.annotations=labels.json", "data.folder=images"))
    run_sources(config, tmp_path)
    assert len(reads) == 1
