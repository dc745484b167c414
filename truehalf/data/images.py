"""Image files: which Pillow reads, and one of them opened."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError

if TYPE_CHECKING:
    from PIL import Image

_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV")
# Formats that Pillow knows only by name and does not decode; and EPS, a program that Ghostscript would have to run.
_UNREAD = ("BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS")
_COMMON = (".jpg", ".png", ".webp", ".bmp", ".tiff")


@lru_cache(maxsize=1)
def formats() -> tuple[str, ...]:
    """Formats that this installation of Pillow decodes by itself, as Pillow calls them."""
    from PIL import Image

    Image.init()
    return tuple(name for name in sorted(Image.OPEN) if name not in _UNREAD)


@lru_cache(maxsize=1)
def suffixes() -> frozenset[str]:
    """Endings of their files, in lower case, with the dot."""
    from PIL import Image

    known = formats()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in known)


def expected_files() -> str:
    """Words for messages."""
    return f"files that Pillow reads ({', '.join(_COMMON)} and {len(suffixes()) - len(_COMMON)} other endings)"


def is_image(path: Path) -> bool:
    """True for a file with an image's suffix."""
    return path.suffix.lower() in suffixes() and path.is_file()


def open_image(path: Path) -> Image.Image:
    """Open an image in RGB, whole in memory, turned as its EXIF says; of several frames the first. Alpha is dropped.

    Raises:
        StageError: Pillow cannot read the file, or it has more than 8 bits a channel, which Pillow would cut off at
            white.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=formats()) as opened:
            if opened.mode not in _EIGHT_BITS:
                raise ValueError(f"its mode is {opened.mode}; expected 8 bits a channel")
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        message = f"{path} cannot be read as an image ({error}); repair it or take it out of the folder"
        raise StageError("file-unreadable", message) from error
