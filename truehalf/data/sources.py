"""Sources of samples: image files, arrays, a function of the user's, noise; see coco.py for COCO's annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.data.arrays import ArrayFile
from truehalf.data.images import open_image
from truehalf.data.samples import Arrays, Samples
from truehalf.errors import StageError
from truehalf.user_code import described, imported

if TYPE_CHECKING:
    from PIL import Image


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


def array_files(files: Sequence[ArrayFile], rows: Sequence[int | None], folder: Path | None = None) -> Samples:
    """Take a sample for each entry of axis 0 of the arrays in some files.

    Args:
        rows: of each file the length of axis 0; None: the file is one sample as it stands.
    """
    places: list[tuple[ArrayFile, int | None]] = []
    names: list[str] = []
    for file, count in zip(files, rows, strict=True):
        places += [(file, row) for row in (range(count) if count is not None else [None])]
        names += [file.label] if count in (None, 1) else [f"{file.label}[{row}]" for row in range(count or 0)]

    def load(position: int) -> Arrays:
        file, row = places[position]
        arrays = file.arrays()
        return arrays if row is None else {name: np.array(array[row], order="C") for name, array in arrays.items()}

    return Samples(names, load, [file.path for file, _ in places if file.path is not None], folder)


def noise(names: Sequence[str], seed: Sequence[int], size: tuple[int, int]) -> Samples:
    """Make images of noise, each a function of the seed and its number."""

    def load(position: int) -> LabelledImage:
        rng = np.random.default_rng([*seed, position])
        return LabelledImage.of_array(rng.integers(0, 256, (*size, 3), np.uint8))

    return Samples(names, load)


def function(names: Sequence[str], name: str, root: Path, purpose: str, seed: int) -> Samples:
    """Call module:function of the user's as function(purpose, number, seed) for each sample.

    It returns arrays by input name, without the batch axis; or an image, uint8 [height, width, 3] in RGB; or a tuple
    (image, boxes, labels): boxes float [n, 4], xyxy in pixels of the image, labels int [n], positions among the model's
    classes. The same arguments must give the same sample: stages make each anew.

    Raises:
        StageError: there is no such module or function.
    """
    call = imported("data.function", name, root)

    def load(position: int) -> LabelledImage | Arrays:
        where = f"data.function: sample {names[position]}"
        try:
            made = call(purpose, position, seed)
        except Exception as error:  # whatever the user's code raises
            raise StageError("function-fails", f"{where}: {described(error)}") from error
        return _returned(where, made)

    return Samples(names, load)


def _returned(where: str, made: Any) -> LabelledImage | Arrays:
    """Read what a user's function returned.

    Raises:
        StageError: wrong-return.
    """
    if isinstance(made, Mapping):
        return {str(key): np.asarray(array) for key, array in made.items()}
    image, boxes, labels = made if isinstance(made, tuple) and len(made) == 3 else (made, None, None)
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise StageError(
            "wrong-return",
            f"{where}: expected arrays by input name, or an image as uint8 [height, width, 3], or (image, boxes, "
            f"labels), got {type(made).__name__} {pixels.dtype} {list(pixels.shape)}",
        )
    if boxes is None and labels is None:
        return LabelledImage.of_array(pixels)
    corners, numbers = np.asarray(boxes), np.asarray(labels)
    if not corners.size and not numbers.size:
        corners, numbers = np.zeros((0, 4)), np.zeros(0, np.int64)
    are_alike = numbers.ndim == 1 and corners.shape == (len(numbers), 4) and corners.dtype.kind in "fiu"
    are_alike = are_alike and numbers.dtype.kind in "iu" and bool(np.isfinite(corners).all())
    if not are_alike or (corners[:, 2:] <= corners[:, :2]).any():
        raise StageError(
            "wrong-return",
            f"{where}: expected boxes [n, 4] as x0, y0, x1, y1 with x0 < x1 and y0 < y1, and integer labels [n], got "
            f"boxes {corners.dtype} {list(corners.shape)} and labels {numbers.dtype} {list(numbers.shape)}",
        )
    return LabelledImage.of_array(pixels, corners.astype(np.float32), numbers.astype(np.int64))
