"""ONNX Runtime sessions whose provider is chosen, read back and recorded."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.io import StageError

if TYPE_CHECKING:
    import onnx_ir as ir

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
_EXTERNAL_DATA_FROM = 1_500_000_000  # bytes of weights; protobuf messages end at 2 GiB


class Session:
    """A loaded model.

    Attributes:
        provider: the execution provider that runs it, read back from ONNX Runtime.
        input_names, output_names: in the model's order.
    """

    def __init__(
        self, model: Path | str | bytes | ir.Model, provider: str = CPU, optimize: bool = True, **options: Any
    ) -> None:
        """Load a model from a file, from serialized bytes, or from an onnx_ir model in memory.

        Args:
            model: path (needed when weights are external), bytes, or model; the weights of a model in memory go
                through a temporary file when they exceed 1.5 GB.
            provider: CPU or CUDA; CUDA is never replaced by CPU.
            optimize: graph optimisations, all or none.
            options: further attributes of onnxruntime.SessionOptions.

        Raises:
            StageError: when ONNX Runtime cannot load the model, or the provider is not the one asked for.
        """
        import onnxruntime as ort

        level = ort.GraphOptimizationLevel
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
        for name, value in options.items():
            setattr(settings, name, value)
        if provider not in ort.get_available_providers():
            raise StageError(f"ONNX Runtime has no {provider} here; it has {', '.join(ort.get_available_providers())}")
        what = str(model) if isinstance(model, (Path, str)) else "the model"
        try:
            self._session = _open(model, settings, provider)
        except OSError:
            raise
        except Exception as error:  # ONNX Runtime's own exception types share no base but Exception
            raise StageError(f"ONNX Runtime cannot load {what}: {_first_line(error)}") from error
        self.provider: str = self._session.get_providers()[0]
        if self.provider != provider:
            raise StageError(
                f"ONNX Runtime fell back to {self.provider} where {provider} was asked for; check its libraries"
            )
        self.input_names = [value.name for value in self._session.get_inputs()]
        self.output_names = [value.name for value in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name.

        Raises:
            StageError: when the run fails, with ONNX Runtime's first line.
        """
        names = list(outputs) if outputs is not None else self.output_names
        try:
            values = self._session.run(names, dict(feeds))
        except Exception as error:
            raise StageError(f"ONNX Runtime cannot run the model: {_first_line(error)}") from error
        return dict(zip(names, values, strict=True))


def _open(model: Path | str | bytes | ir.Model, settings: Any, provider: str) -> Any:
    import onnxruntime as ort

    if isinstance(model, (Path, str)):
        return ort.InferenceSession(str(model), settings, providers=[provider])
    if isinstance(model, bytes):
        return ort.InferenceSession(model, settings, providers=[provider])
    import onnx_ir as ir

    weights = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    if weights < _EXTERNAL_DATA_FROM:
        return ort.InferenceSession(ir.to_proto(model).SerializeToString(), settings, providers=[provider])
    with tempfile.TemporaryDirectory(prefix="truehalf-") as folder:
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="model.onnx.data")
        return ort.InferenceSession(str(path), settings, providers=[provider])


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:400] if lines else type(error).__name__


def runtime_version() -> str:
    """Version of the installed ONNX Runtime."""
    import onnxruntime as ort

    return str(ort.__version__)


def built_providers() -> list[str]:
    """Execution providers that the installed ONNX Runtime was built with; whether one loads, only a session tells."""
    import onnxruntime as ort

    return list(ort.get_available_providers())
