"""Images with COCO's annotations: boxes as labels, so that average precision is measured against the truth.

A category of the annotations is the model's class of the same name; its id means nothing. In a crowd (iscrowd)
detections are not judged, as COCO does it. Boxes without an area are no labels; an image without annotations is one on
which nothing is to be found.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.data.images import open_image
from truehalf.data.samples import same_content
from truehalf.data.sources import LabelledImage, Source, left_out
from truehalf.errors import StageError, refuse, some_of, typed_line
from truehalf.json_values import is_finite_number

if TYPE_CHECKING:
    from faster_coco_eval import COCO

EMPTY = "boxes without an area"
STRAY = "annotations of images that the file does not list"
_SHOWN = 10
_EXPECTED = "expected COCO's JSON with the boxes: images, annotations, categories"


@dataclass(frozen=True)
class Annotations:
    """COCO's annotations.

    Attributes:
        images: entry of each image by its place in the folder.
        boxes: annotations by that place, without those that are no labels.
        names: of categories, by id.
        left_out: annotations that are no labels, by reason.
    """

    images: Mapping[str, Mapping[str, Any]]
    boxes: Mapping[str, list[Mapping[str, Any]]]
    names: Mapping[int, str]
    left_out: Mapping[str, list[str]]


def coco(config: Config, root: Path) -> Source:
    """Annotated images.

    Raises:
        StageError: the annotations cannot be read or contradict themselves, or an image is not in the folder.
    """
    data = config.data
    assert data.annotations is not None and data.folder is not None, "validated: data.source=coco has both"
    folder = root / data.folder
    found = read_annotations(root / data.annotations)
    listed = [folder / name for name in sorted(found.images)]
    missing = [path for path in listed if not path.is_file()]
    if missing:
        raise StageError(
            "file-missing",
            f"data.folder: {folder} lacks {len(missing)} of {len(listed)} annotated images: "
            f"{some_of(path.relative_to(folder).as_posix() for path in missing)}; expected the folder that the "
            "file_name of data.annotations starts in",
        )
    same = same_content(listed)
    categories = sorted({found.names[each["category_id"]] for boxes in found.boxes.values() for each in boxes})
    paths = [path for path in listed if path not in same]
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Source(
        names,
        lambda position: _labelled(paths[position], names[position], found, categories),
        paths,
        folder,
        categories,
        {**found.left_out, **left_out(same, folder)},
        f"data.folder: {folder} holds {len(paths)} different images",
    )


def _labelled(path: Path, name: str, found: Annotations, categories: list[str]) -> LabelledImage:
    entry, image, boxes = found.images[name], open_image(path), found.boxes.get(name, [])
    size = (entry.get("width") or image.width, entry.get("height") or image.height)
    if size != image.size:
        raise StageError(
            "wrong-file",
            f"{path}: annotated as {size[0]} x {size[1]}, but the image is {image.width} x {image.height} as it is "
            "shown (with EXIF's orientation), so its boxes do not fit; expected the images that were annotated",
        )
    corners = np.array([each["bbox"] for each in boxes], np.float64).reshape(-1, 4)
    corners[:, 2:] += corners[:, :2]
    labels = np.array([categories.index(found.names[each["category_id"]]) for each in boxes], np.int64)
    crowds = np.array([bool(each.get("iscrowd")) for each in boxes], bool)
    return LabelledImage(image, corners.astype(np.float32), labels, crowds)


def read_annotations(path: Path) -> Annotations:
    """Read COCO's JSON, without what is no label.

    Raises:
        StageError: no COCO annotations; or a list of everything that is wrong: ids or file names that are there twice,
            file names outside the folder, categories that nothing defines, boxes that are no four numbers, an iscrowd
            that is no truth value.
    """
    content = _read(path)
    places = {number: PurePosixPath(str(image["file_name"])).as_posix() for number, image in content.imgs.items()}
    refuse("file-unreadable", f"data.annotations: {path}", list(_problems(content, places)), _SHOWN)
    boxes: dict[str, list[Mapping[str, Any]]] = {}
    unused: dict[str, list[str]] = {}
    for number, annotation in enumerate(content.dataset["annotations"]):
        name = places.get(annotation["image_id"])
        if name is None:
            unused.setdefault(STRAY, []).append(f"annotations[{number}]")
        elif min(annotation["bbox"][2:]) <= 0:
            unused.setdefault(EMPTY, []).append(f"annotations[{number}] of {name}")
        else:
            boxes.setdefault(name, []).append(annotation)
    names = {number: str(category["name"]) for number, category in content.cats.items()}
    return Annotations({places[number]: image for number, image in content.imgs.items()}, boxes, names, unused)


def _read(path: Path) -> COCO:
    """COCO's reader on a file.

    Raises:
        StageError: a file that is missing, no JSON, or without images, annotations or categories that have what COCO
            says.
    """
    from faster_coco_eval import COCO

    if not path.is_file():
        raise StageError("file-missing", f"data.annotations: no such file: {path}; {_EXPECTED}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an annotation whose id is 0, which its evaluation would misread
            read = COCO(path)
    except (ValueError, UnicodeDecodeError) as error:
        message = f"data.annotations: {path}: {_EXPECTED}, got {typed_line(error)}"
        raise StageError("file-unreadable", message) from error
    except (AssertionError, KeyError, TypeError, AttributeError) as error:
        message = f"data.annotations: {path}: {_EXPECTED}; an entry lacks a key or has another type: {error}"
        raise StageError("wrong-file", message) from error
    lacking = [key for key in ("images", "annotations", "categories") if not isinstance(read.dataset.get(key), list)]
    lacking += [
        f"{key} of {kind}[{number}]"
        for kind, key in (("images", "file_name"), ("categories", "name"))
        for number, entry in enumerate([] if lacking else read.dataset[kind])
        if key not in entry
    ]
    if lacking:
        raise StageError("wrong-file", f"data.annotations: {path} lacks {some_of(lacking)}; {_EXPECTED}")
    return read


def _problems(content: COCO, places: Mapping[int, str]) -> Iterator[str]:
    listed = content.dataset
    for kind, entries in (("images", content.imgs), ("categories", content.cats)):
        if len(entries) < len(listed[kind]):
            number, times = Counter(entry["id"] for entry in listed[kind]).most_common(1)[0]
            yield coded("given-twice", f"{kind}: id {number} is there {times} times")
    for place, times in Counter(places.values()).items():
        if times > 1:
            message = f"images: file_name {place!r} is there {times} times; which annotations are true is not known"
            yield coded("given-twice", message)
        if place.startswith("/") or ".." in place.split("/"):
            yield coded("wrong-name", f"images: file_name {place!r}: expected a path within data.folder")
    for number, annotation in enumerate(listed["annotations"]):
        box, crowd = annotation.get("bbox"), annotation.get("iscrowd", 0)
        if annotation["category_id"] not in content.cats:
            category = annotation["category_id"]
            yield coded("wrong-name", f"annotations[{number}]: category_id {category} is no id of categories")
        if not isinstance(box, list) or len(box) != 4 or not all(map(is_finite_number, box)):
            message = f"annotations[{number}]: bbox: expected [x, y, width, height] in pixels, got {box}"
            yield coded("wrong-type", message)
        if crowd not in (0, 1):  # true and false are 1 and 0
            yield coded(
                "unknown-choice", f"annotations[{number}]: iscrowd: expected 0, 1, true or false, got {crowd!r}"
            )
