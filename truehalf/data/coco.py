"""Images with COCO's annotations: boxes as labels, so that average precision is measured against the truth.

A category of the annotations is the model's class of the same name; its id means nothing. In a crowd (iscrowd)
detections are not judged, as COCO does it. Boxes without an area are no labels; an image without annotations is one on
which nothing is to be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Config
from truehalf.data.drawn import Drawn, LabelledImage
from truehalf.data.images import left_out, open_image, shuffled, take
from truehalf.errors import StageError, refuse, some_of
from truehalf.files import read_json
from truehalf.json_values import is_finite_number

EMPTY = "boxes without an area"
STRAY = "annotations of images that the file does not list"
_SHOWN = 10


@dataclass
class _Entry:
    """An image of the annotations: width and height where they tell them, boxes xyxy, and of each its category's name
    and whether it holds a crowd.
    """

    size: tuple[int, int] | None
    boxes: list[list[float]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    crowds: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class _Annotations:
    """What is in the file: images by their place in the folder, the categories that boxes have, what is left out."""

    entries: dict[str, _Entry]
    categories: list[str]
    left_out: dict[str, list[str]]


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> Drawn:
    """Annotated images `first` to `first + count - 1`, in an order fixed by the seed.

    Raises:
        StageError: when the annotations cannot be read or contradict themselves, an image is not in the folder, or
            there are fewer images.
    """
    data = config.data
    assert data.annotations is not None and data.folder is not None, "validated: data.source=coco has both"
    folder = root / data.folder
    found = read_annotations(root / data.annotations)
    listed = [folder / name for name in sorted(found.entries)]
    missing = [path for path in listed if not path.is_file()]
    if missing:
        raise StageError(
            "file-missing",
            f"data.folder: {folder} lacks {len(missing)} of {len(listed)} annotated images: "
            f"{some_of(path.relative_to(folder).as_posix() for path in missing)}; expected the folder that the "
            "file_name of data.annotations starts in",
        )
    kept, same = shuffled(listed, data.seed)
    chosen = take(kept, first, count, folder, purpose)
    names = [path.relative_to(folder).as_posix() for path in chosen]
    unused = found.left_out | left_out(same, folder)
    return Drawn(names, lambda each: _labelled(names[each], chosen[each], found), chosen, found.categories, unused)


def _labelled(name: str, path: Path, found: _Annotations) -> LabelledImage:
    entry, image = found.entries[name], open_image(path)
    if entry.size is not None and entry.size != image.size:
        raise StageError(
            "wrong-file",
            f"{path}: annotated as {_pixels(entry.size)}, but the image is {_pixels(image.size)} as it is shown "
            "(with EXIF's orientation), so its boxes do not fit; expected the images that were annotated",
        )
    boxes = np.array(entry.boxes, np.float32).reshape(-1, 4)
    labels = np.array([found.categories.index(each) for each in entry.names], np.int64)
    return LabelledImage(name, image, boxes, labels, np.array(entry.crowds, bool))


def read_annotations(path: Path) -> _Annotations:
    """COCO's JSON, without what is no label.

    Raises:
        StageError: listing everything that is wrong: entries that lack a key, ids that are neither integer nor text,
            ids or file names that are there twice, file names outside the folder, categories that nothing defines,
            boxes that are no four numbers, an iscrowd that is no truth value.
    """
    content = _read(path)
    problems: list[str] = []
    categories = _by_id(content, "categories", "name", problems)
    images = _by_id(content, "images", "file_name", problems)
    places = {key: _place(str(image["file_name"]), problems) for key, image in images.items()}
    for place, times in Counter(places.values()).items():
        if times > 1:
            message = f"images: file_name {place!r} is there {times} times; which annotations are true is not known"
            problems.append(coded("given-twice", message))
    entries = {places[key]: _Entry(_size(image)) for key, image in images.items()}
    unused: dict[str, list[str]] = {}
    for number, annotation in enumerate(content["annotations"]):
        where = f"annotations[{number}]"
        if problem := _problem(annotation, categories):
            problems.append(f"{where}: {problem}")
            continue
        name = places.get(annotation["image_id"])
        x, y, width, height = map(float, annotation["bbox"])
        if name is None:
            unused.setdefault(STRAY, []).append(where)
        elif width <= 0 or height <= 0:
            unused.setdefault(EMPTY, []).append(f"{where} of {name}")
        else:
            entries[name].boxes.append([x, y, x + width, y + height])
            entries[name].names.append(str(categories[annotation["category_id"]]["name"]))
            entries[name].crowds.append(bool(annotation.get("iscrowd")))
    refuse("file-unreadable", f"data.annotations: {path}", problems, _SHOWN)
    used = {name for entry in entries.values() for name in entry.names}
    return _Annotations(entries, sorted(used), unused)


def _by_id(content: Mapping[str, Any], kind: str, key: str, problems: list[str]) -> dict[Any, Mapping[str, Any]]:
    """The entries of `images` or `categories` by their id."""
    found: dict[Any, Mapping[str, Any]] = {}
    for number, entry in enumerate(content[kind]):
        lacks = [each for each in ("id", key) if not isinstance(entry, dict) or entry.get(each) is None]
        if lacks:
            problems.append(coded("missing-key", f"{kind}[{number}]: lacks {' and '.join(lacks)}"))
        elif not _is_id(entry["id"]):
            message = f"{kind}[{number}]: id: expected an integer or text, got {entry['id']!r}"
            problems.append(coded("wrong-type", message))
        elif entry["id"] in found:
            problems.append(coded("given-twice", f"{kind}[{number}]: id {entry['id']} is there twice"))
        else:
            found[entry["id"]] = entry
    return found


def _place(file_name: str, problems: list[str]) -> str:
    """A file name within the folder, in one way of writing it."""
    path = PurePosixPath(file_name)
    if path.is_absolute() or ".." in path.parts:
        problems.append(coded("wrong-name", f"images: file_name {file_name!r}: expected a path within data.folder"))
    return path.as_posix()


def _size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = image.get("width"), image.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) and width and height else None


def _problem(annotation: Any, categories: Mapping[Any, Any]) -> str | None:
    if not isinstance(annotation, dict) or not {"image_id", "category_id", "bbox"} <= set(annotation):
        return coded("missing-key", "expected image_id, category_id and bbox")
    for key in ("image_id", "category_id"):
        if not _is_id(annotation[key]):
            return coded("wrong-type", f"{key}: expected an integer or text, got {annotation[key]!r}")
    if annotation["category_id"] not in categories:
        return coded("wrong-name", f"category_id {annotation['category_id']} is no id of categories")
    box = annotation["bbox"]
    if not isinstance(box, list) or len(box) != 4 or not all(is_finite_number(value) for value in box):
        return coded("wrong-type", f"bbox: expected [x, y, width, height] in pixels, got {box}")
    crowd = annotation.get("iscrowd", 0)
    if not isinstance(crowd, int) or crowd not in (0, 1):  # true and false are 1 and 0
        return coded("unknown-choice", f"iscrowd: expected 0, 1, true or false, got {crowd!r}")
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _read(path: Path) -> dict[str, Any]:
    named, expected = f"data.annotations: {path}", "COCO's JSON with the boxes"
    content: dict[str, Any] = read_json(path, named, expected)
    keys = ("images", "annotations", "categories")
    missing = [key for key in keys if not isinstance(content, dict) or not isinstance(content.get(key), list)]
    if missing:
        raise StageError("wrong-file", f"{named} lacks {', '.join(missing)}; expected {expected}")
    return content


def _pixels(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
