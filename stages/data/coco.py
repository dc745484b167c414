"""Pictures with COCO's annotations: boxes as labels, so that average precision is measured against the truth.

A category of the annotations is the model's class of the same name. Crowds (iscrowd) are no labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conf.schema import Config
from stages.data.images import open_picture, take
from stages.data.picture import Picture
from stages.io import StageError


class CocoPictures(Sequence[Picture]):
    """Annotated pictures, read when asked for.

    Attributes:
        paths: of the pictures.
    """

    def __init__(self, entries: Sequence[tuple[Path, np.ndarray, np.ndarray]], folder: Path) -> None:
        self._entries, self._folder = entries, folder
        self.paths = [path for path, _, _ in entries]

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        path, boxes, labels = self._entries[index]
        return Picture(path.relative_to(self._folder).as_posix(), open_picture(path), boxes, labels)


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> CocoPictures:
    """Annotated pictures `first` to `first + count - 1`, in an order fixed by the seed.

    Raises:
        StageError: when the annotations cannot be read, a category is no class of the model, a picture is not in the
            folder, or there are fewer pictures.
    """
    data = config.data
    assert data.annotations is not None and data.folder is not None, "validated: data.source=coco has both"
    folder = root / data.folder
    content = _read(root / data.annotations)
    classes = config.model.classes
    if classes is None:
        raise StageError("data: coco needs the names of the model's classes, in their order; set model.classes")
    label_of = _labels(content["categories"], classes)
    boxes: dict[int, list[tuple[list[float], int]]] = {entry["id"]: [] for entry in content["images"]}
    for annotation in content["annotations"]:
        if not annotation.get("iscrowd") and annotation["image_id"] in boxes:
            x, y, width, height = annotation["bbox"]
            boxes[annotation["image_id"]].append(([x, y, x + width, y + height], label_of[annotation["category_id"]]))
    images = sorted(content["images"], key=lambda entry: str(entry["file_name"]))
    order = np.random.default_rng(data.seed).permutation(len(images))
    names = take([Path(images[i]["file_name"]) for i in order], first, count, folder, purpose)
    ids = {Path(entry["file_name"]): entry["id"] for entry in images}
    missing = [str(name) for name in names if not (folder / name).is_file()]
    if missing:
        raise StageError(f"data.folder: {folder} lacks {len(missing)} annotated pictures, the first: {missing[0]}")
    return CocoPictures([(folder / name, *_arrays(boxes[ids[name]])) for name in names], folder)


def _arrays(found: Sequence[tuple[list[float], int]]) -> tuple[np.ndarray, np.ndarray]:
    corners = np.array([box for box, _ in found], np.float32).reshape(-1, 4)
    return corners, np.array([label for _, label in found], np.int64)


def _labels(categories: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> dict[int, int]:
    unknown = [str(category["name"]) for category in categories if category["name"] not in classes]
    if unknown:
        raise StageError(
            f"data.annotations: categories {', '.join(unknown[:5])} are no classes of the model; expected names among "
            f"model.classes ({', '.join(classes[:5])}, ...)"
        )
    return {category["id"]: classes.index(category["name"]) for category in categories}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StageError(f"data.annotations: no such file: {path}; expected COCO's JSON with the boxes") from error
    except ValueError as error:
        raise StageError(f"data.annotations: {path} is no JSON ({error})") from error
    missing = [key for key in ("images", "annotations", "categories") if not isinstance(content.get(key), list)]
    if missing:
        raise StageError(f"data.annotations: {path} lacks {', '.join(missing)}; expected COCO's JSON with the boxes")
    assert isinstance(content, dict)
    return content
