"""Images for trained models: photographs that ship with scikit-image and scikit-learn, faces, rendered text.

All return PIL images in RGB; random choices come from the generator that is given.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Italic.ttf",
    "DejaVuSansMono.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
)
WORDS = [
    "invoice",
    "total",
    "amount",
    "paid",
    "street",
    "number",
    "harbour",
    "window",
    "engine",
    "bridge",
    "garden",
    "winter",
    "report",
    "answer",
    "village",
    "market",
    "morning",
    "railway",
    "station",
    "customer",
    "delivery",
    "account",
    "balance",
    "printed",
    "receipt",
    "chapter",
    "section",
    "figure",
    "measure",
    "result",
    "north",
    "energy",
    "water",
    "paper",
    "silver",
    "yellow",
    "orange",
    "purple",
    "simple",
    "modern",
    "public",
    "science",
    "museum",
    "theatre",
    "library",
    "island",
]


# --- photographs ------------------------------------------------------------------------------------------------------


@functools.cache
def photograph(name: str) -> Image.Image:
    """One of scikit-image's or scikit-learn's photographs by its file name."""
    import skimage
    import sklearn

    folders = (Path(skimage.__file__).parent / "data", Path(sklearn.__file__).parent / "datasets" / "images")
    path = next(folder / name for folder in folders if (folder / name).exists())
    return Image.open(path).convert("RGB")


SCENES = ("china.jpg", "flower.jpg", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "camera.png")


def scene(rng: np.random.Generator) -> Image.Image:
    """A photograph, whole or a crop of at least half of each side, mirrored every other time."""
    image = photograph(str(rng.choice(SCENES)))
    return varied(image, rng, 0.5)


def varied(image: Image.Image, rng: np.random.Generator, least: float = 0.7) -> Image.Image:
    """A crop of at least a share of each side, mirrored every other time, brighter or darker."""
    share = rng.uniform(least, 1)
    width, height = (round(side * share) for side in image.size)
    left, top = rng.integers(image.width - width + 1), rng.integers(image.height - height + 1)
    image = image.crop((left, top, left + width, top + height))
    if rng.integers(2):
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return ImageEnhance.Brightness(image).enhance(rng.uniform(0.75, 1.25))


@functools.cache
def _small_faces() -> np.ndarray:
    """A hundred faces, float (100, 25, 25), 0 to 1."""
    import skimage

    faces: np.ndarray = np.load(Path(skimage.__file__).parent / "data" / "lfw_subset.npy")[:100]
    return faces


ASTRONAUT_HEAD = (150, 0, 310, 220)  # left, top, right, bottom in astronaut.png


def faces(rng: np.random.Generator) -> Image.Image:
    """The astronaut: the upper part of the photograph, or the head pasted once or twice into another photograph."""
    portrait = photograph("astronaut.png")
    if rng.integers(2):
        side = int(rng.integers(300, 512))
        left = int(rng.integers(0, min(140, 512 - side) + 1))
        return varied(portrait.crop((left, 0, left + side, side)), rng, 0.95)
    canvas = scene(rng).resize((512, 384))
    for i in range(int(rng.integers(1, 3))):
        head = varied(portrait.crop(ASTRONAUT_HEAD), rng, 1)
        width = int(rng.integers(90, 200))
        head = head.resize((width, round(width * head.height / head.width)), Image.Resampling.BICUBIC)
        canvas.paste(head, (int(rng.integers(0, 240 - width // 2)) + 256 * i, int(rng.integers(0, 384 - head.height))))
    return canvas


def aligned_face(rng: np.random.Generator, size: int) -> Image.Image:
    """A square with one upright face: the astronaut's, or one of a hundred small ones enlarged."""
    if rng.integers(2):
        half = rng.uniform(75, 100)
        x, y = 223 + rng.uniform(-6, 6), 110 + rng.uniform(-6, 6)
        square = photograph("astronaut.png").crop(tuple(round(v) for v in (x - half, y - half, x + half, y + half)))
        square = ImageEnhance.Brightness(square).enhance(rng.uniform(0.75, 1.25))
    else:
        small = _small_faces()[rng.integers(100)]
        square = Image.fromarray((small * 255).astype(np.uint8)).convert("RGB")
    return square.resize((size, size), Image.Resampling.BICUBIC)


# --- text -------------------------------------------------------------------------------------------------------------


def font(rng: np.random.Generator, height: float) -> ImageFont.FreeTypeFont:
    """One of FONTS, which ship with matplotlib."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(folder / str(rng.choice(FONTS))), round(height))


def words(rng: np.random.Generator, count: int) -> str:
    """English words, every third time a number or a date among them."""
    chosen = [str(word) for word in rng.choice(WORDS, count)]
    if rng.integers(3) == 0:
        number = f"{rng.integers(10, 9999)}" if rng.integers(2) else f"{rng.integers(2000, 2027)}-0{rng.integers(1, 9)}"
        chosen[int(rng.integers(count))] = number
    return " ".join(chosen)


def line_of_text(rng: np.random.Generator, content: str, height: int = 48) -> Image.Image:
    """One line, dark on light or light on dark, tightly cropped, sometimes a little blurred."""
    chosen = font(rng, height * 0.66)
    left, top, right, bottom = chosen.getbbox(content)
    pad = height * 0.14
    ground, ink = _ground_and_ink(rng)
    image = Image.new("RGB", (round(right - left + 3 * pad), round(bottom - top + 2 * pad)), ground)
    ImageDraw.Draw(image).text((1.5 * pad - left, pad - top), content, ink, chosen)
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8)))


def page(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Lines of words of several sizes, on paper or on a photograph, or a part of scikit-image's scanned page."""
    if rng.integers(6) == 0:
        scan = photograph("page.png")
        left = int(rng.integers(scan.width - scan.height + 1))
        return scan.crop((left, 0, left + scan.height, scan.height)).resize((width, height), Image.Resampling.BICUBIC)
    ground, ink = _ground_and_ink(rng)
    image = Image.new("RGB", (width, height), ground)
    if rng.integers(3) == 0:
        image = Image.blend(scene(rng).resize((width, height)), image, 0.75)
    drawn, top = ImageDraw.Draw(image), float(rng.uniform(8, 24))
    while top < height - 40:
        size = rng.uniform(16, 34)
        chosen, left = font(rng, size), float(rng.uniform(8, width * 0.25))
        text = words(rng, int(rng.integers(1, 4)))
        while chosen.getlength(text) > width - left - 8 and " " in text:
            text = text.rsplit(" ", 1)[0]
        drawn.text((left, top), text, ink, chosen)
        top += size * rng.uniform(1.6, 2.4)
    return image


def document(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A page with a title, two or three paragraphs, a figure and its caption, black on white."""
    image = Image.new("RGB", (width, height), (255, 255, 255))
    drawn = ImageDraw.Draw(image)
    title = font(rng, height * 0.032)
    drawn.text((width * 0.2, height * 0.05), words(rng, 4).title(), (0, 0, 0), title)
    body, top = font(rng, height * 0.0145), height * 0.13
    for paragraph in range(int(rng.integers(2, 4))):
        for _ in range(int(rng.integers(5, 9))):
            drawn.text((width * 0.1, top), words(rng, 11), (0, 0, 0), body)
            top += height * 0.021
        top += height * 0.02
        if paragraph == 0:
            box = (round(width * 0.2), round(top), round(width * 0.8), round(top + height * 0.24))
            image.paste(scene(rng).resize((box[2] - box[0], box[3] - box[1])), box)
            top = box[3] + height * 0.012
            drawn.text((width * 0.28, top), f"Figure {rng.integers(1, 9)}. {words(rng, 4)}", (0, 0, 0), body)
            top += height * 0.05
    return image


def captcha(rng: np.random.Generator, content: str, width: int, height: int) -> Image.Image:
    """Characters one by one, each turned and shifted a little, with thin lines and dots across."""
    ground, ink = tuple(int(v) for v in rng.integers(200, 256, 3)), tuple(int(v) for v in rng.integers(0, 110, 3))
    image = Image.new("RGB", (width, height), ground)
    step = width * 0.9 / len(content)
    for i, letter in enumerate(content):
        tile = Image.new("L", (height, height), 0)
        ImageDraw.Draw(tile).text((height * 0.22, height * 0.08), letter, 255, font(rng, height * 0.62))
        tile = tile.rotate(rng.uniform(-14, 14), Image.Resampling.BICUBIC)
        place = (round(width * 0.05 + i * step - height * 0.18), round(rng.uniform(-0.05, 0.05) * height))
        image.paste(Image.new("RGB", tile.size, ink), place, tile)
    drawn = ImageDraw.Draw(image)
    for _ in range(3):
        ends = [int(v) for v in (0, rng.integers(height), width, rng.integers(height))]
        drawn.line(ends, tuple(int(v) for v in rng.integers(120, 220, 3)), 1)
    return image


def _ground_and_ink(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    light = tuple(int(v) for v in rng.integers(205, 256, 3))
    dark = tuple(int(v) for v in rng.integers(0, 80, 3))
    return (dark, light) if rng.integers(5) == 0 else (light, dark)


# --- to arrays --------------------------------------------------------------------------------------------------------


def planar(image: Image.Image, mean: object = 0, std: object = 1) -> np.ndarray:
    """float32 (1, channels, height, width): (pixel - mean) / std by channel, of pixels 0 to 255."""
    pixels = np.asarray(image, np.float32)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    scaled = (pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32)


IMAGENET_MEAN, IMAGENET_STD = np.array([0.485, 0.456, 0.406]) * 255, np.array([0.229, 0.224, 0.225]) * 255


def letterbox(image: Image.Image, size: int, fill: int, centred: bool = False) -> Image.Image:
    """Resize to fit a square and pad it, at the right and below, or on both sides."""
    scale = size / max(image.size)
    small = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    canvas = Image.new("RGB", (size, size), (fill, fill, fill))
    place = ((size - small.width) // 2, (size - small.height) // 2) if centred else (0, 0)
    canvas.paste(small, place)
    return canvas


def generators(count: int, seed: int) -> Iterator[np.random.Generator]:
    """One generator for each sample, so that a sample does not depend on those before it."""
    return (np.random.default_rng((seed, i)) for i in range(count))
