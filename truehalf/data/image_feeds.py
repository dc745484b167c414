"""A folder of images, or one image, as inputs of a model: of images, and of their height and width."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.data.images import expected_files, images_under, is_image, unreadable
from truehalf.data.preprocessing import PIXEL_MASK, Preprocessing, beside_images
from truehalf.errors import StageError, refuse
from truehalf.io_spec.proposed import FLOAT_SIZES, NAMED_AS_SIZE
from truehalf.ir.facts import constant_of, fed_inputs, is_op, reached
from truehalf.ir.ops import MOVES

if TYPE_CHECKING:
    import onnx_ir as ir

_DTYPES = {"FLOAT": "float32", "FLOAT16": "float16", "DOUBLE": "float64", "UINT8": "uint8"}
_SHOWN = 20
_AXES = 4
_OF_BYTES = 50  # below 255, and deviations of pixels in 0..255 (ImageNet's are 57 to 59); far above those of 0..1


class ImageFeeds:
    """Images as inputs of a model, `batch` of them a run; may be iterated over again and again.

    Attributes:
        names: of the images, relative to their folder.
        left_out: those that cannot be read, each with the reason.
        preprocessing: as it is applied.
        input: name of the input of images.
    """

    def __init__(
        self, paths: Sequence[Path], folder: Path, inputs: _Inputs, preprocessing: Preprocessing, batch: int
    ) -> None:
        self._paths, self._inputs, self._batch = list(paths), inputs, batch
        self.preprocessing, self.input = preprocessing, str(inputs.images.name)
        self.names = [path.relative_to(folder).as_posix() for path in paths]
        self.left_out: dict[str, str] = {}

    def only(self, positions: Sequence[int], batch: int | None = None) -> ImageFeeds:
        """Those at the given positions of `names`, `batch` of them a run (None: as here)."""
        chosen = copy.copy(self)
        chosen._paths = [self._paths[i] for i in positions]
        chosen.names = [self.names[i] for i in positions]
        chosen._batch = batch or self._batch
        return chosen

    def __len__(self) -> int:
        return -(-len(self._paths) // self._batch)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        assert self._inputs.images.dtype is not None, "checked"
        of_images, size = _DTYPES[self._inputs.images.dtype.name], self.preprocessing.size
        for start in range(0, len(self._paths), self._batch):
            group = [self.preprocessing.read(path, of_images) for path in self._paths[start : start + self._batch]]
            beside = {
                name: np.array([beside_images(name, sides, size or ())] * len(group), dtype)
                for name, (sides, dtype) in self._inputs.beside.items()
            }
            yield {self.input: np.stack(group), **beside}


def load_images(
    source: Path, model: ir.Model, preprocessing: Preprocessing, batch: int, skip_corrupt: bool = False
) -> ImageFeeds:
    """Every image of a folder and below as feeds for a model with one image input, and inputs of the images' size.

    Args:
        source: the folder; or an image, which is a folder of one.
        batch: images in a feed.
        skip_corrupt: use the rest where images cannot be read (see ImageFeeds.left_out), instead of stopping.

    Raises:
        StageError: listing what does not fit the model's input, or every image that cannot be read; no image.
    """
    inputs = _inputs(model)
    preprocessing = _resolved(preprocessing, inputs.images)
    is_file = is_image(source)
    folder, paths = (source.parent, [source]) if is_file else (source, images_under(source))
    if not paths:
        raise StageError("file-missing", f"{folder} holds no image; expected {expected_files()}")
    broken = unreadable(paths)
    if not skip_corrupt:
        what = f"{len(broken)} of {len(paths)} images cannot be read (verify.skip_corrupt=true leaves them out)"
        refuse("file-unreadable", what, list(broken.values()), _SHOWN)
    feeds = ImageFeeds([path for path in paths if path not in broken], folder, inputs, preprocessing, batch)
    if not feeds.names:
        raise StageError(
            "file-unreadable",
            f"{source}: it cannot be read" if is_file else f"{folder}: none of its {len(paths)} images can be read",
        )
    feeds.left_out = {path.relative_to(folder).as_posix(): why for path, why in broken.items()}
    return feeds


@dataclass(frozen=True)
class _Inputs:
    """Inputs of a model that a folder of images feeds.

    Attributes:
        images: four axes.
        beside: by name, sides of one sample and numpy's dtype of inputs that say something of the images that go in:
            their size [N, 2], or which pixels are no padding [N, height, width].
    """

    images: ir.Value
    beside: Mapping[str, tuple[Sequence[object], np.dtype[Any]]]


def inputs_for_images(model: ir.Model) -> list[ir.Value]:
    """The inputs without a default, those of four axes first."""
    return sorted(fed_inputs(model), key=lambda value: value.shape is None or len(value.shape) != _AXES)


def shown_by(value: ir.Value) -> Preprocessing:
    """Layout and range as an input of images shows them, by its channels' axis, its type and the first arithmetic with
    constants: images of 0..255 are bytes, or what is divided by 255 or by deviations of such pixels, or has their means
    subtracted. Other keys are the defaults.
    """
    sides = tuple(value.shape or ())
    is_last = len(sides) == _AXES and sides[3] == 3 != sides[1]
    is_of_bytes = value.dtype is not None and value.dtype.name == "UINT8"
    return Preprocessing(
        layout="NHWC" if is_last else "NCHW", range=(0, 255) if is_of_bytes or _takes_bytes(value) else (0, 1)
    )


def shown_in(model: ir.Model) -> Preprocessing:
    """Of the input that images feed; the defaults of a model without inputs."""
    return next(map(shown_by, inputs_for_images(model)), Preprocessing())


def _takes_bytes(value: ir.Value) -> bool:
    def moved(value: ir.Value) -> list[ir.Value]:
        return [result for node in value.consumers() if is_op(node, *MOVES, "Cast") for result in node.outputs]

    readers = ((node, each) for each in reached([value], moved) for node in each.consumers())
    return any(_is_of_bytes(node, each, read) for node, each in readers for read in node.inputs)


def _is_of_bytes(node: ir.Node, pixels: ir.Value, read: ir.Value | None) -> bool:
    """Whether a node scales or shifts pixels of 0..255 by what else it reads."""
    number = constant_of(read)
    if number is None or not number.size or node.domain != "":
        return False
    match node.op_type:
        case "Div":
            return node.inputs[0] is pixels and bool(np.abs(number).min() > _OF_BYTES)
        case "Mul":
            return bool(0 < np.abs(number).max() * _OF_BYTES < 1)
        case "Sub":
            return node.inputs[0] is pixels and bool(np.abs(number).max() > 1)
    return False


def _inputs(model: ir.Model) -> _Inputs:
    needed = inputs_for_images(model)
    beside = {
        str(value.name): (tuple(value.shape)[1:], value.dtype.numpy())
        for value in needed
        if value.dtype is not None and value.shape is not None and (_is_size(value) or _is_mask(value))
    }
    images = [value for value in needed if value.name not in beside]
    if len(images) != 1:
        names = ", ".join(repr(value.name) for value in needed) or "none"
        message = (
            "a folder of images feeds a model with one input of images, integers [N, 2] named as a size, and a "
            f"{PIXEL_MASK} [N, height, width]; this one has {names}; give arrays (.npz)"
        )
        raise StageError("not-supported", message)
    value = images[0]
    if value.dtype is None or value.dtype.name not in _DTYPES:
        known = ", ".join(_DTYPES.values())
        message = f"input {value.name!r}: expected images in {known}, got {value.dtype}; give arrays (.npz)"
        raise StageError("wrong-dtype", message)
    if value.shape is not None and len(value.shape) != 4:
        message = f"input {value.name!r}: expected 4 axes for images, got {len(value.shape)}; give arrays (.npz)"
        raise StageError("wrong-shape", message)
    return _Inputs(value, beside)


def _is_size(value: ir.Value) -> bool:
    is_pair = value.shape is not None and len(value.shape) == 2 and value.shape[1] == 2
    name, dtype = str(value.name), value.dtype.name if value.dtype is not None else ""
    is_of_integers = dtype in ("INT64", "INT32") and NAMED_AS_SIZE.search(name) is not None
    return is_pair and (is_of_integers or (dtype == "FLOAT" and name in FLOAT_SIZES))


def _is_mask(value: ir.Value) -> bool:
    is_counted = value.dtype is not None and value.dtype.name in ("INT64", "INT32", "BOOL", "FLOAT")
    return value.name == PIXEL_MASK and is_counted and len(value.shape or ()) == _AXES - 1


def _remedy(preprocessing: Preprocessing, value: ir.Value, what: str) -> str:
    axis, other = (3, "NHWC") if preprocessing.layout == "NCHW" else (1, "NCHW")
    if what != "height" and value.shape is not None and value.shape[axis] == 3:
        return f"; it is of layout {other}: say that (--layout)"
    return "; images have three: give arrays (.npz)" if what == "channels" else "; give that size"


def _resolved(preprocessing: Preprocessing, value: ir.Value) -> Preprocessing:
    """The preprocessing with its size, checked against the input."""
    axes = (1, 2, 3) if preprocessing.layout == "NHWC" else (2, 3, 1)
    shape = [value.shape[axis] if value.shape is not None else None for axis in axes]
    height, width, channels = (side if isinstance(side, int) else None for side in shape)
    if preprocessing.size is None and (height is None or width is None):
        raise StageError(
            "needs-value",
            f"preprocessing: size is missing, and input {value.name!r} does not fix it; give size: [height, width]",
        )
    size = preprocessing.size or [int(height or 0), int(width or 0)]
    for what, wanted, got in (("height", height, size[0]), ("width", width, size[1]), ("channels", channels, 3)):
        if wanted is not None and wanted != got:
            raise StageError(
                "wrong-shape",
                f"preprocessing, layout {preprocessing.layout}: input {value.name!r} wants {what} {wanted}, got {got}"
                f"{_remedy(preprocessing, value, what)}",
            )
    if value.dtype is not None and value.dtype.name == "UINT8":
        plain = Preprocessing()
        if preprocessing.range != (0, 255) or (preprocessing.mean, preprocessing.std) != (plain.mean, plain.std):
            message = f"preprocessing: input {value.name!r} is uint8; expected range [0, 255], no mean, no std"
            raise StageError("in-conflict", message)
    return replace(preprocessing, size=size)
