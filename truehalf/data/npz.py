"""Arrays by input name from an .npz file, or from a folder of them: a sample for each entry of their first axis.

Headers say how many there are. Those of a purpose come in the order in which they lie there, so that each file is read
once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from truehalf.config.schema import Config
from truehalf.data.arrays import Header, read_arrays, read_headers
from truehalf.data.drawn import Arrays, Drawn, TooFew
from truehalf.data.images import left_out, same_content
from truehalf.errors import StageError


def drawn(config: Config, root: Path, purpose: str, first: int, count: int) -> Drawn:
    """Rows `first` to `first + count - 1` of an order fixed by the seed.

    Raises:
        StageError: when a file cannot be read, arrays in it differ in their first axis, or there are fewer rows.
    """
    assert config.data.file is not None, "validated: data.source=npz has a file"
    place = root / config.data.file
    files = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    if not files:
        message = f"data.file: {place} holds no .npz file; expected an .npz file, or a folder of them"
        raise StageError("file-missing", message)
    headers = {path: _headers(path) for path in files}
    same = same_content(files)
    rows = [(path, row) for path in files if path not in same for row in range(_length(path, headers[path]))]
    if len(rows) < first + count:
        raise TooFew(f"data.file: {place} holds {len(rows)} different samples", len(rows), purpose, first + count)
    order = np.random.default_rng(config.data.seed).permutation(len(rows))
    chosen = [rows[i] for i in sorted(int(i) for i in order[first : first + count])]
    loaded: dict[Path, dict[str, np.ndarray]] = {}  # one file in memory at a time

    def item(position: int) -> Arrays:
        path, row = chosen[position]
        if path not in loaded:
            loaded.clear()  # before the next one is read
            loaded[path] = read_arrays(path)
        arrays = {name: np.array(each[row], order="C") for name, each in loaded[path].items()}
        return Arrays(f"{path.stem}[{row}]", arrays)

    names, paths = [f"{path.stem}[{row}]" for path, row in chosen], [path for path, _ in chosen]
    return Drawn(names, item, paths, left_out=left_out(same, place if place.is_dir() else place.parent))


def headers_of(config: Config, root: Path) -> dict[str, Header]:
    """Shape, with the axis of samples, and type of the arrays in `data.file`, by name; of a folder, in its first file.

    Raises:
        StageError: when it cannot be read, or holds none.
    """
    assert config.data.file is not None, "validated: data.source=npz has a file"
    place = root / config.data.file
    first = next(iter(sorted(place.glob("*.npz"))), place) if place.is_dir() else place
    return _headers(first)


def _headers(path: Path) -> dict[str, Header]:
    try:
        return read_headers(path)
    except StageError as error:
        raise StageError(error.code, f"data.file: {error.text}") from error


def _length(path: Path, headers: dict[str, Header]) -> int:
    lengths = {name: header.shape[0] if header.shape else None for name, header in headers.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        message = f"data.file: {path}: expected arrays with as many samples on axis 0, got {lengths}"
        raise StageError("wrong-shape", message)
    return next(iter(lengths.values())) or 0
