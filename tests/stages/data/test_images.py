"""A folder of pictures: any format, any depth, faults named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stages.data.images import list_images, open_picture, take
from stages.io import StageError


def picture(path: Path, mode: str = "RGB", size: tuple[int, int] = (20, 10), **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 200 if mode in ("L", "P") else None).save(path, **options)
    return path


def test_pictures_are_found_recursively_in_an_order_of_the_seed(tmp_path: Path) -> None:
    for name in ("a.png", "deep/b.JPG", "deep/er/c.webp", "notes.txt"):
        picture(tmp_path / name) if name != "notes.txt" else (tmp_path / name).write_text("x")
    first = list_images(tmp_path, seed=0)
    assert sorted(path.name for path in first) == ["a.png", "b.JPG", "c.webp"]
    assert first == list_images(tmp_path, seed=0)
    assert any(list_images(tmp_path, seed=seed) != first for seed in range(1, 9))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    read = open_picture(picture(tmp_path / f"x.{suffix}", mode))
    assert read.mode == "RGB" and read.size == (20, 10)


def test_more_than_8_bits_a_channel_is_refused(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 200).astype(np.uint16).reshape(10, 20)
    Image.fromarray(ramp).save(tmp_path / "thermal.png")
    with pytest.raises(StageError, match=r"thermal.png cannot be read .*its mode is I;16; expected 8 bits a channel"):
        open_picture(tmp_path / "thermal.png")


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    image = Image.new("RGB", (20, 10))
    image.paste((255, 255, 255), (0, 0, 10, 10))  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise: the left half becomes the top half
    image.save(tmp_path / "x.png", exif=exif)
    read = np.asarray(open_picture(tmp_path / "x.png"))
    assert read.shape == (20, 10, 3)
    assert read[:10].mean() > 242 and read[10:].mean() < 13


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"data\.folder: no such folder"):
        list_images(tmp_path / "nowhere", 0)
    with pytest.raises(StageError, match="holds no picture"):
        list_images(tmp_path, 0)
    broken = picture(tmp_path / "broken.png")
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(StageError, match=r"broken\.png cannot be read as a picture"):
        open_picture(broken)
    with pytest.raises(StageError, match="holds 1 pictures and calibration ends at number 4"):
        take([broken], 0, 4, tmp_path, "calibration")
