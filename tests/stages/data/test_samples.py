"""trace, calibrate and verify never share a sample."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conf.schema import Config
from conf.validate import validate
from stages.data.samples import (
    TRACE_SAMPLES,
    batches,
    calibration_samples,
    stacked,
    trace_samples,
    verification_samples,
)
from tests.conftest import composed


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
    groups = [trace_samples(config, TRACE_SAMPLES, tmp_path)]
    groups += [calibration_samples(config, tmp_path), verification_samples(config, tmp_path)]
    assert [len(group) for group in groups] == [TRACE_SAMPLES, 5, 7]
    names = [sample.name for group in groups for sample in group]
    assert len(set(names)) == len(names)


def test_samples_are_what_the_model_reads() -> None:
    sample = verification_samples(digits_config(), Path("unused"))[2]
    image = sample.feeds["images"]
    assert image.shape == (3, 128, 128) and image.dtype == np.float32 and image.max() <= 1
    assert sample.boxes is not None and sample.labels is not None


def test_batches_cover_everything_once() -> None:
    samples = verification_samples(digits_config(), Path("unused"))
    groups = list(batches(samples, 3))
    assert [len(group) for group in groups] == [3, 3, 1]
    assert stacked(groups[0])["images"].shape == (3, 3, 128, 128)
    assert [s.name for group in groups for s in group] == [s.name for s in samples]
