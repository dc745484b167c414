"""Sample images: every kind of box is there, in its own colour, and equal input gives equal files."""

from pathlib import Path

import numpy as np

from truehalf.report.images import boxes_over_image

BLACK = np.zeros((3, 64, 48), np.float32)
BOXES = {
    "truth": [((20, 2, 40, 20), "1")],
    "reference": [((4, 4, 30, 40), "3 0.90"), ((30, 30, 48, 64), "7 0.90")],
    "candidate": [((7, 7, 33, 43), "3 0.80"), ((60, -9, 20, 50), "7 0.80")],
}


def colours(file: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(file).convert("RGB")).reshape(-1, 3).astype(int)


def test_an_image_shows_all_three_kinds_of_boxes(tmp_path: Path) -> None:
    boxes_over_image(BLACK, BOXES, tmp_path / "a.png")
    for colour in ("#0072b2", "#e69f00", "#d8d8d8"):
        rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(colours(tmp_path / "a.png") - rgb).max(axis=1) < 12).sum() > 50, colour


def test_without_boxes_the_image_is_the_sample(tmp_path: Path) -> None:
    grey = np.full((3, 64, 48), 0.5, np.float32)
    boxes_over_image(grey, {}, tmp_path / "a.png")
    assert set(colours(tmp_path / "a.png").ravel()) == {128}


def test_equal_input_gives_equal_files(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        boxes_over_image(BLACK, BOXES, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
