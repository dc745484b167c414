"""Adversarial images and other batches on hand-made runs: the same is found, or why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from tests.truehalf.verification.held import COUNT, OPTIONS, SPEC, Rows, evidence, outputs_of
from truehalf.errors import StageError
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.stage import FileResult, Judge
from truehalf.verification.open_file import FP32_CPU, OpenFile

Run = Callable[[np.ndarray], Rows]


class Double:
    """A session whose outputs on a batch are `run` of the samples' numbers."""

    provider = "double"
    cpu_nodes = None

    def __init__(self, run: Run) -> None:
        self._run, self.not_split = run, dict[str, str]()

    def run(self, feeds: Rows) -> Rows:
        return self._run(feeds["x"])


def held(folder: Path, run: Run, *sizes: int, judge: Judge | None = None, batch: str = "N", at: int = 5) -> FileResult:
    """A file that does `run`, compared at the batch `at`, and at these sizes."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{batch}] x) => (float[{batch}] y) {{ y = Relu (x) }}'
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    session: Any = Double(run)
    options = replace(OPTIONS, batch=at)
    file = OpenFile(ModelFile(folder / "model.onnx"), FP32_CPU, session)
    return replace(judge or evidence(), options=options).of_open_file(file, sizes or (1,))


def on_images(change: Run) -> Run:
    """What a file does that is right but on the two adversarial samples."""
    return lambda x: change(x) if len(x) == 2 else outputs_of(x)


# --- adversarial images -----------------------------------------------------------------------------------------------


def test_a_file_that_finds_the_same_is_verified(tmp_path: Path) -> None:
    result = held(tmp_path, outputs_of, 1, 4)
    assert result.adversarial["state"] == "verified" and result.adversarial["samples"] == 2
    assert result.batches["state"] == "verified" and [row["batch"] for row in result.batches["sizes"]] == [1, 4]
    assert {each.check for each in result.findings(()) if each.state == "failed"} == set()


def test_nothing_is_the_same_as_nothing(tmp_path: Path) -> None:
    def nothing(x: np.ndarray) -> Rows:
        return outputs_of(x) | {"logits": np.full((len(x), 2, 2), -9, np.float32)}

    whole = evidence()
    assert not isinstance(whole.images, str)
    judge = replace(whole, images=replace(whole.images, outputs=nothing(np.zeros((2, 1)))))
    assert held(tmp_path, on_images(nothing), judge=judge).adversarial["state"] == "verified"
    invented = held(tmp_path, outputs_of, judge=judge).adversarial
    assert (invented["state"], invented["reference"], invented["extra"]) == ("failed", 0, 2)


def test_lost_detections_on_an_image_fail(tmp_path: Path) -> None:
    def lost(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["logits"][0] = -9
        return outputs

    found = held(tmp_path, on_images(lost)).adversarial
    assert (found["state"], found["reference"]) == ("failed", 2)
    expect(found["reason"], "beyond-gate", "1 of 2")


def test_values_that_are_not_finite_fail_and_name_their_images(tmp_path: Path) -> None:
    def wide(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["boxes"][1, 1, :3] = np.inf
        return outputs

    found = held(tmp_path, on_images(wide)).adversarial
    assert found["state"] == "failed"
    expect(found["reason"], None, 3, "NaN", "Inf", "adversarial/1")
    assert "adversarial/0" not in found["reason"]


def test_random_weights_verify_that_it_is_finite_and_no_more(tmp_path: Path) -> None:
    judge, untrained = evidence(), replace(SPEC, trained=False)
    assert not isinstance(judge.images, str)
    judge = Judge(replace(judge.reference, spec=untrained), replace(judge.images, spec=untrained), OPTIONS)
    result = held(tmp_path, outputs_of, judge=judge)
    assert (result.adversarial["state"], result.adversarial["nonfinite"]) == ("not verified", 0)
    expect(result.adversarial["reason"], "weights-random", "random")


def test_a_file_that_does_not_run_there_fails(tmp_path: Path) -> None:
    def refuse(x: np.ndarray) -> Rows:
        raise StageError("runtime-refuses", "no kernel")

    found = held(tmp_path, on_images(refuse)).adversarial
    assert list(found) == ["state", "reason"] and found["state"] == "failed"
    expect(found["reason"], "runtime-refuses", "no kernel")


def test_without_a_reference_there_nothing_is_verified(tmp_path: Path) -> None:
    found = held(tmp_path, outputs_of, judge=evidence(adversarial=False)).adversarial
    assert found == {"state": "not verified", "reason": "FP32 fails there"}


# --- batches ----------------------------------------------------------------------------------------------------------


def at_other_batches(change: Run) -> Run:
    """What a file does that is right where it is compared, and on the two adversarial samples."""
    return lambda x: outputs_of(x) if len(x) in (COUNT, 2) else change(x)


def test_samples_that_get_mixed_fail_and_the_run_is_named(tmp_path: Path) -> None:
    found = held(tmp_path, at_other_batches(lambda x: outputs_of(np.repeat(x[:1], len(x), axis=0))), 1, 4).batches
    assert found["state"] == "failed" and found["reason"].startswith("batch 4:")
    one, four = found["sizes"]
    assert one["state"] == "verified" and "samples" not in one
    assert four["samples"] == ["s/0", "s/1", "s/2", "s/3"]


def test_copies_of_one_sample_are_asked_as_well(tmp_path: Path) -> None:
    """A file that loses the second of two equal neighbours finds all samples that differ."""

    def run(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["logits"][1:][x[1:, 0] == x[:-1, 0]] = -9
        return outputs

    found = held(tmp_path, at_other_batches(run), 4).batches
    assert found["state"] == "failed" and found["sizes"][0]["samples"] == ["s/0"] * 4


def test_a_run_that_finds_all_with_other_scores_is_named(tmp_path: Path) -> None:
    """No detection is lost there, and none is new."""

    def run(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["logits"][(x.ravel() == 2) & (len(x) > 1)] -= 3
        return outputs

    one, four = held(tmp_path, at_other_batches(run), 1, 4).batches["sizes"]
    assert (one["state"], four["state"]) == ("verified", "failed")
    expect(four["reason"], "beyond-gate", "score_error_p99")
    assert (four["matched_fraction"], four["extra"]) == (1.0, 0) and "s/2" in four["samples"]


def test_a_run_that_ends_with_an_error_fails(tmp_path: Path) -> None:
    def run(x: np.ndarray) -> Rows:
        if len(x) > 1:
            raise StageError("runtime-refuses", "Reshape")
        return outputs_of(x)

    found = held(tmp_path, at_other_batches(run), 1, 3).batches
    assert found["state"] == "failed" and found["sizes"][1]["samples"] == ["s/0", "s/1", "s/2"]
    expect(found["reason"], "runtime-refuses", "batch 3:", "Reshape")


def test_new_nan_fail_and_old_ones_leave_nothing_to_compare(tmp_path: Path) -> None:
    def new(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["boxes"][-1, 1, 0] = np.nan
        return outputs

    found = held(tmp_path, at_other_batches(new), 3).batches
    assert found["state"] == "failed" and found["sizes"][0]["nonfinite"] == 2, "of different samples, and of copies"
    expect(found["reason"], "not-finite", "batch 3:")
    broken = held(tmp_path, lambda x: {name: np.full_like(y, np.nan) for name, y in outputs_of(x).items()}, 3).batches
    assert broken["state"] == "not verified"
    expect(broken["reason"], "nothing-compared", "batch 3:")


def test_a_fixed_batch_is_asked_at_its_own_size_alone(tmp_path: Path) -> None:
    found = held(tmp_path, outputs_of, 1, 2, batch="2").batches
    assert [row["state"] for row in found["sizes"]] == ["not verified", "verified"]
    expect(found["reason"], None, "batch 1:", 2)
    assert found["state"] == "not verified" and "verify.memory_gb" not in found["reason"]


@pytest.mark.parametrize("name", ["logits", "boxes"])
def test_an_output_of_another_shape_is_not_compared_at_other_batches(name: str, tmp_path: Path) -> None:
    result = held(tmp_path, lambda x: outputs_of(x) | {name: outputs_of(x)[name][:, :1]}, 4)
    assert result.batches["state"] == "not verified" and result.facts["reason"]
    expect(result.batches["reason"], "not-comparable")
