"""Samples as feeds of a model: those of a configuration, and those that come with a file, which are shared out between
calibration and verification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.data.feeds import Feeds, load_feeds
from truehalf.data.image_feeds import ImageFeeds, inputs_for_images, load_images, shown_in
from truehalf.data.images import images_under, is_image
from truehalf.data.preprocessing import declared_by, preprocessing_of
from truehalf.data.samples import Sample, Samples
from truehalf.errors import StageError
from truehalf.io_spec.in_file import given_spec, spec_inside
from truehalf.io_spec.spec import InputSpec
from truehalf.ir.facts import fed_inputs
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    import onnx_ir as ir


class SampleFeeds:
    """Samples as feeds, made anew each time they are iterated over; where a batch of k is fixed, each sample k times.

    Attributes:
        names: of the samples.
    """

    def __init__(self, samples: Sequence[Sample], batch: int) -> None:
        self._samples, self._batch = samples, batch
        self.names = samples.names if isinstance(samples, Samples) else [sample.name for sample in samples]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for sample in self._samples:
            yield {name: np.repeat(array[np.newaxis], self._batch, axis=0) for name, array in sample.feeds.items()}


def fixed_batch(model: ir.Model) -> int:
    """The leading axis of the inputs where the model fixes it, else 1."""
    leading = {value.shape[0] for value in fed_inputs(model) if value.shape is not None and len(value.shape)}
    fixed = {axis for axis in leading if isinstance(axis, int)}
    return fixed.pop() if len(fixed) == 1 else 1


Given = Feeds | ImageFeeds


def given_samples(
    source: Any,
    model: ir.Model,
    entry: InputSpec | None = None,
    preprocessing: JsonObject | Path | str | None = None,
    skip_corrupt: bool = False,
) -> Given:
    """Samples of a model, from whatever holds them.

    Args:
        source: a folder of images, one image, an .npz file, a folder of them, Polygraphy's JSON, arrays by input name,
            or an iterable of such mappings; what this function has returned is passed on.
        model: whose inputs they are.
        entry: of the input, in the I/O spec; says of the preprocessing of images what `preprocessing` does not.
        preprocessing: of images (truehalf.data.preprocessing): a mapping, or a YAML or JSON file.
        skip_corrupt: leave out images that cannot be read instead of stopping.

    Raises:
        StageError: a source that is none of these or does not fit the model; options of images beside arrays.
    """
    if isinstance(source, Given):
        return source
    images = _images(source, model, entry or InputSpec(""), preprocessing, skip_corrupt)
    if images is not None:
        return images
    of_images = {"preprocessing": preprocessing is not None, "skip_corrupt": skip_corrupt}
    given = [name for name, is_set in of_images.items() if is_set]
    if given and _are_arrays(source):
        message = f"{' and '.join(given)}: expected with images only; these samples are arrays already"
        raise StageError("in-conflict", message)
    if not isinstance(source, (str, Path, Mapping, Sequence)) and hasattr(source, "__iter__"):
        source = list(source)
    return load_feeds(source, model, "samples")


def _are_arrays(source: Any) -> bool:
    """Whether samples are arrays, or lie in files that hold some; others are reported where they are opened."""
    if not isinstance(source, (str, Path)):
        return True
    source = Path(source)
    return source.is_dir() or (source.is_file() and source.suffix in (".npz", ".json"))


def _images(
    source: Any, model: ir.Model, entry: InputSpec, preprocessing: JsonObject | Path | str | None, skip_corrupt: bool
) -> ImageFeeds | None:
    """Feeds from a folder of images or from one image; None where the samples are something else."""
    if not isinstance(source, (str, Path)):
        return None
    source = Path(source)
    if source.is_dir():
        arrays, found = any(source.glob("*.npz")), images_under(source)
        if arrays and found:
            message = f"samples {source}: expected .npz files or images, got both; move one kind away"
            raise StageError("in-conflict", message)
        if arrays:
            return None
        if not found:
            raise StageError("file-missing", f"samples {source}: expected .npz files or images, found neither")
    elif not is_image(source):
        return None
    declared = declared_by(entry)
    applied = declared if preprocessing is None else preprocessing_of(preprocessing, declared or shown_in(model))
    if applied is None:
        raise StageError(
            "needs-value",
            f"samples {source}: images need a preprocessing, and no I/O spec declares one; give --size {_size(model)}, "
            "and --range, --mean, --std, --layout, --resize or --channels where they differ from the defaults "
            "(in Python, preprocessing={...})",
        )
    return load_images(source, model, applied, 1, skip_corrupt)


def _size(model: ir.Model) -> str:
    """Height and width that the input of images fixes, as --size takes them; else an example."""
    shape = next((list(value.shape or ()) for value in inputs_for_images(model)), [])
    sides = shape[1:3] if shape[-1:] == [3] else shape[2:4]
    return "x".join(map(str, sides)) if sides and all(isinstance(side, int) for side in sides) else "640x640"


@dataclass(frozen=True)
class Split:
    """Positions of samples by purpose.

    Attributes:
        calibration, verification: positions; no sample is in both, unless there is only one.
        total: number of samples that were given.
    """

    calibration: list[int]
    verification: list[int]
    total: int

    @property
    def is_shared(self) -> bool:
        """Whether verification sees what calibration has seen."""
        return bool(set(self.calibration) & set(self.verification))


def split(total: int, calibration: int, verification: int) -> Split:
    """Share samples out: every second one calibrates, the others verify; of many, spread over all of them. Where
    nothing is calibrated or nothing verified, all serve the other purpose.

    Args:
        total: number of samples, 1 or more.
        calibration, verification: at most so many of each; 0 of one of them: none.
    """
    if not calibration or not verification:
        return Split(_spread(range(total), calibration), _spread(range(total), verification), total)
    if total == 1:
        return Split([0], [0], 1)
    return Split(_spread(range(0, total, 2), calibration), _spread(range(1, total, 2), verification), total)


def _spread(positions: Sequence[int], count: int) -> list[int]:
    if len(positions) <= count:
        return list(positions)
    return [positions[i * len(positions) // count] for i in range(count)]


def calibration_feeds(
    samples: Any,
    model: ir.Model,
    preprocessing: JsonObject | Path | str | None,
    entry: InputSpec | None = None,
    skip_corrupt: bool = False,
) -> Given:
    """Samples of a model that ranges are measured on, in the batch that it takes, the last image again where there are
    too few for one; see `given_samples`.

    Args:
        entry: None: that of images in the I/O spec of the file.
    """
    feeds = given_samples(samples, model, entry or spec_inside(model).image_input, preprocessing, skip_corrupt)
    batch = fixed_batch(model)
    if isinstance(feeds, ImageFeeds) and batch > 1:
        count = len(feeds.names)
        whole = feeds.only([*range(count), *[count - 1] * (-count % batch)], batch)
        whole.names = whole.names[::batch]  # one for each feed
        return whole
    return feeds


def of_file(
    samples: Any,
    file: ModelFile,
    preprocessing: JsonObject | Path | str | None,
    skip_corrupt: bool = False,
    spec: Path | str | None = None,
) -> Feeds | ImageFeeds:
    """Samples that come with an ONNX file, see `given_samples`; one feed of several rows is several samples.

    Args:
        spec: I/O spec that says the preprocessing; None: the one in the file.
    """
    model = file.model
    entry = (spec_inside(model) if spec is None else given_spec(spec)).image_input
    feeds = given_samples(samples, model, entry, preprocessing, skip_corrupt)
    return feeds.by_rows(model) if isinstance(feeds, Feeds) else feeds
