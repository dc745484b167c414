"""A folder of pictures as samples: every file with a picture's suffix, recursively, in an order fixed by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stages.io import StageError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def list_images(folder: Path, seed: int) -> list[Path]:
    """The pictures under a folder, shuffled by the seed (file systems differ in their order, the result does not).

    Raises:
        StageError: when the folder does not exist or holds no picture.
    """
    if not folder.is_dir():
        raise StageError(f"data.folder: no such folder: {folder}")
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file()
    )
    if not names:
        raise StageError(f"data.folder: {folder} holds no picture; expected files ending in {', '.join(SUFFIXES)}")
    return [folder / names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def read_image(path: Path, height: int, width: int) -> np.ndarray:
    """A picture as float32 [3, height, width], RGB in 0..1, turned as its EXIF says, its aspect given up for the size.

    Raises:
        StageError: naming the file when Pillow cannot read it.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGB")
            resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise StageError(
            f"data.folder: {path} cannot be read as a picture ({error}); repair it or take it out of the folder"
        ) from error
    return np.ascontiguousarray(np.asarray(resized, np.float32).transpose(2, 0, 1)) / np.float32(255)


def take(images: Sequence[Path], first: int, count: int, folder: Path, purpose: str) -> list[Path]:
    """Pictures `first` to `first + count - 1`.

    Raises:
        StageError: when the folder holds fewer.
    """
    if len(images) < first + count:
        raise StageError(
            f"data.folder: {folder} holds {len(images)} pictures and {purpose} ends at number {first + count}; "
            "add pictures, or lower data.calibration_samples or data.verification_samples"
        )
    return list(images[first : first + count])
