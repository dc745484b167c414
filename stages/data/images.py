"""A folder of pictures: every file with a picture's suffix, recursively; as samples, in an order fixed by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conf.schema import Config
from stages.data.picture import Picture
from stages.io import StageError

if TYPE_CHECKING:
    from PIL import Image

_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def list_images(folder: Path, seed: int) -> list[Path]:
    """The pictures under a folder, shuffled by the seed (file systems differ in their order, the result does not).

    Raises:
        StageError: when the folder does not exist or holds no picture.
    """
    if not folder.is_dir():
        raise StageError(f"data.folder: no such folder: {folder}")
    found = pictures_under(folder)
    if not found:
        raise StageError(f"data.folder: {folder} holds no picture; expected files ending in {', '.join(SUFFIXES)}")
    return [found[i] for i in np.random.default_rng(seed).permutation(len(found))]


def is_picture(path: Path) -> bool:
    """Whether this is a file with a picture's suffix."""
    return path.suffix.lower() in SUFFIXES and path.is_file()


def pictures_under(folder: Path) -> list[Path]:
    """The files with a picture's suffix in a folder and below, in the order of their names."""
    files = (path for path in folder.rglob("*") if is_picture(path))
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def open_picture(path: Path) -> Image.Image:
    """A picture in RGB, whole in memory, turned as its EXIF says.

    Raises:
        StageError: naming the file when Pillow cannot read it, or when it has more than 8 bits a channel, which Pillow
            would cut off at white.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            if opened.mode not in _EIGHT_BITS:
                raise ValueError(f"its mode is {opened.mode}; expected 8 bits a channel")
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise StageError(
            f"{path} cannot be read as a picture ({error}); repair it or take it out of the folder"
        ) from error


def unreadable(paths: Sequence[Path]) -> dict[Path, str]:
    """The files that cannot be read as pictures, each with the reason; every file is decoded once."""
    faults = {}
    for path in paths:
        try:
            open_picture(path)
        except StageError as error:
            faults[path] = str(error)
    return faults


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


class FolderPictures(Sequence[Picture]):
    """Pictures from files, read when asked for; without labels."""

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self.paths, self._folder = paths, folder

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        path = self.paths[index]
        return Picture(path.relative_to(self._folder).as_posix(), open_picture(path))


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> FolderPictures:
    """Pictures of `data.folder` for a purpose."""
    assert config.data.folder is not None, "validated: data.source=images has a folder"
    folder = root / config.data.folder
    return FolderPictures(take(list_images(folder, config.data.seed), first, count, folder, purpose), folder)
