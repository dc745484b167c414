"""Images: found in a folder, opened by Pillow, with COCO's annotations as labels.

A category of the annotations is the model's class of the same name; its id means nothing. In a crowd (iscrowd)
detections are not judged, as COCO does it. Boxes without an area are no labels; an image without annotations is one on
which nothing is to be found.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.codes import coded
from truehalf.data.samples import Samples
from truehalf.errors import StageError, refuse, some_of, typed_line
from truehalf.json_values import is_finite_number

if TYPE_CHECKING:
    from faster_coco_eval import COCO
    from PIL import Image

_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV")
# Formats that Pillow knows only by name and does not decode; and EPS, a program that Ghostscript would have to run.
_UNREAD = ("BUFR", "GRIB", "HDF5", "MPEG", "WMF", "EPS")
EMPTY = "boxes without an area"
STRAY = "annotations of images that the file does not list"
_SHOWN = 20  # problems in an error
_EXPECTED = "expected COCO's JSON: images with file_name, annotations with bbox, categories with name"
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class LabelledImage:
    """An image with its labels.

    Attributes:
        image: RGB, of any size.
        boxes: float32 [n, 4] xyxy in pixels of the image, or None.
        labels: int64 [n], positions in `Samples.categories`, or the model's classes; or None.
        crowds: bool [n], True for a box around a crowd, in which detections are not judged; None: no box is one.
    """

    image: Image.Image
    boxes: np.ndarray | None = None
    labels: np.ndarray | None = None
    crowds: np.ndarray | None = None

    @classmethod
    def of_array(cls, pixels: np.ndarray, *boxes_and_labels: np.ndarray) -> LabelledImage:
        """Make one of uint8 [height, width, 3], RGB."""
        from PIL import Image

        return cls(Image.fromarray(pixels), *boxes_and_labels)


def image_files(paths: Sequence[Path], folder: Path) -> Samples:
    """Name image files by their place in a folder."""
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Samples(names, lambda position: LabelledImage(open_image(paths[position])), paths, folder)


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


# --- COCO's annotations -----------------------------------------------------------------------------------------------


def coco(annotations: Path, folder: Path) -> Samples:
    """List annotated images.

    Args:
        annotations: COCO's JSON.
        folder: that file names in it start in.

    Raises:
        StageError: the annotations cannot be read or contradict themselves, or an image is not in the folder.
    """
    content = _read_coco(annotations)
    images = {_place(image): image for image in content.imgs.values()}
    refuse("file-unreadable", f"data.annotations: {annotations}", list(_coco_problems(content)), _SHOWN)
    names = sorted(images)
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise StageError(
            "file-missing",
            f"data.folder: {folder} lacks {len(missing)} of {len(names)} annotated images: {some_of(missing)}; "
            "expected the folder that the file_name of data.annotations starts in",
        )
    labels: dict[int, list[Entry]] = {}
    left_out: dict[str, list[str]] = {}
    for each in content.dataset["annotations"]:
        reason = STRAY if each["image_id"] not in content.imgs else EMPTY if min(each["bbox"][2:]) <= 0 else ""
        if reason:
            left_out.setdefault(reason, []).append(f"annotation {each['id']}")
        else:
            labels.setdefault(each["image_id"], []).append(each)
    used = {each["category_id"] for boxes in labels.values() for each in boxes}
    categories = sorted({str(content.cats[number]["name"]) for number in used})
    classes = {number: categories.index(str(content.cats[number]["name"])) for number in used}
    source = image_files([folder / name for name in names], folder)

    def load(position: int) -> LabelledImage:
        image = images[names[position]]
        return _labelled(source.paths[position], image, labels.get(image["id"], []), classes)

    return replace(source, load=load, categories=categories, left_out=left_out)


def _place(image: Entry) -> str:
    return PurePosixPath(str(image["file_name"])).as_posix()


def _labelled(path: Path, entry: Entry, boxes: Sequence[Entry], classes: Mapping[int, int]) -> LabelledImage:
    image = open_image(path)
    size = (entry.get("width") or image.width, entry.get("height") or image.height)
    if size != image.size:
        raise StageError(
            "wrong-file",
            f"{path}: annotated as {size[0]} x {size[1]}, but the image is {image.width} x {image.height} as it is "
            "shown (with EXIF's orientation), so its boxes do not fit; expected the images that were annotated",
        )
    corners = np.array([each["bbox"] for each in boxes], np.float64).reshape(-1, 4)
    corners[:, 2:] += corners[:, :2]
    labels = np.array([classes[each["category_id"]] for each in boxes], np.int64)
    crowds = np.array([bool(each.get("iscrowd")) for each in boxes], bool)
    return LabelledImage(image, corners.astype(np.float32), labels, crowds)


def _read_coco(path: Path) -> COCO:
    """Read a file by COCO's reader.

    Raises:
        StageError: file-missing; file-unreadable for no JSON, or without what COCO says.
    """
    from faster_coco_eval import COCO

    if not path.is_file():
        raise StageError("file-missing", f"data.annotations: no such file: {path}; {_EXPECTED}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an annotation whose id is 0, which its evaluation would misread
            read = COCO(path)
        for kind, key in (("images", "file_name"), ("annotations", "bbox"), ("categories", "name")):
            for entry in read.dataset[kind]:
                entry[key]
    except (ValueError, AssertionError, KeyError, TypeError, AttributeError) as error:
        message = f"data.annotations: {path}: {_EXPECTED}, each of its type; got {typed_line(error)}"
        raise StageError("file-unreadable", message) from error
    return read


def _coco_problems(content: COCO) -> Iterator[str]:
    """Yield an error line for each thing that is there twice, lies outside the folder, or is no box of a category."""
    listed = content.dataset
    places = [_place(image) for image in listed["images"]]
    numbers = {kind: [entry["id"] for entry in listed[kind]] for kind in ("images", "categories")}
    for what, values in (*((f"{kind}: id", each) for kind, each in numbers.items()), ("images: file_name", places)):
        for value, times in Counter(values).items():
            if times > 1:
                yield coded("given-twice", f"{what} {value!r} is there {times} times; which one is true is not known")
    for place in places:
        if place.startswith("/") or ".." in place.split("/"):
            yield coded("wrong-name", f"images: file_name {place!r}: expected a path within data.folder")
    for number, annotation in enumerate(listed["annotations"]):
        box, category = annotation["bbox"], annotation["category_id"]
        if category not in content.cats:
            yield coded("wrong-name", f"annotations[{number}]: category_id {category} is no id of categories")
        if not isinstance(box, list) or len(box) != 4 or not all(map(is_finite_number, box)):
            message = f"annotations[{number}]: bbox: expected [x, y, width, height] in pixels, got {box}"
            yield coded("wrong-type", message)
