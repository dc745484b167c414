"""Image files: found in a folder, and one of them opened by Pillow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError

if TYPE_CHECKING:
    from PIL import Image

_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV")
# Formats that Pillow knows only by name and does not decode; and EPS, a program that Ghostscript would have to run.
_UNREAD = ("BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS")


@lru_cache(maxsize=1)
def formats() -> dict[str, str]:
    """Formats that this installation of Pillow decodes by itself: {suffix in lower case, with dot: Pillow's name}."""
    from PIL import Image

    known = Image.registered_extensions()  # which fills Image.OPEN
    return {suffix: name for suffix, name in known.items() if name in Image.OPEN and name not in _UNREAD}


def is_image(path: Path) -> bool:
    """True for a file with an image's suffix."""
    return path.suffix.lower() in formats() and path.is_file()


def images_under(folder: Path) -> list[Path]:
    """List image files in a folder and below, linked folders included, by name; none whose name begins with a dot."""
    images = (path for path in _files_under(folder, {folder.resolve()}) if is_image(path))
    return sorted(images, key=lambda path: path.relative_to(folder).as_posix())


def _files_under(folder: Path, parents: set[Path]) -> Iterator[Path]:
    for entry in os.scandir(folder):
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            yield path
        elif (real := path.resolve()) not in parents:  # a link to a folder around it has no end
            yield from _files_under(path, parents | {real})


def open_image(path: Path) -> Image.Image:
    """Open an image in RGB, whole in memory, turned as its EXIF says; of several frames the first. Alpha is dropped.

    Raises:
        StageError: Pillow cannot read the file, or it has more than 8 bits a channel, which Pillow would cut off at
            white.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=sorted({*formats().values()})) as opened:
            if opened.mode not in _EIGHT_BITS:
                raise ValueError(f"its mode is {opened.mode}; expected 8 bits a channel")
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        message = f"{path} cannot be read as an image ({error}); repair it or take it out of the folder"
        raise StageError("file-unreadable", message) from error
