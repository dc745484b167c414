"""A small detector (means of the colours -> 4 queries, 3 classes), files of it, and what verifies these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import torch

from tests.measuring.shipped import shipped
from truehalf.config.verification import Evaluation, GatesConfig, VerifyConfig
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain import chain
from truehalf.verification.chain.reference import Reference, freeze
from truehalf.verification.chain.stage import Judge

SIZE, QUERIES, CLASSES = 32, 4, 3
OPTIONS = VerifyConfig(
    score_threshold=0.5,
    iou_threshold=0.9,
    batch=5,
    memory_gb=2.5,
    evaluation=Evaluation.emulated_fp16,
    gates=GatesConfig(**shipped("verify/detection")["gates"]),
    pictures=1,
    require=[],
)
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "images", "shape": ["batch", 3, SIZE, SIZE]}],
        "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
        "class_names": ["ant", "bee", "cat"],
        "trained": True,
    }
)
RNG = np.random.default_rng(0)
TO_LOGITS = RNG.normal(0, 1, (3, QUERIES * CLASSES)).astype(np.float32)
LOGITS = np.full((QUERIES, CLASSES), -6, np.float32)
LOGITS[[0, 1, 2], [0, 2, 1]] = 4  # three clear detections a picture, the fourth query finds nothing
TO_BOXES = RNG.normal(0, 0.2, (3, QUERIES * 4)).astype(np.float32)
BOXES = np.array([[-1, -1, -1, -1], [1, -1, -1, -1], [-1, 1, -1, -1], [1, 1, -1, -1]], np.float32)


class Detector(torch.nn.Module):
    def __init__(self, logits: np.ndarray = LOGITS) -> None:
        super().__init__()
        self.values = [torch.from_numpy(v) for v in (TO_LOGITS, logits, TO_BOXES, BOXES)]

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        means, (to_logits, logits, to_boxes, boxes) = images.mean((2, 3)), self.values
        found = (means @ to_logits).view(-1, QUERIES, CLASSES) + logits
        return found, ((means @ to_boxes).view(-1, QUERIES, 4) + boxes).sigmoid()


FP32 = """
<ir_version: 10, opset_import: ["" : 17]>
detector (float[batch,3,32,32] images) => (float[batch,4,3] logits, float[batch,4,4] boxes) {
    means = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    logits_flat = MatMul (means, to_logits)
    logits_moved = Reshape (logits_flat, logits_shape)
    logits = Add (logits_moved, logits_bias)
    boxes_flat = MatMul (means, to_boxes)
    boxes_moved = Reshape (boxes_flat, boxes_shape)
    boxes_raw = Add (boxes_moved, boxes_bias)
    boxes = Sigmoid (boxes_raw)
}
"""
# The same with its matrix products in FP16; `up` and `down` cancel, in FP32.
FP16 = """
<ir_version: 10, opset_import: ["" : 17]>
detector (float[batch,3,32,32] images) => (float[batch,4,3] logits, float[batch,4,4] boxes) {
    means = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    half_means = Cast <to = 10> (means)
    logits_flat = MatMul (half_means, to_logits)
    logits_moved = Reshape (logits_flat, logits_shape)
    logits_added = Add (logits_moved, logits_bias)
    [amplify] logits_up = Mul (logits_added, up)
    [reduce] logits_half = Mul (logits_up, down)
    logits = Cast <to = 1> (logits_half)
    boxes_flat = MatMul (half_means, to_boxes)
    boxes_moved = Reshape (boxes_flat, boxes_shape)
    boxes_raw = Add (boxes_moved, boxes_bias)
    boxes_half = Sigmoid (boxes_raw)
    boxes = Cast <to = 1> (boxes_half)
}
"""


def write(
    path: Path,
    text: str,
    gain: float = 1.0,
    queries: Sequence[int] = range(QUERIES),
    classes: Sequence[int] = range(CLASSES),
    extra: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """A file of the detector; `queries` and `classes` reorder what it puts out; `extra`: further constants."""
    dtype = np.float16 if "half" in text else np.float32
    to_logits = TO_LOGITS.reshape(3, QUERIES, CLASSES)[:, queries][:, :, classes]
    weights = {
        "to_logits": to_logits.reshape(3, -1).astype(dtype),
        "logits_bias": LOGITS[queries][:, classes].astype(dtype),
        "to_boxes": TO_BOXES.reshape(3, QUERIES, 4)[:, queries].reshape(3, -1).astype(dtype),
        "boxes_bias": BOXES[queries].astype(dtype),
        "logits_shape": np.array([-1, QUERIES, CLASSES]),
        "boxes_shape": np.array([-1, QUERIES, 4]),
    }
    if "up" in text:
        weights |= {"up": np.array(gain, dtype), "down": np.array(1 / gain, dtype)}
    weights |= extra or {}
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def unlabelled(count: int = 12) -> list[Sample]:
    images = np.random.default_rng(1).uniform(0, 1, (count, 3, SIZE, SIZE)).astype(np.float32)
    return [Sample(f"made/{i}", {"images": image}, None, None) for i, image in enumerate(images)]


def labelled(count: int = 12) -> list[Sample]:
    """Samples whose true boxes are what the FP32 model finds."""
    samples = unlabelled(count)
    found = freeze(Detector(), samples, SPEC, 5).detections
    kept = [detections.scores >= 0.5 for detections in found]
    return [Sample(s.name, s.arrays, f.boxes_px[k], f.labels[k]) for s, f, k in zip(samples, found, kept, strict=True)]


def saturated(module: torch.nn.Module | None = None, spec: IoSpec = SPEC) -> Reference:
    """The reference on adversarial samples: white and black."""
    images = {"white": np.ones((3, SIZE, SIZE), np.float32), "black": np.zeros((3, SIZE, SIZE), np.float32)}
    samples = [Sample(f"adversarial/{name}", {"images": image}, None, None) for name, image in images.items()]
    return freeze(module or Detector(), samples, spec, OPTIONS.batch)


def verified(
    folder: Path,
    final: Path,
    samples: list[Sample] | None = None,
    spec: IoSpec = SPEC,
    module: torch.nn.Module | None = None,
    fp32: Path | None = None,
    options: VerifyConfig = OPTIONS,
    adversarial: Reference | str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The report of a chain that ends in the file `final`."""
    fp32 = fp32 or write(folder / "slim" / "model.onnx", FP32)
    files = {"trace": fp32, "slim": fp32, "fp16": final, "cast_cleanup": final}
    reference = freeze(module or Detector(), samples or labelled(), spec, OPTIONS.batch)
    (folder / "out").mkdir(parents=True, exist_ok=True)
    judge = Judge(reference, adversarial or saturated(module, spec), options)
    made = chain.Making(**more | {"batch_sizes": (1, 8)})
    return chain.verify(judge, files, folder / "out", made).to_json()


def state(report: Mapping[str, Any], check: str) -> dict[str, Any]:
    """What a report says of a check."""
    return next(item for item in report["checks"] if item["check"] == check)


def worst(folder: Path, gate: str) -> list[dict[str, Any]]:
    """The worst outputs that a gate names which the last file failed."""
    found = json.loads((folder / "out" / "verdict.json").read_text())["findings"]
    return next(finding["worst"] for finding in found if finding.get("gate") == gate)
