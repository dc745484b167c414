"""Samples of a run: those that trace, calibrate and verify. No sample calibrates and verifies.

A source that lists files is shared out in an order fixed by data.seed; one that makes samples makes others for each
purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.config.schema import Config, DataConfig, DataSource
from truehalf.data.arrays import array_files, npz_files, rows_of
from truehalf.data.fitting import fitted
from truehalf.data.images import LabelledImage, coco, image_files, images_under
from truehalf.data.samples import Arrays, Samples, split, without_copies
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec
from truehalf.user_code import described, imported

PURPOSES = ("trace", "calibration", "verification")
TRACE_SAMPLES = 16  # at most; other samples than those of calibrate and verify where there are enough
_CALIBRATION, _VERIFICATION = 32, 64  # at most, where data.*_samples is null


def run_sources(config: Config, root: Path) -> dict[str, Samples]:
    """Share out the samples of the configured source between PURPOSES; its listing is read once.

    Args:
        root: the workspace; paths in data.* are relative to it.

    Raises:
        StageError: the source cannot be read, or holds fewer samples than the purposes need together.
    """
    data = config.data
    if data.source not in (DataSource.function, DataSource.random):
        return _shared_out(data, without_copies(_listed(data, root)), root)
    calibration, verification = data.calibration_samples, data.verification_samples
    counts = (TRACE_SAMPLES, calibration or _CALIBRATION, verification or _VERIFICATION)
    sources = {}
    for number, (purpose, count) in enumerate(zip(PURPOSES, counts, strict=True)):
        names = [f"{data.function or data.source}/{purpose}/{position}" for position in range(count)]
        if data.source is DataSource.random:
            height, width = (side or 256 for side in config.model.image_size)
            sources[purpose] = _noise(names, (data.seed, number), (height, width))
        else:
            sources[purpose] = _function(names, str(data.function), root, purpose, data.seed)
    return sources


def run_samples(purpose: str, config: Config, root: Path, spec: IoSpec) -> Samples:
    """Read the samples of one of PURPOSES; slim is checked with those of calibration. No stage but `verify` sees those
    of verification, unless there is only one.
    """
    return fitted(run_sources(config, root)[purpose], spec)


def _listed(data: DataConfig, root: Path) -> Samples:
    """List all samples of files."""
    if data.source is DataSource.npz:
        return _rows(root / str(data.file))
    folder = root / str(data.folder)
    if data.source is DataSource.coco:
        return coco(root / str(data.annotations), folder)
    paths = images_under(folder) if folder.is_dir() else []
    if not paths:
        message = f"data.folder: {folder} holds no image; expected a folder of .jpg, .png or other files of Pillow's"
        raise StageError("file-missing", message)
    return image_files(paths, folder)


def _rows(place: Path) -> Samples:
    """List the samples in an .npz file or a folder of them: one for each entry of axis 0."""
    try:
        files = npz_files(place)
    except StageError as error:
        raise StageError(error.code, f"data.file: {error.text}") from error
    rows = [rows_of(file.headers) for file in files]
    for file, count in zip(files, rows, strict=True):
        if count is None:
            shapes = {name: list(array.shape) for name, array in file.headers.items()}
            message = f"data.file: {file.path}: expected arrays with as many samples on axis 0, got {shapes}"
            raise StageError("wrong-shape", message)
    return array_files(files, rows, place if place.is_dir() else place.parent)


def _shared_out(data: DataConfig, source: Samples, root: Path) -> dict[str, Samples]:
    """Share out as many samples as there are; numbers that are not given are lowered where they are fewer.

    Raises:
        StageError: too-few-samples: the numbers that are given do not fit.
    """
    held, calibration, verification = len(source), data.calibration_samples, data.verification_samples
    if calibration or verification:
        calibration = calibration or min(_CALIBRATION, max(1, held - (verification or 0)))
        verification = verification or min(_VERIFICATION, max(1, held - calibration))
        if held < calibration + verification and not held == calibration == verification == 1:
            wanted = f"{TRACE_SAMPLES} trace, {calibration} calibration, {verification} verification"
            raise StageError(
                "too-few-samples",
                f"data: {root / str(data.file or data.folder)} holds {held} different samples; the run takes "
                f"{TRACE_SAMPLES + calibration + verification}: {wanted}, of which trace can do with some of "
                "calibration's; add some, or lower data.calibration_samples or data.verification_samples: "
                f"{held} together",
            )
    most = calibration or _CALIBRATION, verification or _VERIFICATION
    parts = split(range(held), *most, TRACE_SAMPLES, data.seed)
    # Rows of a file in the order in which they lie there, so that a file is read once.
    in_order = sorted if data.source is DataSource.npz else list
    return {purpose: source.only(in_order(getattr(parts, purpose))) for purpose in PURPOSES}


# --- made samples -----------------------------------------------------------------------------------------------------


def _noise(names: Sequence[str], seed: Sequence[int], size: tuple[int, int]) -> Samples:
    """Make images of noise, each a function of the seed and its number."""

    def load(position: int) -> LabelledImage:
        rng = np.random.default_rng([*seed, position])
        return LabelledImage.of_array(rng.integers(0, 256, (*size, 3), np.uint8))

    return Samples(names, load)


def _function(names: Sequence[str], name: str, root: Path, purpose: str, seed: int) -> Samples:
    """Call module:function of the user's as function(purpose, number, seed) for each sample.

    It returns arrays by input name, without the batch axis; or an image, uint8 [height, width, 3] in RGB; or a tuple
    (image, boxes, labels): boxes float [n, 4], xyxy in pixels of the image, labels int [n], positions among the model's
    classes. The same arguments must give the same sample: stages make each anew.

    Raises:
        StageError: there is no such module or function.
    """
    call = imported("data.function", name, root)

    def load(position: int) -> LabelledImage | Arrays:
        where = f"data.function: sample {names[position]}"
        try:
            made = call(purpose, position, seed)
        except Exception as error:  # whatever the user's code raises
            raise StageError("function-fails", f"{where}: {described(error)}") from error
        return _returned(where, made)

    return Samples(names, load)


def _returned(where: str, made: Any) -> LabelledImage | Arrays:
    """Read what a user's function returned.

    Raises:
        StageError: wrong-return.
    """
    if isinstance(made, Mapping):
        return {str(key): np.asarray(array) for key, array in made.items()}
    image, boxes, labels = made if isinstance(made, tuple) and len(made) == 3 else (made, None, None)
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise StageError(
            "wrong-return",
            f"{where}: expected arrays by input name, or an image as uint8 [height, width, 3], or (image, boxes, "
            f"labels), got {type(made).__name__} {pixels.dtype} {list(pixels.shape)}",
        )
    if boxes is None and labels is None:
        return LabelledImage.of_array(pixels)
    corners, numbers = np.asarray(boxes), np.asarray(labels)
    if not corners.size and not numbers.size:
        corners, numbers = np.zeros((0, 4)), np.zeros(0, np.int64)
    are_alike = numbers.ndim == 1 and corners.shape == (len(numbers), 4) and corners.dtype.kind in "fiu"
    are_alike = are_alike and numbers.dtype.kind in "iu" and bool(np.isfinite(corners).all())
    if not are_alike or (corners[:, 2:] <= corners[:, :2]).any():
        raise StageError(
            "wrong-return",
            f"{where}: expected boxes [n, 4] as x0, y0, x1, y1 with x0 < x1 and y0 < y1, and integer labels [n], got "
            f"boxes {corners.dtype} {list(corners.shape)} and labels {numbers.dtype} {list(numbers.shape)}",
        )
    return LabelledImage.of_array(pixels, corners.astype(np.float32), numbers.astype(np.int64))
