"""Preprocessing that a processor of `transformers` declares, held against what it makes of a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.messages import expect
from tests.truehalf.models.refusing import in_order
from tests.truehalf.models.sources.hf_families import (
    PROCESSOR,
    write_processor,
)
from tests.truehalf.models.sources.hf_opened import opened, refused
from truehalf.data.preprocessing import Preprocessing, declared_by


def preprocessed(folder: Path, *overrides: str) -> np.ndarray:
    """[3, height, width] of a picture of one size with the model."""
    (declared,) = opened(folder, *overrides).inputs
    preprocessing = declared_by(declared)
    assert preprocessing is not None
    return preprocessing.apply(picture())


def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"do_normalize": False},
        {"do_rescale": False},
        {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 1.0, 1.0], "image_std": [1.0, 1.0, 1.0]},
        {"do_pad": True, "pad_size": {"height": 64, "width": 64}},
        {"do_flip_channel_order": True, "do_normalize": False},
        {"rescale_factor": None, "do_rescale": None},
    ],
)
def test_pixels_are_what_the_processor_makes_of_them(changes: dict[str, Any], yolos: Path) -> None:
    write_processor(yolos, **changes)
    said = {key: value for key, value in (PROCESSOR | changes).items() if value is not None}
    expected = np.asarray(picture(), np.float64)
    if said.get("do_rescale", True):
        expected = expected * said.get("rescale_factor", 1 / 255)
    if said["do_normalize"]:
        expected = (expected - said["image_mean"]) / said["image_std"]
    if said.get("do_flip_channel_order"):
        expected = expected[..., ::-1]
    largest = np.abs(expected).max()
    np.testing.assert_allclose(preprocessed(yolos), expected.transpose(2, 0, 1), atol=1e-6 * largest, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}}, ["shortest_edge 800, longest_edge 1333"]),
        ({"size": {"max_height": 64, "max_width": 64}}, ["max_height 64, max_width 64"]),
        ({"size": 224}, [224]),
        ({"size": None}, []),
        ({"do_resize": False}, ["do_resize: false"]),
        (
            {"do_center_crop": True, "crop_size": {"height": 48, "width": 48}},
            ["height 64, width 64", "height 48, width 48"],
        ),
        (
            {"do_pad": True, "pad_size": {"height": 96, "width": 96}},
            ["height 64, width 64", "height 96, width 96"],
        ),
    ],
)
def test_a_processor_without_a_size_of_ours_asks_for_one(
    changes: dict[str, Any], facts: list[object], yolos: Path
) -> None:
    write_processor(yolos, **changes)
    said = refused(yolos, code="needs-value")
    in_order(said, "model.preprocessing", yolos / "preprocessor_config.json", "size", *facts)
    expect(said, None, "model.image_size=[height, width]")
    (declared,) = opened(yolos, "model.image_size=[64,96]", "model.preprocessing.resize=letterbox").inputs
    assert (declared.size, declared.resize) == ((64, 96), "letterbox")


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"do_normalize": None}, ["do_normalize", "true", "false", "None"]),
        ({"image_mean": None}, ["image_mean", "None"]),
        ({"image_std": [0.5, 0.0, 0.5]}, ["image_std", 0, "[0.5, 0.0, 0.5]"]),
        ({"rescale_offset": True}, ["rescale_offset", 1]),
        ({"rescale_factor": 0}, ["rescale_factor", 0, 0]),
    ],
)
def test_pixels_that_ours_cannot_be_are_refused_until_they_are_given(
    changes: dict[str, Any], facts: list[object], yolos: Path
) -> None:
    write_processor(yolos, **changes)
    keys = ("model.preprocessing.range", "model.preprocessing.mean", "model.preprocessing.std")
    said = refused(yolos, code="needs-value")
    in_order(said, "model.preprocessing", yolos / "preprocessor_config.json", *facts, *keys)
    given = ("range=[0,255]", "mean=[1,2,3]", "std=[4,5,6]")
    got = preprocessed(yolos, *(f"model.preprocessing.{each}" for each in given))
    expected = (np.asarray(picture(), np.float32) - [1, 2, 3]) / [4, 5, 6]
    np.testing.assert_allclose(got, expected.transpose(2, 0, 1), atol=1e-4)


@pytest.mark.parametrize(
    ("written", "resample"), [(0, "nearest"), (1, "lanczos"), (2, "bilinear"), (3, "bicubic"), ("BICUBIC", "bicubic")]
)
def test_pictures_are_resampled_as_the_processor_says(written: int | str, resample: str, yolos: Path) -> None:
    write_processor(yolos, resample=written)
    (declared,) = opened(yolos).inputs
    assert declared.resample == resample
    (declared,) = opened(yolos, "model.preprocessing.resample=box").inputs
    assert declared.resample == "box"


@pytest.mark.parametrize("written", [6, "cubic", True])
def test_an_unknown_filter_is_refused_until_one_is_given(written: Any, yolos: Path) -> None:
    write_processor(yolos, resample=written)
    said = refused(yolos, code="needs-value")
    in_order(said, yolos / "preprocessor_config.json", "resample", 0, 5, "bicubic", repr(written))
    expect(said, None, "model.preprocessing.resample")
    (declared,) = opened(yolos, "model.preprocessing.resample=nearest").inputs
    assert declared.resample == "nearest"


def test_without_a_processor_everything_is_given(yolos: Path) -> None:
    (yolos / "preprocessor_config.json").unlink()
    said = refused(yolos, code="needs-value")
    in_order(said, yolos / "preprocessor_config.json", "size", "model.image_size", "model.preprocessing.range")
    given = [f"model.preprocessing.{each}" for each in ("range=[0,1]", "mean=[0,0,0]", "std=[1,1,1]")]
    (declared,) = opened(yolos, "model.image_size=[64,64]", *given).inputs
    assert declared_by(declared) == Preprocessing(size=[64, 64])
