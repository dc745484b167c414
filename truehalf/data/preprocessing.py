"""From an image to the array that a model wants, as a few keys declare it.

    size      [height, width] in pixels         default: that of the model's input, where it is fixed
    resize    stretch | letterbox               stretch: the aspect is given up; letterbox: kept, centred on grey 114
    channels  RGB | BGR
    range     [0, 1] | [0, 255]                 of a pixel before mean and std
    mean, std three numbers each                (pixel - mean) / std, in the order of `channels`; default: 0 and 1
    layout    NCHW | NHWC
    resample  bilinear | bicubic | lanczos | box | hamming | nearest

Resampling is Pillow's, all but nearest with antialiasing, and EXIF's orientation is honoured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import Channels, Layout, Resample, Resize
from truehalf.config.typed import plain, typed
from truehalf.errors import StageError, refuse
from truehalf.files import read_yaml
from truehalf.io_spec.inputs import PIXEL_MASK
from truehalf.io_spec.spec import InputSpec
from truehalf.json_values import JsonObject, is_finite_number

if TYPE_CHECKING:
    from PIL import Image

_PADDING = 114  # of a letterbox, of 255
_SCALE = "scale_factor"
_WIDTH_FIRST = "orig_target_sizes"  # as RT-DETR, RT-DETRv2 and D-FINE name it in their exports, and feed it


@dataclass(frozen=True)
class Preprocessing:
    """See the top of this module."""

    size: list[int] | None = None
    mean: tuple[int | float, ...] = (0.0, 0.0, 0.0)
    std: tuple[int | float, ...] = (1.0, 1.0, 1.0)
    channels: Channels = Channels.rgb
    range: tuple[int | float, ...] = (0, 1)
    resize: Resize = Resize.stretch
    layout: Layout = Layout.nchw
    resample: Resample = Resample.bilinear

    def problems(self) -> Iterator[str]:
        """Yield an error line for each value that cannot be as declared (truehalf.config.typed)."""
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            yield coded("wrong-shape", f"size: expected [height, width] in pixels, got {self.size}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != 3 or not all(map(is_finite_number, values)):
                yield coded("wrong-type", f"{name}: expected three numbers, got {list(values)}")
        if not all(self.std):
            yield coded("out-of-range", f"std: expected no zero, got {list(self.std)}")
        if self.range not in ((0, 1), (0, 255)):
            yield coded("unknown-choice", f"range: expected [0, 1] or [0, 255], got {list(self.range)}")

    def as_dict(self) -> JsonObject:
        content: JsonObject = plain(self)
        return content

    def declared(self) -> JsonObject:
        """As `declared_by` reads it of an input in an I/O spec; beside size, range and layout what is no default."""
        default, values = Preprocessing().as_dict(), self.as_dict()
        told: dict[str, Any] = {k: v for k, v in values.items() if k in ("range", "layout") or v != default[k]}
        normalization = {key: told.pop(key) for key in ("mean", "std") if key in told}
        return told | ({"normalization": normalization} if normalization else {})

    def apply(self, image: Image.Image, dtype: str = "float32") -> np.ndarray:
        """An image in RGB as one sample, [3, height, width] or, by `layout`, [height, width, 3]: without batch axis."""
        return self.of_pixels(self._resized(image), dtype)

    def of_pixels(self, pixels: np.ndarray, dtype: str = "float32") -> np.ndarray:
        """Pixels [height, width, 3], RGB in 0..255, as one sample."""
        if self.channels == "BGR":
            pixels = pixels[..., ::-1]
        if self.range == (0, 1):
            pixels = pixels / np.float32(255)
        values = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        if self.layout == "NCHW":
            values = values.transpose(2, 0, 1)
        if dtype == "uint8":
            values = np.clip(np.rint(values), 0, 255)
        return np.ascontiguousarray(values, dtype)

    def shown(self, values: np.ndarray) -> np.ndarray:
        """What `apply` has made, as an image again: float32 [3, height, width], RGB in 0..1."""
        pixels = values if self.layout == "NHWC" else values.transpose(1, 2, 0)
        pixels = pixels * np.array(self.std, np.float32) + np.array(self.mean, np.float32)
        rgb = pixels[..., ::-1] if self.channels == "BGR" else pixels
        return np.asarray(rgb.transpose(2, 0, 1) / np.float32(self.range[1]), np.float32)

    def boxes(self, boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Boxes of an image as boxes of the sample that `apply` makes of it.

        Args:
            boxes: [n, 4] xyxy in pixels of the image.
            size: width and height of the image.
        """
        (width, height), (left, top) = self._place(size)
        scale = np.array([width / size[0], height / size[1]] * 2, np.float32)
        return np.asarray(boxes * scale + np.array([left, top] * 2, np.float32), np.float32)

    def _place(self, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Width and height of an image once resized, and where its left upper corner is in the sample."""
        assert self.size is not None, "resolved"
        height, width = self.size
        if self.resize == "stretch":
            return (width, height), (0, 0)
        scale = min(width / size[0], height / size[1])
        small = (max(1, round(size[0] * scale)), max(1, round(size[1] * scale)))
        return small, ((width - small[0]) // 2, (height - small[1]) // 2)

    def _resized(self, image: Image.Image) -> np.ndarray:
        """float32 [height, width, 3], 0..255."""
        from PIL import Image

        assert self.size is not None, "resolved"
        height, width = self.size
        box, (left, top) = self._place(image.size)
        small = np.asarray(image.resize(box, Image.Resampling[self.resample.upper()]), np.float32)
        if small.shape[:2] == (height, width):
            return small
        canvas = np.full((height, width, 3), _PADDING, np.float32)
        canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
        return canvas


def beside_images(name: str, sides: Sequence[object], size: Sequence[int]) -> np.ndarray:
    """What an input that says something of the image is fed beside it, int64 [2] or [height, width], for one image.

    That is height and width of what goes in; for the input of RT-DETR and D-FINE, which scale boxes by it, width and
    height; PaddleDetection's, which divides boxes by what the picture was scaled by, 1 and 1; and ones for the mask of
    pixels that are no padding (DETR in transformers).

    Args:
        sides: of one sample; of a mask those that are no numbers are the image's.
        size: height and width of the image that goes in.
    """
    last = name.rpartition("/")[2]
    if last == PIXEL_MASK:
        return np.ones([got if isinstance(got, int) else side for got, side in zip(sides, size, strict=True)], np.int64)
    return np.array([1, 1] if last == _SCALE else list(size)[:: -1 if last == _WIDTH_FIRST else 1])


def preprocessing_of(source: JsonObject | Path | str, base: Preprocessing | None = None) -> Preprocessing:
    """A preprocessing from a mapping or from a YAML or JSON file that holds one.

    Args:
        base: what holds of keys that it leaves out; None: the defaults.

    Raises:
        StageError: listing every problem: unknown keys, values that are none of those at the top of this module.
    """
    content: Any = source
    named = "preprocessing"
    if isinstance(source, (str, Path)):
        named = f"preprocessing {source}"
        content = read_yaml(Path(source), named)
    if not isinstance(content, Mapping):
        keys = ", ".join(Preprocessing.__dataclass_fields__)
        raise StageError("wrong-type", f"{named}: expected a mapping of {keys}, got {type(content).__name__}")
    declared = {key: value for key, value in plain(content).items() if value is not None}
    problems: list[str] = []
    made: Preprocessing = typed(Preprocessing, plain(base or Preprocessing()) | declared, "", problems)
    refuse("wrong-preprocessing", named, problems)
    return made


def declared_by(entry: InputSpec) -> Preprocessing | None:
    """What the entry of an input in an I/O spec says of it: size, layout, channels, range, resize, resample and
    normalization (unless it takes place inside the graph); None where it says nothing of pixels.
    """
    values = dict(entry.pixels)
    if not {"channels", "range", "normalization"} & set(values):
        return None
    values.pop("normalization", None)
    if entry.normalization is not None and not entry.is_normalized_inside:
        values |= {"mean": plain(entry.normalization.mean), "std": plain(entry.normalization.std)}
    return preprocessing_of(values)
