"""trace, calibrate and verify never share a sample."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conf.schema import Config
from conf.validate import validate
from stages.data.samples import (
    TRACE_SAMPLES,
    adversarial_samples,
    batches,
    calibration_samples,
    readable,
    stacked,
    trace_samples,
    verification_samples,
)
from stages.io import StageError
from tests.conftest import PICTURES, composed


def digits_config() -> Config:
    return validate(composed("data.calibration_samples=5", "data.verification_samples=7"))


def folder_config(folder: Path) -> Config:
    for number in range(TRACE_SAMPLES + 12):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(folder / f"{number}.png")
    counts = ["data.calibration_samples=5", "data.verification_samples=7"]
    return validate(composed("data=images", f"data.folder={folder}", *counts))


@pytest.mark.parametrize("source", ["digits", "images"])
def test_the_three_are_disjoint_and_counted(source: str, tmp_path: Path) -> None:
    config = digits_config() if source == "digits" else folder_config(tmp_path)
    groups = [trace_samples(config, TRACE_SAMPLES, tmp_path, PICTURES)]
    groups += [calibration_samples(config, tmp_path, PICTURES), verification_samples(config, tmp_path, PICTURES)]
    assert [len(group) for group in groups] == [TRACE_SAMPLES, 5, 7]
    names = [sample.name for group in groups for sample in group]
    assert len(set(names)) == len(names)


def test_samples_are_what_the_model_reads() -> None:
    sample = verification_samples(digits_config(), Path("unused"), PICTURES)[2]
    image = sample.feeds["images"]
    assert image.shape == (3, 128, 128) and image.dtype == np.float32 and image.max() <= 1
    assert sample.boxes is not None and sample.labels is not None


def test_batches_cover_everything_once() -> None:
    samples = verification_samples(digits_config(), Path("unused"), PICTURES)
    groups = list(batches(samples, 3))
    assert [len(group) for group in groups] == [3, 3, 1]
    assert stacked(groups[0])["images"].shape == (3, 3, 128, 128)
    assert [s.name for group in groups for s in group] == [s.name for s in samples]


def test_adversarial_samples_stand_at_the_rim_of_the_range() -> None:
    made = {sample.name: sample.feeds["images"] for sample in adversarial_samples(digits_config(), PICTURES)}
    assert list(made) == ["adversarial/white", "adversarial/black", "adversarial/noise"]
    assert all(image.shape == (3, 128, 128) and image.dtype == np.float32 for image in made.values())
    assert made["adversarial/white"].min() == 1 and made["adversarial/black"].max() == 0
    noise = made["adversarial/noise"]
    assert set(np.unique(noise)) == {0, 1} and 0.45 < noise.mean() < 0.55
    again = {sample.name: sample.feeds["images"] for sample in adversarial_samples(digits_config(), PICTURES)}
    assert np.array_equal(noise, again["adversarial/noise"])


def test_a_corrupt_picture_is_named_and_the_rest_kept(tmp_path: Path) -> None:
    samples = verification_samples(folder_config(tmp_path), tmp_path, PICTURES)
    broken = samples.paths[2]
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(StageError, match=broken.name):
        list(samples)
    kept, left_out = readable(samples)
    assert [sample.name for sample in kept] == [path.name for path in samples.paths if path != broken]
    assert len(left_out) == 1 and str(broken) in left_out[0] and "cannot be read as a picture" in left_out[0]


def test_whole_samples_are_left_alone(tmp_path: Path) -> None:
    for samples in (
        verification_samples(digits_config(), tmp_path, PICTURES),
        verification_samples(folder_config(tmp_path), tmp_path, PICTURES),
    ):
        kept, left_out = readable(samples)
        assert len(kept) == 7 and left_out == []


def test_nothing_but_corrupt_pictures_is_an_error(tmp_path: Path) -> None:
    samples = verification_samples(folder_config(tmp_path), tmp_path, PICTURES)
    for path in samples.paths:
        path.write_bytes(b"no picture")
    with pytest.raises(StageError, match="none of the 7 pictures can be read"):
        readable(samples)
