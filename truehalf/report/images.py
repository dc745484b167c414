"""Detections of the FP32 model and of the final file over a sample, side by side, as SVG with the image inside: true
boxes thin and grey, FP32's blue and solid, the final file's orange and dashed, those that only one side has in red.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from truehalf.report.svg import escaped, svg, text_at

BLUE, ORANGE, TRUTH, ALONE = "#0072b2", "#e69f00", "#d8d8d8", "#e0483a"
_ALONE_GROUND = "#b3261a"  # of white text
Taken = list[tuple[float, float, float]]  # left and upper edge of labels, and their width
Box = tuple[Sequence[float], str, float | None]  # xyxy in pixels of the sample, its class, its score
_SIDE, _GAP, _FONT, _CHARACTER = 250, 8, 13, 7.4
_LARGEST, _LOSSLESS = 500, 256  # pixels of the image's width inside; up to here it is a PNG
_SAME = 0.5  # IoU


def side_by_side(image: np.ndarray, boxes: Mapping[str, Sequence[Box]], name: str) -> str:
    """The drawing; equal input gives equal text.

    Args:
        image: float32 [3, H, W] in 0..1.
        boxes: by whose they are: "truth", "reference" and "candidate".
        name: of the sample; also that of the image in the document, which has one of each name.
    """
    high = max(1, round(_SIDE * image.shape[1] / image.shape[2]))
    scale, at = _SIDE / image.shape[2], f"image-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    shared = f'<defs><image id="{at}" width="{_SIDE}" height="{high}" href="{_encoded(image)}"/></defs>'
    parts = [shared]
    for x, side, other in ((0, "reference", "candidate"), (_SIDE + _GAP, "candidate", "reference")):
        found = [*_truth(boxes.get("truth", ()), scale), *_found(side, boxes, other, scale, high)]
        parts.append(f'<g transform="translate({x} 0)"><use href="#{at}"/>{"".join(found)}</g>')
    return svg(2 * _SIDE + _GAP, high, parts, f"{name}: FP32 model, final file")


def _encoded(image: np.ndarray) -> str:
    from PIL import Image

    pixels = (np.clip(image.transpose(1, 2, 0), 0, 1) * 255).round().astype(np.uint8)
    shown, file = Image.fromarray(pixels), io.BytesIO()
    if shown.width > _LARGEST:
        shown = shown.resize((_LARGEST, max(1, round(shown.height * _LARGEST / shown.width))), Image.Resampling.LANCZOS)
    kind = "png" if shown.width <= _LOSSLESS else "jpeg"
    shown.save(file, format=kind, **({"optimize": True} if kind == "png" else {"quality": 85}))
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _truth(boxes: Sequence[Box], scale: float) -> Iterator[str]:
    for box, _, _ in boxes:
        yield f'<rect {_placed(box, scale)} fill="none" stroke="{TRUTH}" stroke-width="1"/>'


def _found(side: str, boxes: Mapping[str, Sequence[Box]], other: str, scale: float, high: int) -> Iterator[str]:
    taken: Taken = []
    labels: list[str] = []  # above all boxes
    own, dashes = (BLUE, "") if side == "reference" else (ORANGE, ' stroke-dasharray="6 3"')
    for box, kind, score in boxes.get(side, ()):
        alone = not any(kind == name and _iou(box, each) >= _SAME for each, name, _ in boxes.get(other, ()))
        colour, place = ALONE if alone else own, _placed(box, scale)
        yield f'<rect {place} fill="none" stroke="#fff" stroke-opacity=".85" stroke-width="4.5"/>'
        yield f'<rect {place} fill="none" stroke="{colour}" stroke-width="2.6"{dashes}/>'
        label = kind if score is None else f"{kind} {score:.2f}"
        labels.append(_label(label, _edges(box, scale)[:2], colour, high, taken))
    yield from labels


def _label(label: str, corner: tuple[float, float], colour: str, high: int, taken: Taken) -> str:
    """Above the upper left corner of its box, where no earlier label is."""
    wide, tall = len(label) * _CHARACTER + 6, _FONT + 4
    x = min(max(corner[0], 0.0), max(_SIDE - wide, 0.0))
    y = min(max(corner[1] - tall, 0.0), max(high - tall, 0.0))
    while any(abs(y - b) < tall and x < a + w and a < x + wide for a, b, w in taken) and y + 2 * tall <= high:
        y += tall
    taken.append((x, y, wide))
    ink, fill = "#1b2430" if colour == ORANGE else "#fff", _ALONE_GROUND if colour == ALONE else colour
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall}" fill="{fill}"/>'
    return box + text_at(x + 3, y + _FONT, escaped(label), "start", f' fill="{ink}" font-size="{_FONT}"')


def _edges(box: Sequence[float], scale: float) -> tuple[float, float, float, float]:
    """Left, upper, right and lower edge in the drawing."""
    x0, y0, x1, y1 = (float(value) * scale for value in box)
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _placed(box: Sequence[float], scale: float) -> str:
    left, upper, right, lower = _edges(box, scale)
    return f'x="{left:.1f}" y="{upper:.1f}" width="{right - left:.1f}" height="{lower - upper:.1f}"'


def _iou(a: Sequence[float], b: Sequence[float]) -> float:
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    areas = sum(abs((box[2] - box[0]) * (box[3] - box[1])) for box in (a, b))
    return width * height / max(areas - width * height, 1e-9)
