"""Every key of a preprocessing does what it says, and every fault of one is listed."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.messages import expect, raises
from truehalf.data.images import open_image
from truehalf.data.preprocessing import Preprocessing, declared_by, preprocessing_of
from truehalf.io_spec.spec import IoSpec


@pytest.fixture
def red(tmp_path: Path) -> Path:
    """20 wide, 10 high: red 255, green 51, blue 0."""
    Image.new("RGB", (20, 10), (255, 51, 0)).save(tmp_path / "red.png")
    return tmp_path / "red.png"


def test_without_further_words_a_picture_is_rgb_in_0_to_1_stretched(red: Path) -> None:
    read = preprocessing_of({"size": [8, 16]}).apply(open_image(red))
    assert read.shape == (3, 8, 16) and read.dtype == np.float32
    np.testing.assert_allclose(read[:, 0, 0], [1, 0.2, 0])


def test_channels_range_mean_and_std(red: Path) -> None:
    keys = {"size": [8, 16], "channels": "BGR", "range": [0, 255], "mean": [10, 20, 30], "std": [1, 2, 4]}
    np.testing.assert_allclose(preprocessing_of(keys).apply(open_image(red))[:, 0, 0], [-10, 31 / 2, 225 / 4])


def test_layout(red: Path) -> None:
    assert preprocessing_of({"size": [8, 16], "layout": "NHWC"}).apply(open_image(red)).shape == (8, 16, 3)


def test_letterbox_keeps_the_aspect_on_grey(red: Path) -> None:
    read = preprocessing_of({"size": [16, 16], "resize": "letterbox", "range": [0, 255]}).apply(open_image(red))
    assert (read[:, :4] == 114).all() and (read[:, 12:] == 114).all()
    assert (read[0, 4:12] == 255).all() and (read[1, 4:12] == 51).all()
    tall = preprocessing_of({"size": [40, 10], "resize": "letterbox", "range": [0, 255]}).apply(open_image(red))
    assert (tall[0] == 255).sum() == 5 * 10


def test_integers_are_rounded(red: Path) -> None:
    read = preprocessing_of({"size": [8, 16], "range": [0, 255]}).apply(open_image(red), "uint8")
    assert read.dtype == np.uint8 and read[:, 0, 0].tolist() == [255, 51, 0]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_it_may_be_a_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"p.{suffix}").write_text(json.dumps({"size": [8, 16], "mean": [1, 2, 3]}))
    read = preprocessing_of(tmp_path / f"p.{suffix}")
    assert read.as_dict() == {
        "size": [8, 16],
        "mean": [1, 2, 3],
        "std": [1, 1, 1],
        "channels": "RGB",
        "range": [0, 1],
        "resize": "stretch",
        "layout": "NCHW",
        "resample": "bilinear",
    }


FILTERS = ["bilinear", "bicubic", "lanczos", "box", "hamming", "nearest"]


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_a_picture_is_resampled_as_declared(resample: str, resize: str) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8))
    keys = {"size": [32, 32], "resize": resize, "range": [0, 255], "resample": resample}
    expected = picture.resize((32, 32), Image.Resampling[resample.upper()])
    np.testing.assert_array_equal(preprocessing_of(keys).apply(picture), np.asarray(expected).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("keys", "code", "facts"),
    [
        ({"size": [640]}, "wrong-shape", ["[height, width]", "[640]"]),
        ({"size": [640, 0]}, "wrong-shape", ["[height, width]", "[640, 0]"]),
        ({"size": 640}, "wrong-type", ["a list", 640]),
        ({"channels": "rgb"}, "unknown-choice", ["RGB", "BGR", "'rgb'"]),
        ({"range": [-1, 1]}, "unknown-choice", ["[0, 1]", "[0, 255]", "[-1, 1]"]),
        ({"resize": "crop"}, "unknown-choice", ["stretch", "letterbox", "'crop'"]),
        ({"layout": "HWC"}, "unknown-choice", ["NCHW", "NHWC", "'HWC'"]),
        ({"resample": "cubic"}, "unknown-choice", [*FILTERS, "'cubic'"]),
        ({"mean": [1, 2]}, "wrong-type", ["[1, 2]"]),
        ({"mean": [1, 2, float("nan")]}, "wrong-type", ["[1, 2, nan]"]),
        ({"std": [1, 0, 1]}, "out-of-range", ["[1, 0, 1]"]),
        ({"means": [1, 2, 3]}, "unknown-key", ["size, mean, std, channels, range, resize, layout, resample"]),
    ],
)
def test_faults(keys: dict, code: str, facts: list[object]) -> None:
    with raises("wrong-preprocessing") as error:
        preprocessing_of(keys)
    (line,) = str(error.value).splitlines()[1:]
    (key,) = keys
    expect(line, code, f"{key}:", *facts)


def test_all_faults_are_listed_and_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("channels: grey\nrange: 255\n")
    with raises("wrong-preprocessing", tmp_path / "p.yaml") as error:
        preprocessing_of(tmp_path / "p.yaml")
    channels, pixel_range = str(error.value).splitlines()[1:]
    expect(channels, "unknown-choice", "channels:", "'grey'")
    expect(pixel_range, "wrong-type", "range:", 255)
    (tmp_path / "list.yaml").write_text("[1]")
    with raises("wrong-type", tmp_path / "list.yaml", "size, mean, std", "list"):
        preprocessing_of(tmp_path / "list.yaml")
    with raises("file-missing", tmp_path / "absent.yaml"):
        preprocessing_of(tmp_path / "absent.yaml")
    (tmp_path / "broken.yaml").write_text("{")
    with raises("file-unreadable", tmp_path / "broken.yaml"):
        preprocessing_of(tmp_path / "broken.yaml")


def declared(entry: dict) -> Preprocessing | None:
    return declared_by(IoSpec.from_json({"inputs": [entry]}).image_input)


def test_what_an_io_spec_declares() -> None:
    entry = {"name": "images", "shape": ["n", 3, 8, 16], "layout": "NCHW", "channels": "BGR", "range": [0, 255]}
    statistics = {"mean": [1, 2, 3], "std": [4, 5, 6]}
    outside = declared(entry | {"normalization": statistics | {"where": "before the graph"}})
    assert outside is not None and outside.mean == (1, 2, 3) and outside.channels == "BGR"
    inside = declared(entry | {"normalization": statistics | {"where": "inside the graph"}})
    assert inside is not None and inside.mean == (0, 0, 0) and inside.range == (0, 255)
    assert outside.resample == "bilinear", "of a spec that does not say it"
    bicubic = declared(entry | {"resample": "bicubic"})
    assert bicubic is not None and bicubic.resample == "bicubic"
    assert declared({"name": "images", "shape": ["n", 3, 8, 16]}) is None


@pytest.mark.parametrize(
    ("picture", "size"), [((20, 10), (16, 16)), ((10, 20), (16, 16)), ((7, 3), (64, 48)), ((333, 500), (128, 96))]
)
@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_boxes_go_where_the_picture_goes_and_back(picture: tuple[int, int], size: tuple[int, int], resize: str) -> None:
    """The box of the whole picture is what the picture covers, to the pixel; and the way back is exact."""
    keys = {"size": list(size), "resize": resize, "range": [0, 255]}
    preprocessing = preprocessing_of(keys)
    covered = preprocessing.apply(Image.new("RGB", picture, (255, 255, 255)))[0] == 255
    rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
    whole = preprocessing.boxes(np.float32([[0, 0, *picture]]), picture)[0]
    assert whole.tolist() == [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    boxes = np.sort(np.random.default_rng(0).uniform(0, min(picture), (9, 2, 2)), axis=1).reshape(9, 4)
    there = preprocessing.boxes(np.float32(boxes), picture).astype(np.float64)
    scale = np.tile((whole[2:] - whole[:2]) / np.float64(picture), 2)
    back = (there - np.tile(whole[:2], 2)) / scale
    np.testing.assert_allclose(back, boxes, atol=1e-4 * max(1 / scale))  # float32 of coordinates up to 128


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", ["RGB", "BGR"])
@pytest.mark.parametrize("pixel_range", [[0, 1], [0, 255]])
def test_what_went_in_can_be_shown(layout: str, channels: str, pixel_range: list[int], red: Path) -> None:
    keys = {"size": [8, 16], "layout": layout, "channels": channels, "range": pixel_range}
    preprocessing = preprocessing_of(keys | {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]})
    shown = preprocessing.shown(preprocessing.apply(open_image(red)))
    assert shown.shape == (3, 8, 16) and shown.dtype == np.float32
    np.testing.assert_allclose(shown[:, 3, 4], [1, 0.2, 0], atol=1e-6)


def test_a_letterboxed_object_lies_in_its_box(tmp_path: Path) -> None:
    """Twice the size is exact: no pixel of the object outside its box, none of the background inside."""
    image = Image.new("RGB", (64, 32))
    image.paste((255, 255, 255), (16, 8, 32, 24))
    preprocessing = preprocessing_of({"size": [128, 128], "resize": "letterbox", "range": [0, 255]})
    pixels = preprocessing.apply(image)[0]
    x0, y0, x1, y1 = preprocessing.boxes(np.float32([[16, 8, 32, 24]]), image.size)[0].astype(int)
    assert (x0, y0, x1, y1) == (32, 48, 64, 80)
    assert pixels[y0 + 1 : y1 - 1, x0 + 1 : x1 - 1].min() == 255
    assert pixels[32:96].sum() - pixels[y0 - 1 : y1 + 1, x0 - 1 : x1 + 1].sum() == 0, "bilinear reaches one pixel far"
