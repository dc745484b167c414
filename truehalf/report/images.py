"""Detections over a sample, as an image file: true boxes thin and grey, FP32's blue and solid, the final file's orange
and dashed, so that no meaning hangs on colour only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

BLUE, ORANGE, TRUTH = "#0072b2", "#e69f00", "#d8d8d8"
_WIDTH = 660  # pixels of the file
_DASH, _GAP = 9, 5
Boxes = Sequence[tuple[Sequence[float], str]]  # xyxy in pixels of the sample, and what the box is called


def boxes_over_image(image: np.ndarray, boxes: Mapping[str, Boxes], file: Path) -> None:
    """Draw boxes over a sample.

    Args:
        image: float32 [3, H, W] in 0..1.
        boxes: by whose they are: "truth", "reference" and "candidate".
        file: PNG to write; equal input gives an equal file.
    """
    from PIL import Image, ImageDraw

    height, width = image.shape[1:]
    scale = _WIDTH / width
    pixels = (np.clip(image.transpose(1, 2, 0), 0, 1) * 255).round().astype(np.uint8)
    shown = Image.fromarray(pixels).resize((_WIDTH, max(1, round(height * scale))), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(shown)
    for box, _ in boxes.get("truth", ()):
        draw.rectangle(_placed(box, scale), outline=TRUTH, width=2)
    for box, name in boxes.get("reference", ()):
        x0, y0, x1, y1 = _placed(box, scale)
        draw.rectangle((x0 - 1, y0 - 1, x1 + 1, y1 + 1), outline="white", width=7)
        draw.rectangle((x0, y0, x1, y1), outline=BLUE, width=5)
        _tag(draw, (x0, y0), name, BLUE, above=True)
    for box, name in boxes.get("candidate", ()):
        x0, y0, x1, y1 = _placed(box, scale)
        for side in (((x0, y0), (x1, y0)), ((x1, y0), (x1, y1)), ((x1, y1), (x0, y1)), ((x0, y1), (x0, y0))):
            for start, end in _dashes(*side):
                draw.line((*start, *end), fill="black", width=5)
                draw.line((*start, *end), fill=ORANGE, width=3)
        _tag(draw, (x1, y1), name, ORANGE, above=False)
    shown.save(file, format="PNG")


def _placed(box: Sequence[float], scale: float) -> tuple[float, float, float, float]:
    """Corners in the file, the first one left of and above the second."""
    x0, y0, x1, y1 = (float(value) * scale for value in box)
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _dashes(a: tuple[float, float], b: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    start, way = np.array(a), np.array(b) - np.array(a)
    length = float(np.hypot(*way))
    for at in np.arange(0.0, length, _DASH + _GAP):
        yield tuple(start + way * (at / length)), tuple(start + way * (min(at + _DASH, length) / length))


def _tag(draw: ImageDraw, corner: tuple[float, float], text: str, colour: str, above: bool) -> None:
    """Over the upper left corner of a box (FP32) or under the lower right one; inside the image at its rim."""
    from PIL import ImageFont

    font = ImageFont.load_default(15)
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    wide, high = right - left + 6, bottom - top + 6
    x = corner[0] if above else corner[0] - wide
    y = corner[1] - high if above else corner[1]
    x, y = (
        min(max(value, 0.0), side - size) for value, side, size in zip((x, y), draw.im.size, (wide, high), strict=True)
    )
    draw.rectangle((x, y, x + wide, y + high), fill=colour)
    draw.text((x + 3 - left, y + 3 - top), text, fill="white" if above else "black", font=font)
