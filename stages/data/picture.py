"""What a source of data gives: pictures as they lie there, or arrays for the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Picture:
    """A picture, with its labels where the source has them.

    Attributes:
        name: what reports call it.
        image: RGB, of any size.
        boxes: float32 [n, 4] xyxy in pixels of the picture, or None.
        labels: int64 [n], or None.
    """

    name: str
    image: Image.Image
    boxes: np.ndarray | None = None
    labels: np.ndarray | None = None

    @classmethod
    def of_array(
        cls, name: str, pixels: np.ndarray, boxes: np.ndarray | None = None, labels: np.ndarray | None = None
    ) -> Picture:
        """Of uint8 [height, width, 3], RGB."""
        from PIL import Image

        return cls(name, Image.fromarray(pixels), boxes, labels)


@dataclass(frozen=True)
class Arrays:
    """Arrays by input name, without the batch axis.

    Attributes:
        name: what reports call it.
    """

    name: str
    arrays: dict[str, np.ndarray]
