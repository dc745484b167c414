"""Data of a source: images as stored, or arrays for the inputs; read or made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.errors import StageError

if TYPE_CHECKING:
    from PIL import Image


class TooFew(StageError):
    """A source holds fewer samples than a purpose needs; truehalf.data.samples says how many all of them need.

    Attributes:
        held: the place and what it holds, such as "data.folder: images holds 60 different images".
        count: how many those are.
    """

    def __init__(self, held: str, count: int, purpose: str, end: int) -> None:
        self.held, self.count = held, count
        super().__init__("too-few-samples", f"{held}, and {purpose} ends at number {end}")


@dataclass(frozen=True)
class LabelledImage:
    """An image, with its labels where the source has them.

    Attributes:
        name: what reports call it.
        image: RGB, of any size.
        boxes: float32 [n, 4] xyxy in pixels of the image, or None.
        labels: int64 [n], or None: positions in `categories` of what was drawn, or the model's classes.
        crowds: bool [n], which boxes hold a crowd, where detections are not judged; None: none does.
    """

    name: str
    image: Image.Image
    boxes: np.ndarray | None = None
    labels: np.ndarray | None = None
    crowds: np.ndarray | None = None

    @classmethod
    def of_array(
        cls, name: str, pixels: np.ndarray, boxes: np.ndarray | None = None, labels: np.ndarray | None = None
    ) -> LabelledImage:
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


class Drawn(Sequence[LabelledImage | Arrays]):
    """What a source gives for a purpose.

    Attributes:
        names: what reports call each, known before it is read.
        item: reads or makes number `position`, from 0 to len(self) - 1.
        paths: the file that each comes from; empty where they are made.
        categories: names that labels are positions in; None: labels are the model's classes.
        left_out: what the source holds and nothing uses: the reason, and the names of what it concerns.
    """

    def __init__(
        self,
        names: Sequence[str],
        item: Callable[[int], LabelledImage | Arrays],
        paths: Sequence[Path] = (),
        categories: Sequence[str] | None = None,
        left_out: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.names, self.item, self.paths, self.categories = names, item, paths, categories
        self.left_out: Mapping[str, Sequence[str]] = left_out or {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        positions = range(len(self))[index]
        return self.item(positions) if isinstance(positions, int) else [self.item(each) for each in positions]

    def only(self, positions: Sequence[int]) -> Drawn:
        """Those at some positions."""
        names = [self.names[each] for each in positions]
        paths = [self.paths[each] for each in positions] if self.paths else ()
        return Drawn(names, lambda position: self.item(positions[position]), paths, self.categories, self.left_out)
