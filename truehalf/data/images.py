"""A folder of images: every file that Pillow reads, recursively; as samples, in an order fixed by a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.drawn import Drawn, LabelledImage, TooFew
from truehalf.errors import StageError
from truehalf.files import file_sha256

if TYPE_CHECKING:
    from PIL import Image

_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV")
# Formats that Pillow knows only by name and does not decode; and EPS, a program that Ghostscript would have to run.
_UNREAD = ("BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS")
_COMMON = (".jpg", ".png", ".webp", ".bmp", ".tiff")
SAME = "byte for byte the same as another image, which is used"


@lru_cache(maxsize=1)
def formats() -> tuple[str, ...]:
    """The formats that this installation of Pillow decodes by itself, as Pillow calls them."""
    from PIL import Image

    Image.init()
    return tuple(name for name in sorted(Image.OPEN) if name not in _UNREAD)


@lru_cache(maxsize=1)
def suffixes() -> frozenset[str]:
    """The endings of their files, in lower case, with the dot."""
    from PIL import Image

    known = formats()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in known)


def expected_files() -> str:
    """Words for messages."""
    return f"files that Pillow reads ({', '.join(_COMMON)} and {len(suffixes()) - len(_COMMON)} other endings)"


def is_image(path: Path) -> bool:
    """Whether this is a file with an image's suffix."""
    return path.suffix.lower() in suffixes() and path.is_file()


def images_under(folder: Path) -> list[Path]:
    """The files with an image's suffix in a folder and below, by name; none whose name begins with a dot."""
    named = ((path.relative_to(folder), path) for path in folder.rglob("*") if is_image(path))
    seen = ((name.as_posix(), path) for name, path in named if not any(part.startswith(".") for part in name.parts))
    return [path for _, path in sorted(seen)]


def list_images(folder: Path, seed: int) -> tuple[list[Path], dict[Path, Path]]:
    """The images under a folder, each content once, shuffled by the seed (file systems differ in their order, the
    result does not); and those left out, each as the same as another one.

    Raises:
        StageError: when the folder does not exist or holds no image.
    """
    if not folder.is_dir():
        raise StageError("file-missing", f"data.folder: no such folder: {folder}")
    found = images_under(folder)
    if not found:
        raise StageError("file-missing", f"data.folder: {folder} holds no image; expected {expected_files()}")
    return shuffled(found, seed)


def shuffled(paths: Sequence[Path], seed: int) -> tuple[list[Path], dict[Path, Path]]:
    """Files, each content once, in an order fixed by the seed; and those left out, as `same_content`."""
    same = same_content(paths)
    kept = [path for path in paths if path not in same]
    return [kept[i] for i in np.random.default_rng(seed).permutation(len(kept))], same


def same_content(paths: Sequence[Path]) -> dict[Path, Path]:
    """The files that hold what an earlier one holds, byte for byte: else one image could be both calibrated and
    verified with. Only files of equal size are read.
    """
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        by_size.setdefault(path.stat().st_size, []).append(path)
    same: dict[Path, Path] = {}
    for group in by_size.values():
        first: dict[str, Path] = {}
        for path in group if len(group) > 1 else ():
            earlier = first.setdefault(file_sha256(path), path)
            if earlier is not path:
                same[path] = earlier
    return same


def left_out(same: Mapping[Path, Path], folder: Path) -> dict[str, list[str]]:
    """For reports, see truehalf.data.drawn.Drawn."""
    names = sorted(
        f"{path.relative_to(folder).as_posix()} (as {other.relative_to(folder).as_posix()})"
        for path, other in same.items()
    )
    return {SAME: names} if names else {}


def open_image(path: Path) -> Image.Image:
    """An image in RGB, whole in memory, turned as its EXIF says; of several frames the first. Alpha is dropped.

    Raises:
        StageError: naming the file when Pillow cannot read it, or when it has more than 8 bits a channel, which Pillow
            would cut off at white.
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


def unreadable(paths: Sequence[Path]) -> dict[Path, str]:
    """The files that cannot be read as images, each with the reason; every file is decoded once."""
    problems = {}
    for path in paths:
        try:
            open_image(path)
        except StageError as error:
            problems[path] = str(error)
    return problems


def take(images: Sequence[Path], first: int, count: int, folder: Path, purpose: str) -> list[Path]:
    """Images `first` to `first + count - 1`.

    Raises:
        TooFew: when the folder holds fewer.
    """
    if len(images) < first + count:
        held = f"data.folder: {folder} holds {len(images)} different images"
        raise TooFew(held, len(images), purpose, first + count)
    return list(images[first : first + count])


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> Drawn:
    """Images of `data.folder` for a purpose, without labels."""
    assert config.data.folder is not None, "validated: data.source=images has a folder"
    folder = root / config.data.folder
    images, same = list_images(folder, config.data.seed)
    paths = take(images, first, count, folder, purpose)
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Drawn(
        names, lambda each: LabelledImage(names[each], open_image(paths[each])), paths, left_out=left_out(same, folder)
    )
