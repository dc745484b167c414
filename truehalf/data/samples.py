"""The samples of a run: which ones trace, calibrate and verify see. The three never share one.

A source of data (one file each in this folder) gives images with their labels, or arrays by input name. Which input
they go into, and how an image becomes an array, is what the model's I/O spec says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truehalf.config.schema import Config, DataSource
from truehalf.data import coco, digits, functions, images, noise, npz
from truehalf.data.drawn import Arrays, Drawn, LabelledImage, TooFew
from truehalf.data.preprocessing import PIXEL_MASK, Preprocessing, beside_images, declared_by
from truehalf.errors import StageError, some_of
from truehalf.io_spec.in_file import names_of
from truehalf.io_spec.spec import InputSpec, IoSpec, fits

PURPOSES = ("trace", "calibration", "verification")
TRACE_SAMPLES = 16  # at most; set apart from those of calibrate and verify where there are enough
_AT_MOST = {"calibration": 32, "verification": 64}  # where data.*_samples is null

# By source: a function (config, root, purpose, first, count) -> Drawn. `first` is where those of the purpose begin in
# one row of all samples, for sources that have such a row.
_SOURCES: dict[DataSource, Callable[[Config, Path, str, int, int], Drawn]] = {
    DataSource.digits: digits.drawn,
    DataSource.images: images.drawn,
    DataSource.coco: coco.drawn,
    DataSource.npz: npz.drawn,
    DataSource.random: noise.drawn,
    DataSource.function: functions.drawn,
}


@dataclass(frozen=True)
class Sample:
    """One input of the model, with its labels where the data has them.

    Attributes:
        name: what reports call it.
        feeds: array per model input, without the batch axis.
        boxes: float32 [n, 4] xyxy in pixels of the model's input, or None.
        labels: int64 [n], or None.
        crowds: bool [n], which boxes hold a crowd; None: none does.
    """

    name: str
    feeds: dict[str, np.ndarray]
    boxes: np.ndarray | None
    labels: np.ndarray | None
    crowds: np.ndarray | None = None


class Samples(Sequence[Sample]):
    """What a source has drawn, made into samples one at a time.

    Attributes:
        names: of the samples, known before they are made.
        paths: of the files they come from, in order; empty where they are made.
    """

    def __init__(self, drawn: Drawn, spec: IoSpec) -> None:
        self._drawn, self._spec = drawn, spec
        self._classes = _classes(drawn, spec)
        self.names, self.paths = drawn.names, drawn.paths

    def __len__(self) -> int:
        return len(self._drawn)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return sample_of(self._drawn[index], self._spec, self._classes)

    def without(self, paths: Collection[Path]) -> Samples:
        """The same samples but those of some files."""
        return Samples(self._drawn.only([i for i, path in enumerate(self.paths) if path not in paths]), self._spec)


def _classes(drawn: Drawn, spec: IoSpec) -> np.ndarray | None:
    """int64: the model's class of each category that labels are positions in; None where labels are classes already.

    Raises:
        StageError: when a category is no class of the model.
    """
    if drawn.categories is None:
        return None
    classes = list(spec.class_names)
    unknown = [name for name in drawn.categories if name not in classes]
    if unknown:
        raise StageError(
            "wrong-name",
            f"data: the model has no class named {some_of(map(repr, unknown), 20)}; its classes are "
            f"{some_of(map(repr, classes), 20) or 'none'}. Name them alike: in the annotations, or by "
            "model.classes, in the order of the model's classes",
        )
    return np.array([classes.index(name) for name in drawn.categories], np.int64)


# `root` is the workspace: paths in data.* are relative to it. `spec` is the model's I/O spec.


def trace_samples(config: Config, count: int, root: Path, spec: IoSpec) -> Samples:
    """Samples to trace on and to check the trace with, at most TRACE_SAMPLES, and fewer where there are fewer."""
    if count > TRACE_SAMPLES:
        raise ValueError(f"trace_samples: at most {TRACE_SAMPLES} are set apart, {count} were asked for")
    return Samples(drawn(config, root, "trace", count), spec)


def calibration_samples(config: Config, root: Path, spec: IoSpec) -> Samples:
    """`data.calibration_samples` samples; also what slim is checked with."""
    return Samples(drawn(config, root, "calibration"), spec)


def verification_samples(config: Config, root: Path, spec: IoSpec) -> Samples:
    """`data.verification_samples` samples that no other stage has seen, unless there is only one."""
    return Samples(drawn(config, root, "verification"), spec)


def drawn(config: Config, root: Path, purpose: str, count: int | None = None) -> Drawn:
    """What the configured source gives for "trace", "calibration" or "verification", before it is made into samples.

    Args:
        count: so many at most; None: all of that purpose.

    Raises:
        StageError: when the source cannot be read, or holds fewer samples than the purposes need together.
    """
    draw = _SOURCES[config.data.source]

    def drawn_of(part: range) -> Drawn:
        return draw(config, root, purpose, part.start, len(part) if count is None else min(count, len(part)))

    wanted = {
        "trace": TRACE_SAMPLES,
        "calibration": config.data.calibration_samples or _AT_MOST["calibration"],
        "verification": config.data.verification_samples or _AT_MOST["verification"],
    }
    total = sum(wanted.values())
    parts = {
        "trace": range(TRACE_SAMPLES),
        "calibration": range(TRACE_SAMPLES, TRACE_SAMPLES + wanted["calibration"]),
        "verification": range(total - wanted["verification"], total),
    }
    try:
        if purpose != "verification":
            draw(config, root, "verification", total - 1, 1)  # the last one, without which all parts are others
        return drawn_of(parts[purpose])
    except TooFew as error:
        return drawn_of(_fewer(config, error, wanted)[purpose])


def _fewer(config: Config, error: TooFew, wanted: Mapping[str, int]) -> dict[str, range]:
    """Which of the samples each purpose gets where a source does not hold all that are wanted.

    Trace gets some of calibrate's: what it checks is no proof of FP16. Numbers that are not given are lowered, to a
    third and two thirds of what there is; one single sample is that of all.

    Raises:
        StageError: when those that were given do not fit into what there is.
    """
    held = error.count
    given = config.data.calibration_samples, config.data.verification_samples
    calibration, verification = given
    if calibration is None and verification is None and held < wanted["calibration"] + wanted["verification"]:
        calibration = max(1, round(held / 3))
    if verification is None:
        verification = min(wanted["verification"], max(1, held - (calibration or wanted["calibration"])))
    if calibration is None:
        calibration = min(wanted["calibration"], max(1, held - verification))
    shared = held == 1 and (calibration, verification) == (1, 1)
    if calibration + verification > held and not shared:
        parts = ", ".join(f"{number} {name}" for name, number in wanted.items())
        raise StageError(
            "too-few-samples",
            f"{error.held}; the run takes {sum(wanted.values())}: {parts}, of which trace can do with some of "
            f"calibration's; add some, or lower data.calibration_samples or data.verification_samples: {held} together",
        ) from error
    start = 0 if shared else calibration
    return {
        "trace": range(min(TRACE_SAMPLES, calibration)),
        "calibration": range(calibration),
        "verification": range(start, start + verification),
    }


def sample_of(item: LabelledImage | Arrays, spec: IoSpec, classes: np.ndarray | None = None) -> Sample:
    """One sample of a model with this I/O spec.

    Args:
        classes: int64, the model's class of each number that labels may have; None: labels are classes.

    Raises:
        StageError: when arrays do not fit the inputs, an input cannot be made from an image, or a label is no class.
    """
    if isinstance(item, Arrays):
        return Sample(item.name, _checked(item, spec.inputs), None, None)
    feeds, boxes = {}, item.boxes
    for entry in spec.inputs:
        if entry.kind == "images":
            preprocessing = _preprocessing(entry)
            feeds[entry.name] = preprocessing.apply(item.image, entry.dtype)
            boxes = None if item.boxes is None else preprocessing.boxes(item.boxes, item.image.size)
        elif _is_beside_images(entry):
            feeds[entry.name] = beside_images(entry.name, entry.sides[1:], _first_size(spec)).astype(entry.dtype)
        else:
            raise StageError(
                "not-supported",
                f"data: input {entry.name!r} is no image and no size of one; give arrays: data=npz or data=function",
            )
    return Sample(item.name, feeds, boxes, _labels(item, len(spec.class_names), classes), item.crowds)


def _is_beside_images(entry: InputSpec) -> bool:
    return entry.kind == "picture_size" or (entry.name == PIXEL_MASK and len(entry.sides) == 3)


def _labels(item: LabelledImage, count: int, classes: np.ndarray | None) -> np.ndarray | None:
    if item.labels is None:
        return None
    if classes is not None:
        mapped: np.ndarray = classes[item.labels]
        return mapped
    odd = item.labels[(item.labels < 0) | (item.labels >= count)]
    if odd.size:
        raise StageError("out-of-range", f"data: {item.name}: expected labels from 0 to {count - 1}, got {odd[0]}")
    return item.labels


def _preprocessing(entry: InputSpec) -> Preprocessing:
    preprocessing = declared_by(entry)
    assert preprocessing is not None, "of kind images"
    return preprocessing


def _first_size(spec: IoSpec) -> list[int]:
    """Height and width of the images that go in."""
    sizes = [_preprocessing(entry).size for entry in spec.inputs if entry.kind == "images"]
    if not sizes or sizes[0] is None:
        raise StageError("needs-value", "data: the size or mask of an image needs an input of kind images beside it")
    return sizes[0]


def _checked(item: Arrays, inputs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    """The arrays in the order of the inputs, each of its type and shape."""
    names = names_of(inputs)
    if sorted(names) != sorted(item.arrays):
        got = ", ".join(item.arrays) or "none"
        message = f"data: {item.name}: expected arrays for the inputs {', '.join(names)}, got {got}"
        raise StageError("wrong-name", message)
    for entry in inputs:
        array, shape = item.arrays[entry.name], list(entry.sides[1:])
        is_shape = fits(shape, array.shape)
        if array.dtype != entry.dtype or not is_shape:
            raise StageError(
                "wrong-dtype" if is_shape else "wrong-shape",
                f"data: {item.name}: input {entry.name!r}: expected {entry.dtype} {shape}, without the batch "
                f"axis, got {array.dtype} {list(array.shape)}",
            )
    return {name: item.arrays[name] for name in names}


def readable(samples: Samples) -> tuple[Samples, list[str]]:
    """The samples without files that cannot be read, and what is wrong with each of these, its file named.

    Raises:
        StageError: when none is left.
    """
    corrupt: dict[Path, str] = {}
    for position, path in enumerate(samples.paths):
        try:
            samples[position]
        except StageError as error:
            corrupt[path] = str(error)
    if not corrupt:
        return samples, []
    if len(corrupt) == len(samples):
        message = f"none of the {len(samples)} images can be read; the first: {next(iter(corrupt.values()))}"
        raise StageError("file-unreadable", message)
    return samples.without(corrupt), list(corrupt.values())


def adversarial_samples(config: Config, spec: IoSpec) -> list[Sample]:
    """Images at the rim of the input range, made: all white, all black, and noise of nothing but the two; none for a
    model that takes no images.
    """
    others = [entry for entry in spec.inputs if entry.kind != "images"]
    if len(others) == len(spec.inputs) or not all(map(_is_beside_images, others)):
        return []
    height, width = _first_size(spec)
    dots = np.random.default_rng(config.data.seed).integers(0, 2, (3, height, width)).astype(np.uint8) * 255
    made = {"white": np.full_like(dots, 255), "black": np.zeros_like(dots), "noise": dots}
    return [
        sample_of(LabelledImage.of_array(f"adversarial/{name}", pixels.transpose(1, 2, 0)), spec)
        for name, pixels in made.items()
    ]


def batches(samples: Sequence[Sample], size: int) -> Iterator[list[Sample]]:
    """Consecutive groups of `size` samples, the last one possibly shorter; one group in memory at a time."""
    for start in range(0, len(samples), size):
        yield [samples[i] for i in range(start, min(start + size, len(samples)))]


def stacked(batch: Sequence[Sample]) -> dict[str, np.ndarray]:
    """The feeds of a group with a leading batch axis.

    Raises:
        StageError: when they differ in shape.
    """
    first = batch[0]
    for sample in batch:
        for name, array in sample.feeds.items():
            if array.shape != first.feeds[name].shape:
                raise StageError(
                    "wrong-shape",
                    f"data: input {name!r}: {first.name} has {list(first.feeds[name].shape)}, and {sample.name}, in "
                    f"one batch with it, {list(array.shape)}; expected samples of one shape: pad or crop them, or run "
                    "one size after the other",
                )
    return {name: np.stack([sample.feeds[name] for sample in batch]) for name in batch[0].feeds}


def filled(samples: Sequence[Sample], size: int, start: int = 0) -> dict[str, np.ndarray]:
    """`size` samples from `start` on, from the first one again where there are fewer."""
    return stacked([samples[(start + i) % len(samples)] for i in range(size)])
