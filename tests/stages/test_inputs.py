"""Fingerprints change with content, and only with it."""

from pathlib import Path

import pytest
from PIL import Image

from stages.inputs import fingerprint, fingerprint_pictures
from stages.io import StageError


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("one")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    (tmp_path / "b").write_text("two")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")
    with pytest.raises(StageError, match=r"model\.weights: no such file"):
        fingerprint(tmp_path / "c")


def test_pictures_share_one_fingerprint(tmp_path: Path) -> None:
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    before = fingerprint_pictures(tmp_path, 0, 3)
    assert before == fingerprint_pictures(tmp_path, 0, 3)
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "1.png")
    assert before != fingerprint_pictures(tmp_path, 0, 3)
    with pytest.raises(StageError, match="holds 3 pictures"):
        fingerprint_pictures(tmp_path, 0, 4)
