"""Digit scenes: real handwritten digits pasted on real photographs, with exact boxes.

Everything comes from data that installed packages bundle, so nothing is downloaded: the 1797 handwritten digits of
scikit-learn (8x8 grey) and photographs of scikit-learn and scikit-image. A scene is a pure function of
(seed, split, index): the same three numbers give the same bytes on every machine with the same package versions.

The digits are split by sample (four fifths train, one fifth validation), so that no handwriting is seen in both.
`sample` and `large_sample` serve a run: data=function data.function=examples.digits.scenes:sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

SPLITS = ("train", "val")

_SPLIT_SEED = 20260101  # of the digit split only; independent of the scene seed, so that no seed can leak samples
_TRAIN_SHARE = 0.8
_PHOTOGRAPHS = (
    *("sklearn/datasets/images/china.jpg", "sklearn/datasets/images/flower.jpg"),
    *("skimage/data/astronaut.png", "skimage/data/brick.png", "skimage/data/camera.png", "skimage/data/chelsea.png"),
    *("skimage/data/coffee.png", "skimage/data/grass.png", "skimage/data/gravel.png"),
    *("skimage/data/hubble_deep_field.jpg", "skimage/data/moon.png", "skimage/data/rocket.jpg"),
)
_PACKAGES = {"sklearn": "scikit-learn", "skimage": "scikit-image"}
_MAX_DIGITS = 6
_SIDE_RANGE = (18.0, 56.0)  # pixels at 128x128, scaled with the scene
_INK = 0.35  # opacity from which a pixel counts as digit: boxes are tight around it
_MIN_CONTRAST = 70.0  # grey levels between a digit's colour and what lies under it
_PLACEMENT_TRIES = 12
_CALIBRATION_START = 1_000_000  # of the training handwriting; trace takes scenes before it


@dataclass(frozen=True)
class Scene:
    """One image with its labels.

    Attributes:
        image: uint8 [size, size, 3], RGB.
        boxes: float32 [n, 4], xyxy in pixels, tight around the ink.
        labels: int64 [n], 0 to 9.
    """

    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray


def scene(index: int, split: str, size: int = 128, seed: int = 0) -> Scene:
    """Make scene number `index` of a split.

    Args:
        index: 0 or more; there is no last one.
        split: "train" or "val": whose handwriting is used.
        size: side of the square image in pixels, 32 or more.
        seed: another seed is another set of scenes over the same split of the handwriting.

    Raises:
        ValueError: on an unknown split, a negative index or a size below 32.
    """
    if split not in SPLITS:
        raise ValueError(f"scene: unknown split {split!r}, expected one of {SPLITS}")
    if index < 0 or size < 32:
        raise ValueError(f"scene: expected index >= 0 and size >= 32, got index {index} and size {size}")
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    canvas = _background(rng, size)
    images, digit_labels = _handwriting(split)
    boxes: list[tuple[float, float, float, float]] = []
    labels: list[int] = []
    for _ in range(int(rng.integers(0, _MAX_DIGITS + 1))):
        which = int(rng.integers(len(images)))
        alpha = _stamp(rng, images[which], size)
        place = _free_place(rng, alpha, boxes, size)
        if place is None:
            continue
        top, left, box = place
        _paste(rng, canvas, alpha, top, left)
        boxes.append(box)
        labels.append(int(digit_labels[which]))
    return Scene(
        image=np.clip(canvas + 0.5, 0, 255).astype(np.uint8),
        boxes=np.array(boxes, np.float32).reshape(-1, 4),
        labels=np.array(labels, np.int64),
    )


@lru_cache(maxsize=2)
def _handwriting(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Digits of a split: float32 [n, 8, 8] in 0..1, and int labels [n]."""
    digits = np.loadtxt(_bundled("sklearn/datasets/data/digits.csv.gz"), delimiter=",")  # levels 0 to 16, the digit
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(digits))
    cut = int(len(order) * _TRAIN_SHARE)
    chosen = digits[order[:cut] if split == "train" else order[cut:]]
    return (chosen[:, :-1].reshape(-1, 8, 8) / 16.0).astype(np.float32), chosen[:, -1].astype(int)


def _bundled(file: str) -> Path:
    """A data file of an installed package, which takes a second to import."""
    return Path(str(distribution(_PACKAGES[file.partition("/")[0]]).locate_file(file)))


@lru_cache(maxsize=1)
def _photographs() -> tuple[np.ndarray, ...]:
    """Photographs as uint8 [h, w, 3], in a fixed order."""
    from PIL import Image

    images = [np.asarray(Image.open(_bundled(file))) for file in _PHOTOGRAPHS]
    return tuple(p if p.ndim == 3 else np.repeat(p[:, :, None], 3, axis=2) for p in images)


def _background(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random crop of a random photograph as float32 [size, size, 3], 0..255."""
    from PIL import Image

    photo = _photographs()[int(rng.integers(len(_photographs())))]
    side = int(min(photo.shape[0], photo.shape[1], size * rng.uniform(1.0, 2.5)))
    top = int(rng.integers(photo.shape[0] - side + 1))
    left = int(rng.integers(photo.shape[1] - side + 1))
    crop = photo[top : top + side, left : left + side]
    if rng.random() < 0.5:
        crop = crop[:, ::-1]
    resized = Image.fromarray(np.ascontiguousarray(crop)).resize((size, size), Image.Resampling.BILINEAR)
    background: np.ndarray = np.asarray(resized, np.float32).copy()
    return background


def _stamp(rng: np.random.Generator, digit: np.ndarray, size: int) -> np.ndarray:
    """The digit, enlarged and slightly turned, as opacity: float32 [h, w] in 0..1, cropped tight around the ink."""
    from PIL import Image

    low, high = (np.log(side * size / 128.0) for side in _SIDE_RANGE)
    side = float(np.exp(rng.uniform(low, high)))
    aspect = float(np.exp(rng.uniform(-0.2, 0.2)))
    width, height = max(8, round(side * aspect)), max(8, round(side / aspect))
    padded = Image.fromarray(np.pad(digit, 1))
    # 10 cells stand for 8: the empty border keeps bicubic overshoot and the rotation inside the stamp.
    big = padded.resize((round(width * 1.25), round(height * 1.25)), Image.Resampling.BICUBIC)
    turned = big.rotate(float(rng.uniform(-12, 12)), Image.Resampling.BICUBIC, fillcolor=0.0)
    alpha: np.ndarray = np.clip(np.asarray(turned, np.float32) * 1.3, 0.0, 1.0)
    rows, columns = np.flatnonzero((alpha > _INK).any(1)), np.flatnonzero((alpha > _INK).any(0))
    return alpha[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _free_place(
    rng: np.random.Generator, alpha: np.ndarray, taken: list[tuple[float, float, float, float]], size: int
) -> tuple[int, int, tuple[float, float, float, float]] | None:
    """A place where the stamp touches no earlier digit, or None after a few tries."""
    height, width = alpha.shape
    if height > size or width > size:
        return None
    for _ in range(_PLACEMENT_TRIES):
        top, left = int(rng.integers(size - height + 1)), int(rng.integers(size - width + 1))
        box = (float(left), float(top), float(left + width), float(top + height))
        if all(box[2] <= t[0] or t[2] <= box[0] or box[3] <= t[1] or t[3] <= box[1] for t in taken):
            return top, left, box
    return None


def _paste(rng: np.random.Generator, canvas: np.ndarray, alpha: np.ndarray, top: int, left: int) -> None:
    """Blend a digit of a random, well visible colour into the canvas."""
    patch = canvas[top : top + alpha.shape[0], left : left + alpha.shape[1]]
    under = float(patch.mean())
    colour = rng.uniform(0, 255, 3)
    if abs(colour.mean() - under) < _MIN_CONTRAST:
        towards = 255.0 if under < 128 else 0.0
        colour = 0.25 * colour + 0.75 * towards
    patch += alpha[:, :, None] * (colour.astype(np.float32) - patch)


def sample(purpose: str, number: int, seed: int, size: int = 128) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make image, boxes and labels for a purpose of a run, in the size that the embedded detector is trained on.

    Tracing and calibration take the training handwriting, far from each other; verification that of validation.
    """
    start = _CALIBRATION_START if purpose == "calibration" else 0
    made = scene(start + number, "val" if purpose == "verification" else "train", size, seed)
    return made.image, made.boxes, made.labels


def large_sample(purpose: str, number: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a sample as `sample` does, of 640 x 640 pixels."""
    return sample(purpose, number, seed, 640)


sample.reads_files = large_sample.reads_files = False  # type: ignore[attr-defined]  # a function of the arguments alone
