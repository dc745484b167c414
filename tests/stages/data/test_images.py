"""A folder of pictures: any format, any depth, faults named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stages.data.images import list_images, read_image, take
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
def test_every_mode_becomes_rgb_in_0_to_1(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    read = read_image(picture(tmp_path / f"x.{suffix}", mode), height=8, width=16)
    assert read.shape == (3, 8, 16) and read.dtype == np.float32 and read.min() >= 0 and read.max() <= 1


def test_more_than_8_bits_a_channel_is_refused(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 200).astype(np.uint16).reshape(10, 20)
    Image.fromarray(ramp).save(tmp_path / "thermal.png")
    with pytest.raises(StageError, match=r"thermal.png cannot be read .*its mode is I;16; expected 8 bits a channel"):
        read_image(tmp_path / "thermal.png", height=8, width=16)


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    image = Image.new("RGB", (20, 10))
    image.paste((255, 255, 255), (0, 0, 10, 10))  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise: the left half becomes the top half
    image.save(tmp_path / "x.png", exif=exif)
    read = read_image(tmp_path / "x.png", height=20, width=10)
    assert read[:, :8].mean() > 0.95 and read[:, 12:].mean() < 0.05


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"data\.folder: no such folder"):
        list_images(tmp_path / "nowhere", 0)
    with pytest.raises(StageError, match="holds no picture"):
        list_images(tmp_path, 0)
    broken = picture(tmp_path / "broken.png")
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(StageError, match=r"broken\.png cannot be read as a picture"):
        read_image(broken, 8, 8)
    with pytest.raises(StageError, match="holds 1 pictures and calibration ends at number 4"):
        take([broken], 0, 4, tmp_path, "calibration")
