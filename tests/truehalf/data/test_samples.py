"""trace, calibrate and verify never share a sample."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.configurations import composed
from tests.conftest import PICTURES, SPEC
from tests.messages import raises
from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.data.fitting import adversarial_samples
from truehalf.data.run_samples import PURPOSES, TRACE_SAMPLES, run_samples
from truehalf.data.samples import batches, stacked
from truehalf.io_spec.spec import InputSpec, IoSpec


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
    groups = [run_samples(purpose, config, tmp_path, SPEC) for purpose in PURPOSES]
    assert [len(group) for group in groups] == [TRACE_SAMPLES, 5, 7]
    names = [sample.name for group in groups for sample in group]
    assert len(set(names)) == len(names)


def test_how_many_all_three_need_is_said_where_there_are_too_few(tmp_path: Path) -> None:
    config = folder_config(tmp_path)
    for number in range(TRACE_SAMPLES + 1):
        (tmp_path / f"{number}.png").unlink()
    counts = [11, 28, "16 trace", "5 calibration", "7 verification"]
    for purpose in ("calibration", "verification"):
        with raises("too-few-samples", tmp_path, *counts, "data.calibration_samples", "data.verification_samples"):
            run_samples(purpose, config, tmp_path, SPEC)


@pytest.mark.parametrize("held", [12, 13, 20, 27])
def test_trace_takes_those_of_calibrate_where_there_are_none_of_its_own(held: int, tmp_path: Path) -> None:
    config = folder_config(tmp_path)
    for number in range(TRACE_SAMPLES + 12 - held):
        (tmp_path / f"{number}.png").unlink()
    trace = run_samples("trace", config, tmp_path, SPEC).names
    calibration, verification = (
        run_samples(purpose, config, tmp_path, SPEC).names for purpose in ("calibration", "verification")
    )
    assert trace == calibration and len(calibration) == 5
    assert len(verification) == 7 and not set(verification) & set(calibration)


@pytest.mark.parametrize(
    ("held", "calibration", "verification"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 2),
        (5, 2, 3),
        (40, 13, 27),
        (95, 32, 63),
        (96, 32, 64),
        (111, 32, 64),
        (112, 32, 64),
    ],
)
def test_any_number_of_samples_is_shared_out(held: int, calibration: int, verification: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=np.random.default_rng(0).random((held, 1), np.float32))
    config = validate(composed("data=npz", "data.file=x.npz"))
    spec = IoSpec((InputSpec("images", "tensor", "float32", ("n", 1)),))
    groups = [
        set(samples.names)
        for samples in (
            run_samples("trace", config, tmp_path, spec),
            run_samples("calibration", config, tmp_path, spec),
            run_samples("verification", config, tmp_path, spec),
        )
    ]
    assert [len(group) for group in groups[1:]] == [calibration, verification]
    assert groups[0] and (held == 1 or not (groups[0] | groups[1]) & groups[2])
    assert held >= 112 or groups[0] <= groups[1]
    one = validate(composed("data=npz", "data.file=x.npz", "data.verification_samples=1"))
    assert len(run_samples("verification", one, tmp_path, spec)) == 1
    assert len(run_samples("calibration", one, tmp_path, spec)) == max(1, min(32, held - 1))


def test_samples_of_two_shapes_are_named(tmp_path: Path) -> None:
    (tmp_path / "arrays").mkdir()
    for length in (3, 4):
        np.savez(tmp_path / f"arrays/{length}.npz", x=np.zeros((1, length), np.float32))
    spec = IoSpec((InputSpec("x", "tensor", "float32", ("n", "t")),))
    config = validate(composed("data=npz", "data.file=arrays"))
    two = [
        run_samples("calibration", config, tmp_path, spec)[0],
        run_samples("verification", config, tmp_path, spec)[0],
    ]
    with raises("wrong-shape", "'x'", "[3]", "[4]"):
        stacked(two)


def test_batches_cover_everything_once() -> None:
    samples = run_samples("verification", digits_config(), Path("unused"), SPEC)
    groups = list(batches(samples, 3))
    assert [len(group) for group in groups] == [3, 3, 1]
    assert stacked(groups[0])["images"].shape == (3, 3, 128, 128)
    assert [s.name for group in groups for s in group] == [s.name for s in samples]


def test_adversarial_samples_stand_at_the_rim_of_the_range() -> None:
    made = {sample.name: sample.arrays["images"] for sample in adversarial_samples(digits_config(), SPEC)}
    assert list(made) == ["adversarial/white", "adversarial/black", "adversarial/noise"]
    assert all(image.shape == (3, 128, 128) and image.dtype == np.float32 for image in made.values())
    assert made["adversarial/white"].min() == 1 and made["adversarial/black"].max() == 0
    noise = made["adversarial/noise"]
    assert set(np.unique(noise)) == {0, 1} and 0.45 < noise.mean() < 0.55
    again = {sample.name: sample.arrays["images"] for sample in adversarial_samples(digits_config(), SPEC)}
    assert np.array_equal(noise, again["adversarial/noise"])


def spec_of(**keys: object) -> dict[str, Any]:
    return IoSpec.from_json(SPEC.to_json() | {"inputs": [PICTURES[0] | keys]})


def test_adversarial_samples_go_through_the_models_own_preprocessing() -> None:
    """White is white in every range, order and layout, and the rim is that of the normalised input."""
    statistics = {"mean": [10, 20, 30], "std": [1, 2, 4], "where": "before the graph"}
    outside = spec_of(
        channels="BGR", range=[0, 255], layout="NHWC", normalization=statistics, shape=["batch", 128, 128, 3]
    )
    made = {sample.name: sample.arrays["images"] for sample in adversarial_samples(digits_config(), outside)}
    white, black = made["adversarial/white"], made["adversarial/black"]
    assert white.shape == (128, 128, 3) and white[5, 7].tolist() == [245, 235 / 2, 225 / 4]
    assert black[5, 7].tolist() == [-10, -10, -7.5]
    noise = made["adversarial/noise"]
    for channel in range(3):
        assert set(np.unique(noise[..., channel])) == {white[0, 0, channel], black[0, 0, channel]}
    inside = spec_of(range=[0, 255], normalization=statistics | {"where": "inside the graph"}, dtype="uint8")
    made = {sample.name: sample.arrays["images"] for sample in adversarial_samples(digits_config(), inside)}
    assert made["adversarial/white"].dtype == np.uint8 and (made["adversarial/white"] == 255).all()
    boxed = {s.name: s.arrays["images"] for s in adversarial_samples(digits_config(), spec_of(resize="letterbox"))}
    assert boxed["adversarial/white"].min() == 1, "as large as the input: no grey beside it"


def test_models_without_pictures_have_no_adversarial_samples() -> None:
    tensor = {"name": "x", "dtype": "float32", "shape": ["batch", 4], "kind": "tensor"}
    assert adversarial_samples(digits_config(), IoSpec.from_json({"inputs": [tensor]})) == []
    assert adversarial_samples(digits_config(), IoSpec.from_json({"inputs": [*PICTURES, tensor]})) == []


def test_a_size_of_the_picture_goes_in_beside_it() -> None:
    size = {"name": "orig_target_sizes", "dtype": "int64", "shape": ["batch", 2], "kind": "picture_size"}
    spec = IoSpec.from_json(SPEC.to_json() | {"inputs": [*PICTURES, size]})
    for sample in (
        run_samples("verification", digits_config(), Path("unused"), spec)[0],
        *adversarial_samples(digits_config(), spec),
    ):
        assert sample.arrays["orig_target_sizes"].tolist() == [128, 128]
        assert sample.arrays["orig_target_sizes"].dtype == np.int64


@pytest.mark.parametrize(("sides", "fed"), [([64, 32], (64, 32)), (["h", "w"], (128, 128))])
def test_a_mask_of_pixels_goes_in_beside_the_picture(sides: list[object], fed: tuple[int, int]) -> None:
    mask = {"name": "pixel_mask", "dtype": "int64", "shape": ["batch", *sides], "kind": "tensor"}
    spec = IoSpec.from_json(SPEC.to_json() | {"inputs": [*PICTURES, mask]})
    samples = [run_samples("verification", digits_config(), Path("unused"), spec)[0]]
    for sample in [*samples, *adversarial_samples(digits_config(), spec)]:
        ones = sample.arrays["pixel_mask"]
        assert ones.shape == fed and ones.dtype == np.int64 and ones.all()
    assert len(adversarial_samples(digits_config(), spec)) == 3


def test_noise_is_seeded_and_its_purposes_are_disjoint() -> None:
    config = validate(composed("data=random", "data.calibration_samples=3", "data.verification_samples=3"))
    groups = [run_samples(purpose, config, Path("unused"), SPEC) for purpose in ("calibration", "verification")]
    images = [sample.arrays["images"].tobytes() for group in groups for sample in group]
    assert len(set(images)) == 6
    assert images[0] == run_samples("calibration", config, Path("unused"), SPEC)[0].arrays["images"].tobytes()
    other = validate(composed("data=random", "data.seed=1"))
    assert images[0] != run_samples("calibration", other, Path("unused"), SPEC)[0].arrays["images"].tobytes()
    image = groups[0][0].arrays["images"]
    assert 0 <= image.min() < 0.01 and 0.99 < image.max() <= 1 and 0.49 < image.mean() < 0.51


def test_names_are_known_without_reading(tmp_path: Path) -> None:
    samples = run_samples("verification", folder_config(tmp_path), tmp_path, SPEC)
    for path in samples.paths:
        path.write_bytes(b"no picture")
    assert samples.names == [path.name for path in samples.paths]
    assert samples[2:].names == samples.names[2:] and samples[2:].paths == samples.paths[2:]
