"""A hand-made reference of five samples, to hold engines against."""

from __future__ import annotations

import numpy as np

from tests.configurations import composed
from truehalf.config.validate import validate
from truehalf.data.samples import Sample
from truehalf.io_spec.decode import Detections, decode
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage import Judge

OPTIONS = validate(composed()).verify
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["N", 3, 64, 64]}],
        "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
        "class_names": ["ant", "bee"],
    }
)
COUNT = 5
Rows = dict[str, np.ndarray]


def outputs_of(x: np.ndarray) -> Rows:
    """Sample i has a query of class i % 2 in a place of its own, and one that finds nothing."""
    logits, boxes = np.full((len(x), 2, 2), -9, np.float32), np.full((len(x), 2, 4), 0.25, np.float32)
    for row, i in enumerate(x[:, 0].round().astype(int)):
        logits[row, 0, i % 2] = 4
        boxes[row, 0, 0] = 0.2 + 0.1 * i
    return {"logits": logits, "boxes": boxes}


def evidence(adversarial: bool = True, labels: bool = True) -> Judge:
    """The reference on five samples of input x [1], and on two adversarial ones."""
    reference = _frozen("s", range(COUNT), labels)
    return Judge(reference, _frozen("adversarial", range(2), labels) if adversarial else "FP32 fails there", OPTIONS)


def _frozen(name: str, numbers: range, labels: bool) -> Reference:
    samples = [Sample(f"{name}/{i}", {"x": np.array([i], np.float32)}, None, None) for i in numbers]
    names = [sample.name for sample in samples]
    outputs = outputs_of(np.array([[i] for i in numbers], np.float32))
    found = decode(outputs, SPEC)
    truth = [Detections(f.boxes_px[f.scores > 0.5], f.labels[f.scores > 0.5], f.scores[f.scores > 0.5]) for f in found]
    return Reference(samples, names, names, outputs, SPEC, found, truth if labels else None)
