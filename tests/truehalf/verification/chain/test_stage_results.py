"""What is measured of a file's outputs, on hand-made ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.configurations import composed
from truehalf.config.validate import validate
from truehalf.data.samples import Sample
from truehalf.io_spec.decode import decode
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import measure


def test_which_queries_are_confident_follows_the_declared_activation() -> None:
    """Two logits of 1: sigmoid says 0.73 of each, softmax 0.5, and 0.42 beside a class that means none."""
    spec: dict[str, Any] = {
        "inputs": [{"name": "images", "shape": ["N", 3, 8, 8]}],
        "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
        "class_names": ["ant", "bee"],
        "trained": True,
    }
    logits = np.array([[[1.0, 1.0, 0.0], [9.0, 0.0, 0.0]]], np.float32)
    boxes = np.full((1, 2, 4), 0.5, np.float32)
    other = {"logits": logits + np.array([[[0.125], [0.0]]], np.float32), "boxes": boxes}

    def confident_error(**meaning: Any) -> float:
        declared = IoSpec.from_json(spec | {"outputs": [spec["outputs"][0] | meaning, spec["outputs"][1]]})
        outputs = {"logits": logits, "boxes": boxes}
        sample = Sample("one", {"images": np.zeros((3, 8, 8), np.float32)}, None, None)
        found = decode(outputs, declared)
        reference = Reference([sample], ["one"], [""], outputs, declared, found, None, None)
        return measure(reference, other, validate(composed()).verify).facts["max_abs_error"]["logits"]

    assert confident_error() == confident_error(activation="sigmoid") == 0.125
    assert confident_error(activation="softmax", no_object=True) == 0.0
