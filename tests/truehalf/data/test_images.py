"""A folder of pictures: any format, any depth, faults named."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.configurations import composed
from tests.messages import raises
from truehalf.config.validate import validate
from truehalf.data.images import formats, images_under, open_image
from truehalf.data.run_samples import run_sources
from truehalf.data.samples import SAME


def picture(path: Path, mode: str = "RGB", size: tuple[int, int] = (20, 10), **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = zlib.crc32(path.name.encode())  # each name another picture
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(noise).convert(mode).save(path, **options)
    return path


def test_images_are_found_recursively_in_an_order_of_the_seed(tmp_path: Path) -> None:
    for name in ("a.png", "deep/b.JPG", "deep/er/c.webp", "notes.txt"):
        picture(tmp_path / name) if name != "notes.txt" else (tmp_path / name).write_text("x")
    assert [path.name for path in images_under(tmp_path)] == ["a.png", "b.JPG", "c.webp"]

    def verifying(seed: int) -> list[str]:
        config = validate(composed("data=images", "data.folder=.", f"data.seed={seed}"))
        return list(run_sources(config, tmp_path)["verification"].names)

    assert verifying(0) == verifying(0) and any(verifying(seed) != verifying(0) for seed in range(1, 9))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    read = open_image(picture(tmp_path / f"x.{suffix}", mode))
    assert read.mode == "RGB" and read.size == (20, 10)


def test_more_than_8_bits_a_channel_is_refused(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 200).astype(np.uint16).reshape(10, 20)
    Image.fromarray(ramp).save(tmp_path / "thermal.png")
    with raises("file-unreadable", tmp_path / "thermal.png", "I;16", 8):
        open_image(tmp_path / "thermal.png")


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    image = Image.new("RGB", (20, 10))
    image.paste((255, 255, 255), (0, 0, 10, 10))  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise: the left half becomes the top half
    image.save(tmp_path / "x.png", exif=exif)
    read = np.asarray(open_image(tmp_path / "x.png"))
    assert read.shape == (20, 10, 3)
    assert read[:10].mean() > 242 and read[10:].mean() < 13


def test_faults_are_named(tmp_path: Path) -> None:
    with raises("file-missing", "data.folder", tmp_path / "nowhere"):
        run_sources(validate(composed("data=images", "data.folder=nowhere")), tmp_path)
    with raises("file-missing", "data.folder", tmp_path, ".png"):
        run_sources(validate(composed("data=images", "data.folder=.")), tmp_path)
    broken = picture(tmp_path / "broken.png")
    broken.write_bytes(broken.read_bytes()[:40])
    with raises("file-unreadable", broken):
        open_image(broken)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "webp", "tif", "jp2", "avif"])
def test_every_format_that_pillow_reads_is_a_picture(tmp_path: Path, suffix: str) -> None:
    assert f".{suffix}" in formats(), "the pinned Pillow is built with all of them"
    path = picture(tmp_path / f"x.{suffix}", size=(32, 32))
    assert images_under(tmp_path) == [path]
    read = open_image(path)
    assert read.mode == "RGB" and read.size == (32, 32)


def test_what_pillow_knows_by_name_alone_or_has_run_by_another_program_is_no_picture(tmp_path: Path) -> None:
    assert not formats().keys() & {".eps", ".ps", ".h5", ".mpg", ".wmf", ".grib", ".pdf", ".txt", ".npz", ".json"}
    (tmp_path / "program.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with raises("file-unreadable", tmp_path / "program.png"):
        open_image(tmp_path / "program.png")


def test_hidden_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    for name in ("a.png", ".b.png", ".thumbnails/a.png", "deep/.cache/c.png"):
        picture(tmp_path / name)
    assert [path.name for path in images_under(tmp_path)] == ["a.png"]


def test_the_same_bytes_under_another_name_are_never_a_second_picture(tmp_path: Path) -> None:
    """Else one picture could be both calibrated and verified with."""
    for number in range(24):
        picture(tmp_path / f"{number:02}.png")
    for number in (3, 7):
        (tmp_path / f"copy of {number}.png").write_bytes((tmp_path / f"{number:02}.png").read_bytes())
    counts = ["data.calibration_samples=4", "data.verification_samples=4"]
    config = validate(composed("data=images", "data.folder=.", *counts))
    sources = run_sources(config, tmp_path)
    parts = list(sources.values())
    assert sorted(name for part in parts for name in part.names) == [f"{number:02}.png" for number in range(24)]
    assert all(part.left_out == {SAME: ["copy of 3.png (as 03.png)", "copy of 7.png (as 07.png)"]} for part in parts)
    too_many = validate(composed("data=images", "data.folder=.", *counts[:1], "data.verification_samples=21"))
    with raises("too-few-samples", tmp_path, 24):
        run_sources(too_many, tmp_path)
