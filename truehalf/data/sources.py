"""Sources of samples: a folder of images, arrays in .npz files, a function of the user's, noise.

COCO's annotations and digit scenes are in modules of their own. A source knows the names of its samples and loads one
at a time; truehalf.data.fitting makes them inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.arrays import ArrayFile, NpzFiles
from truehalf.data.images import expected_files, is_image, open_image
from truehalf.data.samples import Arrays, same_content
from truehalf.errors import StageError
from truehalf.user_code import described, imported

if TYPE_CHECKING:
    from PIL import Image

PURPOSES = ("trace", "calibration", "verification")
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
    def of_array(
        cls, pixels: np.ndarray, boxes: np.ndarray | None = None, labels: np.ndarray | None = None
    ) -> LabelledImage:
        """Make one of uint8 [height, width, 3], RGB."""
        from PIL import Image

        return cls(Image.fromarray(pixels), boxes, labels)


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
        holds: place and content for messages, such as "data.folder: images holds 60 different images".
    """

    names: Sequence[str]
    load: Callable[[int], Item]
    paths: Sequence[Path] = ()
    folder: Path | None = None
    categories: Sequence[str] | None = None
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    holds: str = ""

    def only(self, positions: Sequence[int]) -> Source:
        """Samples at some positions, in this order."""
        names, load = [self.names[i] for i in positions], self.load
        paths = [self.paths[i] for i in positions] if self.paths else ()
        return replace(self, names=names, load=lambda position: load(positions[position]), paths=paths)


# --- images -----------------------------------------------------------------------------------------------------------


def images_under(folder: Path) -> list[Path]:
    """Image files in a folder and below, linked folders included, by name; none whose name begins with a dot."""
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


def image_files(paths: Sequence[Path], folder: Path, unused: Mapping[str, Sequence[str]] | None = None) -> Source:
    """Source of image files, as they are listed."""
    names = [path.relative_to(folder).as_posix() for path in paths]
    return Source(
        names,
        lambda position: LabelledImage(open_image(paths[position])),
        paths,
        folder,
        left_out=unused or {},
        holds=f"data.folder: {folder} holds {len(paths)} different images",
    )


def left_out(same: Mapping[Path, Path], folder: Path) -> dict[str, list[str]]:
    """Files of the same content as another, in words, by the reason; empty without any."""
    names = sorted(
        f"{path.relative_to(folder).as_posix()} (as {other.relative_to(folder).as_posix()})"
        for path, other in same.items()
    )
    return {SAME: names} if names else {}


def images(config: Config, root: Path) -> Source:
    """Images of `data.folder`, without labels.

    Raises:
        StageError: the folder does not exist or holds no image.
    """
    assert config.data.folder is not None, "validated: data.source=images has a folder"
    folder = root / config.data.folder
    if not folder.is_dir():
        raise StageError("file-missing", f"data.folder: no such folder: {folder}")
    paths = images_under(folder)
    if not paths:
        raise StageError("file-missing", f"data.folder: {folder} holds no image; expected {expected_files()}")
    same = same_content(paths)
    return image_files([path for path in paths if path not in same], folder, left_out(same, folder))


# --- arrays -----------------------------------------------------------------------------------------------------------


def npz(config: Config, root: Path) -> Source:
    """Rows of the arrays in `data.file`, an .npz file or a folder of them: a sample for each entry of axis 0.

    Raises:
        StageError: a file cannot be read, or arrays in it differ in their first axis.
    """
    files = npz_files(config, root)
    place = root / str(config.data.file)
    folder = place if place.is_dir() else place.parent
    same = same_content([file.path for file in files if file.path is not None])
    rows = [(file, row) for file in files if file.path not in same for row in range(_length(file))]

    def load(position: int) -> Arrays:
        file, row = rows[position]
        return {name: np.array(array[row], order="C") for name, array in file.arrays().items()}

    return Source(
        [f"{file.label}[{row}]" for file, row in rows],
        load,
        [file.path for file, _ in rows if file.path is not None],
        folder,
        left_out=left_out(same, folder),
        holds=f"data.file: {place} holds {len(rows)} different samples",
    )


def npz_files(config: Config, root: Path) -> list[ArrayFile]:
    """Files of `data.file`, with the headers of their arrays.

    Raises:
        StageError: there is none, or one cannot be read.
    """
    assert config.data.file is not None, "validated: data.source=npz has a file"
    place = root / config.data.file
    paths = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    if not paths:
        message = f"data.file: {place} holds no .npz file; expected an .npz file, or a folder of them"
        raise StageError("file-missing", message)
    files = NpzFiles()
    try:
        return [files.opened(path) for path in paths]
    except StageError as error:
        raise StageError(error.code, f"data.file: {error.text}") from error


def _length(file: ArrayFile) -> int:
    lengths = {name: header.shape[0] if header.shape else None for name, header in file.headers.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        message = f"data.file: {file.path}: expected arrays with as many samples on axis 0, got {lengths}"
        raise StageError("wrong-shape", message)
    return next(iter(lengths.values())) or 0


# --- made, of which each purpose has its own --------------------------------------------------------------------------


def noise(config: Config, root: Path, purpose: int, count: int) -> Source:
    """Images of noise, a function of (seed, purpose, number), in the size of the model; where the model's source says
    that, 256 x 256, resized.
    """
    height, width = (side or 256 for side in config.model.image_size)

    def load(position: int) -> LabelledImage:
        rng = np.random.default_rng([config.data.seed, purpose, position])
        return LabelledImage.of_array(rng.integers(0, 256, (height, width, 3), np.uint8))

    return Source([f"random/{PURPOSES[purpose]}/{number}" for number in range(count)], load)


def function(config: Config, root: Path, purpose: int, count: int) -> Source:
    """Samples of `data.function`: module:function, called as function(purpose, number, seed).

    It returns arrays by input name, without the batch axis; or an image, uint8 [height, width, 3] in RGB; or a tuple
    (image, boxes, labels): boxes float [n, 4], xyxy in pixels of the image, labels int [n], positions among the model's
    classes. The same arguments must give the same sample: stages make each anew.

    Raises:
        StageError: there is no such module or function.
    """
    assert config.data.function is not None, "validated: data.source=function has one"
    call = imported("data.function", config.data.function, root)
    names = [f"{config.data.function}/{PURPOSES[purpose]}/{number}" for number in range(count)]

    def load(position: int) -> Item:
        where = f"data.function: sample {names[position]}"
        try:
            made = call(PURPOSES[purpose], position, config.data.seed)
        except Exception as error:  # whatever the user's code raises
            raise StageError("function-fails", f"{where}: {described(error)}") from error
        return _returned(where, made)

    return Source(names, load)


def _returned(where: str, made: Any) -> Item:
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
    if boxes is None or labels is None:
        raise StageError("needs-value", f"{where}: expected boxes and labels, or neither, got one of them")
    corners, numbers = np.asarray(boxes), np.asarray(labels)
    if not corners.size and not numbers.size:
        return LabelledImage.of_array(pixels, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or corners.shape != (len(numbers), 4):
        raise StageError(
            "wrong-return",
            f"{where}: expected boxes [n, 4] and integer labels [n], got boxes {corners.dtype} {list(corners.shape)} "
            f"and labels {numbers.dtype} {list(numbers.shape)}",
        )
    if not np.isfinite(corners).all() or (corners[:, 2:] <= corners[:, :2]).any():
        message = f"{where}: expected boxes as x0, y0, x1, y1 with x0 < x1 and y0 < y1"
        raise StageError("wrong-return", message)
    return LabelledImage.of_array(pixels, corners.astype(np.float32), numbers.astype(np.int64))
