"""Model as a source gives it: the module or file, its inputs, its outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.io_spec.spec import InputSpec, OutputSpec

if TYPE_CHECKING:
    import torch

Task = StrEnum("Task", ["detection", "classification"])


# What the networks of DETR's family give, whose scores are sigmoid's.
QUERIES = (
    OutputSpec("logits", "logits", activation="sigmoid"),
    OutputSpec("boxes", "boxes", format="cxcywh", normalized=True),
)


@dataclass(frozen=True)
class Model:
    """A model as its source gives it.

    Attributes:
        module: in eval mode, on the CPU, in FP32: takes tensors by position and returns a tuple of tensors, in the
            order of `inputs` and `outputs`. Of an ONNX file: a module that runs it in ONNX Runtime.
        inputs: in the order in which the module takes them, as the I/O spec will have them; "?" is a side that a run
            decides.
        outputs: what the I/O spec will say; dtype and shape are those of a run.
        class_names: in the order of the model's classes.
        trained: whether there are weights to trust.
        file: the ONNX file, where there is no module to trace.
        axes: of a file, the names of the axes that vary, by input and output; else trace.dynamic_axes says them.
        batch: of a file, the number of samples that its inputs are fixed to, if they are.
        prepared: entered while the module is exported (fused modules, `deploy()`); restores it when left.
        notes: sentences for trace's report, such as which key of a checkpoint was taken.
    """

    module: torch.nn.Module
    inputs: Sequence[InputSpec]
    outputs: Sequence[OutputSpec]
    class_names: Sequence[str]
    trained: bool
    file: Path | None = None
    axes: Mapping[str, Mapping[int, str]] | None = None
    batch: int | None = None
    prepared: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    notes: Sequence[str] = ()
