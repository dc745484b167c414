"""Sources of samples: image files, arrays, a function of the user's, noise; see coco.py for COCO's annotations.

A source knows the names of its samples and loads one at a time; truehalf.data.fitting makes them inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from truehalf.data.arrays import ArrayFile
from truehalf.data.images import open_image
from truehalf.data.samples import Arrays, same_content
from truehalf.errors import StageError
from truehalf.user_code import described, imported

if TYPE_CHECKING:
    from PIL import Image

SAME = "byte for byte the same as another file, which is used"


@dataclass(frozen=True)
class LabelledImage:
    """An image with its labels.

    Attributes:
        image: RGB, of any size.
        boxes: float32 [n, 4] xyxy in pixels of the image, or None.
        labels: int64 [n], positions in `Source.categories`, or the model's classes; or None.
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


Item: TypeAlias = LabelledImage | Arrays


@dataclass(frozen=True)
class Source:
    """Samples as data has them.

    Attributes:
        names: of the samples, in the order of their files.
        load: reads or makes the sample at a position: an image, or arrays by input name without the batch axis.
        paths: file of each; empty where samples are made.
        folder: that paths are reported relative to.
        categories: names that labels are positions in; None: labels are the model's classes.
        left_out: names of what the data holds and nothing uses, by reason.
    """

    names: Sequence[str]
    load: Callable[[int], Item]
    paths: Sequence[Path] = ()
    folder: Path | None = None
    categories: Sequence[str] | None = None
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def only(self, positions: Sequence[int]) -> Source:
        """Select samples at some positions, in this order."""
        names, load = [self.names[i] for i in positions], self.load
        paths = [self.paths[i] for i in positions] if self.paths else ()
        return replace(self, names=names, load=lambda position: load(positions[position]), paths=paths)

    def place(self, path: Path) -> str:
        """A path as reports show it: relative to the folder, where it lies there."""
        inside = self.folder is not None and path.is_relative_to(self.folder)
        return path.relative_to(self.folder).as_posix() if inside and self.folder is not None else path.name

    def distinct(self) -> Source:
        """Leave out samples of each file that holds the same bytes as an earlier one."""
        same = same_content(self.paths)
        if not same:
            return self
        names = sorted(f"{self.place(path)} (as {self.place(earlier)})" for path, earlier in same.items())
        kept = self.only([position for position, path in enumerate(self.paths) if path not in same])
        return replace(kept, left_out={**self.left_out, SAME: names})


def image_files(paths: Sequence[Path], folder: Path) -> Source:
    """Name image files by their place in a folder."""
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Source(names, lambda position: LabelledImage(open_image(paths[position])), paths, folder)


def array_files(files: Sequence[ArrayFile], rows: Sequence[int | None], folder: Path | None = None) -> Source:
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

    return Source(names, load, [file.path for file, _ in places if file.path is not None], folder)


def noise(names: Sequence[str], seed: Sequence[int], size: tuple[int, int]) -> Source:
    """Make images of noise, each a function of the seed and its number."""

    def load(position: int) -> LabelledImage:
        rng = np.random.default_rng([*seed, position])
        return LabelledImage.of_array(rng.integers(0, 256, (*size, 3), np.uint8))

    return Source(names, load)


def function(names: Sequence[str], name: str, root: Path, purpose: str, seed: int) -> Source:
    """Call module:function of the user's as function(purpose, number, seed) for each sample.

    It returns arrays by input name, without the batch axis; or an image, uint8 [height, width, 3] in RGB; or a tuple
    (image, boxes, labels): boxes float [n, 4], xyxy in pixels of the image, labels int [n], positions among the model's
    classes. The same arguments must give the same sample: stages make each anew.

    Raises:
        StageError: there is no such module or function.
    """
    call = imported("data.function", name, root)

    def load(position: int) -> Item:
        where = f"data.function: sample {names[position]}"
        try:
            made = call(purpose, position, seed)
        except Exception as error:  # whatever the user's code raises
            raise StageError("function-fails", f"{where}: {described(error)}") from error
        return _returned(where, made)

    return Source(names, load)


def _returned(where: str, made: Any) -> Item:
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
    fits = numbers.ndim == 1 and numbers.dtype.kind in "iu" and corners.shape == (len(numbers), 4)
    fits = fits and corners.dtype.kind in "fiu" and bool(np.isfinite(corners).all())
    if not fits or (corners[:, 2:] <= corners[:, :2]).any():
        raise StageError(
            "wrong-return",
            f"{where}: expected boxes [n, 4] as x0, y0, x1, y1 with x0 < x1 and y0 < y1, and integer labels [n], got "
            f"boxes {corners.dtype} {list(corners.shape)} and labels {numbers.dtype} {list(numbers.shape)}",
        )
    return LabelledImage.of_array(pixels, corners.astype(np.float32), numbers.astype(np.int64))
