"""The frozen reference: finite, its samples told apart; it comes back as it was, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.messages import raises
from tests.truehalf.verification import small_detector
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain import reference
from truehalf.verification.chain.reference import freeze, read_reference, write_reference

SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["N", 3, 32, 32]}],
        "outputs": [
            {"name": "logits", "kind": "logits", "activation": "sigmoid"},
            {"name": "boxes", "kind": "boxes", "format": "cxcywh", "normalized": True},
        ],
        "class_names": ["ant", "bee"],
    }
)
SAMPLES = [
    Sample(f"s/{i}", {"x": np.full((1,), i, np.float32)}, np.array([[0, 0, 4, 4]], np.float32), np.array([i % 2]))
    for i in range(3)
]


class Network(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:, None].repeat(1, 2, 2) + 1, torch.full((len(x), 2, 4), 0.25)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_reference(tmp_path, freeze(Network(), SAMPLES, SPEC, 2), "FP32 is not finite there", 2)
    return tmp_path


def test_it_comes_back_as_it_was(folder: Path) -> None:
    frozen, read = freeze(Network(), SAMPLES, SPEC, 2), read_reference(folder, "reference", SAMPLES, SPEC)
    assert not isinstance(read, str) and (read.names, read.sha256) == (frozen.names, frozen.sha256)
    assert list(read.outputs) == list(frozen.outputs)
    for name, value in frozen.outputs.items():
        np.testing.assert_array_equal(read.outputs[name], value)
    np.testing.assert_array_equal(read.detections[2].boxes_px, frozen.detections[2].boxes_px)
    assert read.truth and frozen.truth
    for got, wanted in zip(read.truth, frozen.truth, strict=True):
        for name in ("boxes_px", "labels", "scores"):
            np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name), strict=True)


def test_its_average_precision_is_kept_and_that_of_the_first_samples_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = freeze(Network(), SAMPLES, SPEC, 2).detections[1]  # the others have boxes that are not found
    samples = [SAMPLES[0], replace(SAMPLES[1], boxes=right.boxes_px, labels=right.labels), *SAMPLES[2:]]
    frozen = freeze(Network(), samples, SPEC, 2)
    write_reference(tmp_path, frozen, "none", 2)
    read = read_reference(tmp_path, "reference", samples, SPEC)
    first, all_of_it = frozen.subset([0]).precision(), frozen.precision()
    assert first["ap50"] == 0 and all_of_it["ap50"]
    assert not isinstance(read, str) and read.subset([0]).precision() == first
    monkeypatch.setattr(reference, "precision", None)
    assert read.precision() == all_of_it, "nothing is measured again"


def test_samples_are_made_when_they_are_asked_for(folder: Path) -> None:
    class Once(list[Sample]):
        def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
            made.append(index)
            return super().__getitem__(index)

        def __iter__(self):  # type: ignore[no-untyped-def]
            raise AssertionError("all were made")

    made: list[int] = []
    read = read_reference(folder, "reference", Once(SAMPLES), SPEC)
    assert not isinstance(read, str) and made == [] and len(read.subset(range(2)).samples) == 2 and made == []
    some = read.samples[1:3][1:]
    assert len(some) == 1 and made == [] and some[0].name == SAMPLES[2].name and made == [2]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_true_boxes_come_back_as_they_were(count: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(count)
    boxes = draw.uniform(0, 640, (count, 4)).astype(np.float32)
    labels, crowds = draw.integers(0, 400, count), draw.random(count) < 0.3
    samples = [replace(sample, boxes=boxes, labels=labels, crowds=crowds) for sample in SAMPLES]
    frozen = freeze(Network(), samples, SPEC, 2)
    write_reference(tmp_path, frozen, "none", 2)
    read = read_reference(tmp_path, "reference", samples, SPEC)
    assert not isinstance(read, str) and read.truth and frozen.truth
    for name in ("boxes_px", "labels", "scores"):
        wanted = getattr(frozen.truth[2], name)
        np.testing.assert_array_equal(getattr(read.truth[2], name), wanted, strict=True)


def test_where_there_is_none_it_says_why(folder: Path) -> None:
    assert read_reference(folder, "adversarial", SAMPLES, SPEC) == "FP32 is not finite there"


def test_other_samples_are_refused(folder: Path) -> None:
    index = folder / "samples.json"
    with raises("wrong-file", index, 3, "s/0", 2, "dvc repro reference"):
        read_reference(folder, "reference", SAMPLES[:2], SPEC)
    changed = [SAMPLES[0], SAMPLES[2], replace(SAMPLES[2], arrays={"x": np.zeros((1,), np.float32)})]
    read = read_reference(folder, "reference", changed, SPEC)
    assert not isinstance(read, str) and read.samples[0] is SAMPLES[0] and list(read.samples[:1]) == SAMPLES[:1]
    for position, name in ((1, "s/1"), (2, "s/2")):
        with raises("wrong-file", index, name, "dvc repro reference"):
            read.samples[position]
    index.unlink()
    with raises("file-missing", index):
        read_reference(folder, "reference", SAMPLES, SPEC)


def test_one_of_which_nothing_is_finite_is_an_error_at_once() -> None:
    broken = small_detector.Detector(np.full_like(small_detector.LOGITS, np.nan))
    with raises("not-finite", "FP32", "'logits'", "NaN", "Inf", "made/0"):
        freeze(broken, small_detector.unlabelled(), small_detector.SPEC, 5)


def test_a_module_that_fails_is_named_with_the_samples() -> None:
    class Even(Network):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x.reshape(2, -1)[:, 0, None])

    with raises("module-fails", "FP32", 1, "s/2", "RuntimeError", "[2, -1]", "verify.batch"):
        freeze(Even(), SAMPLES, SPEC, 2)


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 2), (4, 2), (0,)])
def test_an_output_without_a_row_for_each_sample(shape: tuple[int, ...]) -> None:
    class Beside(Network):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x)[0], torch.ones(shape)

    with raises("wrong-shape", "'boxes'", list(shape), 2):
        freeze(Beside(), SAMPLES, SPEC, 2)
