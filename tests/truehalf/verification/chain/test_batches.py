"""Batches on hand-made runs: what a file that mixes its samples, stumbles or finds nothing is said to do."""

from __future__ import annotations

from collections.abc import Callable
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
from truehalf.verification.chain.batches import measure_batches
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import StageResult, measure
from truehalf.verification.open_file import FP32_CPU, OpenFile

OPTIONS = validate(composed()).verify
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["N", 3, 64, 64]}],
        "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
        "class_names": ["ant", "bee"],
    }
)
COUNT = 5
FEEDS = [{"x": np.array([i], np.float32)} for i in range(COUNT)]
Rows = dict[str, np.ndarray]


def outputs_of(x: np.ndarray) -> Rows:
    """Sample i has a query of class i % 2 in a place of its own, and one that finds nothing."""
    logits, boxes = np.full((len(x), 2, 2), -9, np.float32), np.full((len(x), 2, 4), 0.25, np.float32)
    for row, i in enumerate(x.ravel().astype(int)):
        logits[row, 0, i % 2] = 4
        boxes[row, 0, 0] = 0.2 + 0.1 * i
    return {"logits": logits, "boxes": boxes}


class Double:
    """A session whose outputs on a batch are `run` of the samples' numbers."""

    provider = "double"

    def __init__(self, run: Callable[[np.ndarray], Rows]) -> None:
        self._run, self.sizes = run, list[int]()

    def run(self, feeds: Rows) -> Rows:
        self.sizes.append(len(feeds["x"]))
        return self._run(feeds["x"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return model(tmp_path / "m" / "model.onnx", "N")


def model(path: Path, batch: str) -> Path:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{batch}] x) => (float[{batch}] y) {{ y = Relu (x) }}'
    path.parent.mkdir(exist_ok=True)
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def held(path: Path, run: Callable[[np.ndarray], Rows], *sizes: int, before: Rows | None = None) -> dict[str, Any]:
    """A file that does `before` where it was compared, and `run` at these sizes."""
    outputs = outputs_of(np.arange(COUNT))
    samples = [Sample(f"s/{i}", feeds, None, None) for i, feeds in enumerate(FEEDS)]
    names = [sample.name for sample in samples]
    reference = Reference(samples, names, names, outputs, SPEC, decode(outputs, SPEC), None, None)
    stage: StageResult = measure(reference, before or outputs, OPTIONS)
    session: Any = Double(run)
    return measure_batches(OpenFile(ModelFile(path), FP32_CPU, session), reference, stage, sizes, OPTIONS)


def test_a_file_that_finds_the_same_is_verified(path: Path) -> None:
    facts = held(path, outputs_of, 1, 4)
    assert facts["state"] == "verified" and [row["batch"] for row in facts["sizes"]] == [1, 4]


def test_samples_that_get_mixed_fail_and_the_run_is_named(path: Path) -> None:
    facts = held(path, lambda x: outputs_of(np.full(len(x), x[0])), 1, 4)
    assert facts["state"] == "failed" and facts["reason"].startswith("batch 4:")
    one, four = facts["sizes"]
    assert one["state"] == "verified" and "samples" not in one
    assert four["samples"] == ["s/0", "s/1", "s/2", "s/3"]


def test_copies_of_one_sample_are_asked_as_well(path: Path) -> None:
    """A file that loses the second of two equal neighbours finds all samples that differ."""

    def run(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["logits"][1:][x[1:, 0] == x[:-1, 0]] = -9
        return outputs

    facts = held(path, run, 4)
    assert facts["state"] == "failed" and facts["sizes"][0]["samples"] == ["s/0"] * 4


def test_a_run_that_finds_all_with_other_scores_is_named(path: Path) -> None:
    """No detection is lost there, and none is new."""

    def run(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["logits"][(x.ravel() == 2) & (len(x) > 1)] -= 3
        return outputs

    facts = held(path, run, 1, 4)
    one, four = facts["sizes"]
    assert (one["state"], four["state"]) == ("verified", "failed")
    expect(four["reason"], "beyond-gate", "score_error_p99")
    assert (four["matched_fraction"], four["extra"]) == (1.0, 0) and "s/2" in four["samples"]


def test_a_run_that_ends_with_an_error_fails(path: Path) -> None:
    error = StageError("runtime-refuses", "Reshape")

    def run(x: np.ndarray) -> Rows:
        if len(x) > 1:
            raise error
        return outputs_of(x)

    facts = held(path, run, 1, 3)
    assert facts["state"] == "failed"
    expect(facts["reason"], "runtime-refuses", "batch 3:", error)
    assert facts["sizes"][1]["samples"] == ["s/0", "s/1", "s/2"]


def test_new_nan_fail_and_old_ones_leave_nothing_to_compare(path: Path) -> None:
    def run(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["boxes"][-1, 1, 0] = np.nan
        return outputs

    facts = held(path, run, 2)
    assert facts["state"] == "failed" and facts["sizes"][0]["nonfinite_before"] == 0 < facts["sizes"][0]["nonfinite"]
    expect(facts["reason"], None, f"{facts['sizes'][0]['nonfinite']} NaN", "Inf", 0)
    assert facts["sizes"][0]["samples"] == ["s/0", "s/1"]
    broken = {name: np.full_like(value, np.nan) for name, value in outputs_of(np.arange(COUNT)).items()}
    facts = held(path, lambda x: {name: value[: len(x)] for name, value in broken.items()}, 2, before=broken)
    assert facts["state"] == "not verified"
    expect(facts["reason"], "not-finite", "batch 2:")


def test_a_fixed_batch_is_asked_at_its_own_size_alone(tmp_path: Path) -> None:
    facts = held(model(tmp_path / "m" / "model.onnx", "2"), outputs_of, 1, 2)
    assert [row["state"] for row in facts["sizes"]] == ["not verified", "verified"]
    assert facts["state"] == "not verified"
    expect(facts["reason"], None, "batch 1:", 2)
    assert "verify.memory_gb" not in facts["reason"]


def test_a_file_that_finds_nothing_is_not_verified(path: Path) -> None:
    nothing = {"logits": np.full((COUNT, 2, 2), -9, np.float32), "boxes": np.full((COUNT, 2, 4), 0.25, np.float32)}
    facts = held(path, lambda x: {name: value[: len(x)] for name, value in nothing.items()}, 2, before=nothing)
    assert facts["state"] == "not verified"
    expect(facts["reason"], "nothing-compared", "batch 2:")
