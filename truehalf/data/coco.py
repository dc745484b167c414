"""Images with COCO's annotations: boxes as labels, so that average precision is measured against the truth.

A category of the annotations is the model's class of the same name; its id means nothing. In a crowd (iscrowd)
detections are not judged, as COCO does it. Boxes without an area are no labels; an image without annotations is one on
which nothing is to be found.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.codes import coded
from truehalf.data.images import open_image
from truehalf.data.samples import Samples
from truehalf.data.sources import LabelledImage, image_files
from truehalf.errors import StageError, refuse, some_of, typed_line
from truehalf.json_values import is_finite_number

if TYPE_CHECKING:
    from faster_coco_eval import COCO

EMPTY = "boxes without an area"
STRAY = "annotations of images that the file does not list"
_SHOWN = 10
_EXPECTED = "expected COCO's JSON: images with file_name, annotations with bbox, categories with name"
Entry = Mapping[str, Any]


def coco(annotations: Path, folder: Path) -> Samples:
    """List annotated images.

    Args:
        annotations: COCO's JSON.
        folder: that file names in it start in.

    Raises:
        StageError: the annotations cannot be read or contradict themselves, or an image is not in the folder.
    """
    content = _read(annotations)
    images = {_place(image): image for image in content.imgs.values()}
    refuse("file-unreadable", f"data.annotations: {annotations}", list(_problems(content)), _SHOWN)
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


def _read(path: Path) -> COCO:
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


def _problems(content: COCO) -> Iterator[str]:
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
