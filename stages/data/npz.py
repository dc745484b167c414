"""Arrays by input name from an .npz file, or from a folder of them: a sample for each entry of their first axis."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conf.schema import Config
from stages.data.picture import Arrays
from stages.io import StageError


class ArrayRows(Sequence[Arrays]):
    """Rows of arrays in files; one file in memory at a time.

    Attributes:
        paths: of the file of each row.
    """

    def __init__(self, rows: Sequence[tuple[Path, int]]) -> None:
        self._rows = rows
        self.paths = [path for path, _ in rows]
        self._open: tuple[Path, dict[str, np.ndarray]] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        path, row = self._rows[index]
        if self._open is None or self._open[0] != path:
            self._open = (path, _read(path))
        return Arrays(f"{path.stem}[{row}]", {name: array[row] for name, array in self._open[1].items()})


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> ArrayRows:
    """Rows `first` to `first + count - 1`, in an order fixed by the seed.

    Raises:
        StageError: when a file cannot be read, arrays in it differ in their first axis, or there are fewer rows.
    """
    assert config.data.file is not None, "validated: data.source=npz has a file"
    place = root / config.data.file
    files = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    rows = [(path, row) for path in files for row in range(_length(path))]
    if len(rows) < first + count:
        raise StageError(
            f"data.file: {place} holds {len(rows)} samples and {purpose} ends at number {first + count}; add samples, "
            "or lower data.calibration_samples or data.verification_samples"
        )
    order = np.random.default_rng(config.data.seed).permutation(len(rows))
    return ArrayRows([rows[i] for i in order[first : first + count]])


def _length(path: Path) -> int:
    lengths = {name: len(array) if array.ndim else 0 for name, array in _read(path).items()}
    if len(set(lengths.values())) != 1 or not all(lengths.values()):
        raise StageError(f"data.file: {path}: expected arrays with as many samples on axis 0, got {lengths}")
    return next(iter(lengths.values()))


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError as error:
        raise StageError(f"data.file: no such file: {path}; expected an .npz file, or a folder of them") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise StageError(
            f"data.file: {path}: expected arrays in .npz, got a file that cannot be read ({error})"
        ) from error
