"""Adversarial pictures on hand-made runs: finite, and the same detections, or why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.configurations import composed
from tests.messages import expect
from truehalf.config.validate import validate
from truehalf.data.samples import Sample
from truehalf.errors import StageError
from truehalf.io_spec.decode import decode
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.adversarial import measure_adversarial
from truehalf.verification.chain.reference import Reference
from truehalf.verification.open_file import FP32_CPU, OpenFile

OPTIONS = validate(composed()).verify
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["N", 3, 64, 64]}],
        "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
        "class_names": ["ant", "bee"],
    }
)
NAMES = ["adversarial/white", "adversarial/black"]


def outputs(*found: bool) -> dict[str, np.ndarray]:
    """Two queries a picture; the first is a detection where it says so."""
    logits = np.full((len(found), 2, 2), -9, np.float32)
    logits[list(found), 0, 1] = 4
    return {"logits": logits, "boxes": np.full((len(found), 2, 4), 0.25, np.float32)}


def held(folder: Path, before: dict[str, np.ndarray], now: Any, unusable: str | None = None) -> dict[str, Any]:
    """A file that puts out `now`, against FP32 that puts out `before`."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
    (folder / "m").mkdir()
    onnx.save(onnx.parser.parse_model(text), folder / "m" / "model.onnx")
    samples = [Sample(name, {"x": np.zeros(1, np.float32)}, None, None) for name in NAMES]
    found = decode(before, SPEC)
    reference = Reference(samples, NAMES, NAMES, before, SPEC, found, None, unusable)

    class Double:
        provider = "double"

        def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            if isinstance(now, StageError):
                raise now
            return dict(now)

    session: Any = Double()
    return measure_adversarial(OpenFile(ModelFile(folder / "m" / "model.onnx"), FP32_CPU, session), reference, OPTIONS)


def test_the_same_is_verified_also_where_there_is_nothing(tmp_path: Path) -> None:
    facts = held(tmp_path, outputs(True, False), outputs(True, False))
    assert facts["state"] == "verified" and facts["samples"] == 2 and facts["max_abs_error"]["logits"] == 0


@pytest.mark.parametrize(
    ("before", "now", "numbers"),
    [
        ((True, False), (False, False), ["0 of 1", 0]),
        ((True, False), (True, True), ["1 of 1", 1]),
        ((False, False), (False, True), [1]),
    ],
)
def test_lost_and_new_detections_fail(tmp_path: Path, before: Any, now: Any, numbers: list[object]) -> None:
    facts = held(tmp_path, outputs(*before), outputs(*now))
    assert facts["state"] == "failed"
    assert (facts["reference"], facts["extra"]) == (sum(before), int(sum(now) > sum(before)))
    expect(facts["reason"], None, *numbers)


def test_values_that_are_not_finite_fail_and_name_their_pictures(tmp_path: Path) -> None:
    now = outputs(True, False)
    now["boxes"][1, 1, :3] = np.inf
    facts = held(tmp_path, outputs(True, False), now)
    assert facts["state"] == "failed"
    expect(facts["reason"], None, 3, "NaN", "Inf", "adversarial/black")
    assert "white" not in facts["reason"]


def test_random_weights_verify_that_it_is_finite_and_no_more(tmp_path: Path) -> None:
    facts = held(tmp_path, outputs(True, False), outputs(False, False), unusable="random weights")
    assert (facts["state"], facts["nonfinite"]) == ("not verified", 0)
    expect(facts["reason"], None, "random weights")


def test_a_file_that_does_not_run_fails(tmp_path: Path) -> None:
    error = StageError("runtime-refuses", "no kernel")
    facts = held(tmp_path, outputs(True, False), error)
    assert list(facts) == ["state", "reason"] and facts["state"] == "failed"
    expect(facts["reason"], "runtime-refuses", error)


def test_without_a_reference_nothing_is_verified() -> None:
    session: Any = object()
    facts = measure_adversarial(
        OpenFile(ModelFile(Path("none.onnx")), FP32_CPU, session), "FP32 is not finite there", OPTIONS
    )
    assert facts == {"state": "not verified", "reason": "FP32 is not finite there"}
