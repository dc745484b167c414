"""Run a mixed FP32/FP16 file with emulated rounding, on the CPU (see truehalf.emulation.emulate)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.emulation.emulate import emulate
from truehalf.emulation.half_nodes import NOT_SPLIT
from truehalf.emulation.pessimistic import split_sums
from truehalf.ir.model_file import load_model
from truehalf.runtime.ort import Session


class EmulatedSession:
    """Like truehalf.runtime.ort.Session; FP16 inputs and outputs appear as float32 that hold FP16 numbers.

    Attributes:
        provider: the execution provider that runs the emulation, read back from ONNX Runtime.
        cpu_nodes: None: all of them run there.
        not_split: the FP16 nodes whose inner sums are not rounded, or not everywhere, each with the reason: CumSum,
            and in a pessimistic session all that add up.
    """

    cpu_nodes: list[str] | None = None

    def __init__(self, model: Path | str | ir.Model, *, pessimistic: bool = False, **options: Any) -> None:
        """Load a model and emulate it.

        Args:
            model: path or loaded model; FP32 copies of all its weights must fit in memory.
            pessimistic: round the sums inside FP16 nodes, too, as an engine may that accumulates in FP16.
            options: further attributes of onnxruntime.SessionOptions.

        Raises:
            StageError: when the file cannot be loaded or emulated.
        """
        loaded = load_model(model) if isinstance(model, (Path, str)) else model
        emulated = emulate(split_sums(loaded) if pessimistic else loaded)
        self.not_split: dict[str, str] = emulated.meta[NOT_SPLIT]
        self._session = Session(emulated, **options)
        self.provider = self._session.provider

    def close(self) -> None:
        """Free the model; the session runs no more."""
        self._session.close()

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name; float ones are float32.

        Raises:
            StageError: when the run fails.
        """
        return self._session.run(widened(feeds), outputs)


def widened(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """float16 arrays as float32."""
    return {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in feeds.items()}
