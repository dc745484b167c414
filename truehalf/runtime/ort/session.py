"""ONNX Runtime sessions whose provider is chosen, read back and recorded.

That a session has the CUDA provider does not say where a node runs: one without a CUDA kernel runs on the CPU provider,
which computes FP16 in FP32. A session on a GPU therefore profiles its first run and reads from it where each node ran.
TF32 is off unless asked for: it would round what the file keeps in FP32.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from truehalf.errors import StageError, first_line
from truehalf.files import read_json
from truehalf.runtime.ort.bfloat16 import remedy_of
from truehalf.runtime.ort.installed import CPU, load_cuda, newest_ir_version

if TYPE_CHECKING:
    import onnx_ir as ir

CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
_FLOATS = {"float", "float16"}  # as profiles call the types
_NAMES_REPEATED = ". `truehalf repair` gives each node a name of its own"
_MESSAGE_MAX = 400  # characters of a message of ONNX Runtime's
_BFLOAT16_ENDS = "; its inputs or outputs are bfloat16, which numpy has not: export it with float32 ones"
_SOURCE_LOCATION = re.compile(r"/onnxruntime_src/\S+:\d+ (?:[^()]*\([^()]*\) )?")  # file, line and C++ function
# Threads that wait spin as long as a small node takes: without, a run takes an eighth longer; and no longer: they would
# take the processor from those that work, other jobs and Python between two runs.
SPINNING = "session.intra_op.spin_duration_us"
_SHARED_FROM = 1024  # bytes; smaller constants may be needed to infer shapes


class Arguments(TypedDict, total=False):
    op_name: str
    provider: str
    input_type_shape: list[dict[str, list[int]]]
    output_type_shape: list[dict[str, list[int]]]


class Event(TypedDict, total=False):
    """An event of a profile of ONNX Runtime, as far as it is read."""

    name: str
    args: Arguments


class Kernel(TypedDict):
    """What ran; `inputs` and `outputs` as element types."""

    name: str
    type: str
    provider: str
    inputs: list[str]
    outputs: list[str]


class Session:
    """A loaded model.

    Attributes:
        provider: the execution provider that runs it, read back from ONNX Runtime.
        output_names: in the model's order.
        cpu_nodes: of a profiled session, after its first run, the nodes of that run which computed floats on the CPU
            provider (see cpu_float_nodes); None before, and of any other. A branch not taken is not seen.
        kernels: of a profiled session, after its first run, all that ran in it (see kernels_of); None before.
        not_split: FP16 nodes whose inner sums are not rounded though that was asked for, each with the reason: none.
    """

    cpu_nodes: list[str] | None = None
    kernels: list[Kernel] | None = None

    def __init__(
        self,
        model: Path | str | bytes | ir.Model,
        provider: str = CPU,
        optimize: bool = True,
        *,
        provider_options: Mapping[str, str] | None = None,
        profiled: bool | None = None,
        **options: Any,
    ) -> None:
        """Load a model from a file, from serialized bytes, or from an onnx_ir model in memory.

        Args:
            model: path (needed when weights are external), bytes, or model. The weights of a model in memory are
                handed over as they lie there, so 2 GiB, where a protobuf message ends, are no limit.
            provider: CPU, CUDA or TENSORRT; none of them is ever replaced by another.
            optimize: graph optimisations, all or none.
            provider_options: of the provider, as ONNX Runtime names them.
            profiled: whether the first run says what ran where; by default on a GPU.
            options: further attributes of onnxruntime.SessionOptions; with a dot in the name, entries of its
                configuration ("session.disable_prepacking"); None leaves ONNX Runtime's default.

        Raises:
            StageError: when ONNX Runtime cannot load the model, or the provider is not the one asked for.
        """
        import onnxruntime as ort

        level = ort.GraphOptimizationLevel
        settings = ort.SessionOptions()
        settings.log_severity_level = 4  # it prints nothing but what ends the process: what fails is raised
        settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
        settings.enable_mem_pattern = False  # it holds a second arena for every shape of feeds: 1.6 GB at 8 x 640 x 640
        for name, value in ({SPINNING: "50"} | options).items():
            if value is not None:
                settings.add_session_config_entry(name, value) if "." in name else setattr(settings, name, value)
        self._profile = _profiled(settings) if (provider != CPU if profiled is None else profiled) else None
        if provider not in ort.get_available_providers():
            message = f"ONNX Runtime has no {provider} here; it has {', '.join(ort.get_available_providers())}"
            raise StageError("no-device", message)
        if provider != CPU:
            load_cuda()
        what = str(model) if isinstance(model, (Path, str)) else "the model"
        try:
            self._session = _open(model, settings, provider, provider_options or {})
        except OSError:
            raise
        except Exception as error:  # the exception types of ONNX Runtime share no base but Exception
            said = _first_line(error)
            repeated = _NAMES_REPEATED if "two nodes with same node name" in said else ""
            text = f"ONNX Runtime cannot load {what}: {said}{repeated}{remedy_of(model)}"
            raise StageError("runtime-refuses", text) from error
        self.provider: str = self._session.get_providers()[0]
        if self.provider != provider:
            message = f"ONNX Runtime fell back to {self.provider} where {provider} was asked for; check its libraries"
            raise StageError("no-device", message)
        self.output_names = [value.name for value in self._session.get_outputs()]
        self.not_split: dict[str, str] = {}

    def close(self) -> None:
        """Free the model; the session runs no more."""
        self._session = None

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name; what is no tensor, a sequence or an optional, is one vector of all its values.

        Raises:
            StageError: when the run fails, with ONNX Runtime's first line.
        """
        names = list(outputs) if outputs is not None else self.output_names
        try:
            values = self._session.run(names, dict(feeds))
        except Exception as error:
            ends = (*self._session.get_inputs(), *self._session.get_outputs()) if self._session is not None else ()
            why = _BFLOAT16_ENDS if any("bfloat16" in value.type for value in ends) else ""
            text = f"ONNX Runtime cannot run the model: {_first_line(error)}{why}"
            raise StageError("runtime-refuses", text) from error
        if self._profile is not None:
            self.kernels = kernels_of(read_json(Path(self._session.end_profiling())))
            self.cpu_nodes = cpu_float_nodes(self.kernels)
            self._profile.cleanup()
            self._profile = None
        return {name: _as_array(value) for name, value in zip(names, values, strict=True)}

    def prepared(self, feeds: Mapping[str, np.ndarray]) -> Callable[[], Callable[[], list[np.ndarray]]]:
        """A call that runs the model on these inputs, to be timed: inputs and outputs stay on the provider's device.

        Returns:
            the call; what it returns reads the outputs, in the model's order, from the device when it is called.
        """
        import onnxruntime as ort

        device = "cpu" if self.provider == CPU else "cuda"
        binding = self._session.io_binding()
        values = {name: ort.OrtValue.ortvalue_from_numpy(array, device, 0) for name, array in feeds.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.output_names:
            binding.bind_output(name, device)

        def once(_inputs: Any = values) -> Callable[[], list[np.ndarray]]:  # the binding does not keep them alive
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            read: Callable[[], list[np.ndarray]] = binding.copy_outputs_to_cpu
            return read

        return once


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    tensors = [np.ravel(each) for each in value or ()]
    return np.concatenate(tensors) if tensors else np.zeros(0, np.float32)


def cpu_float_nodes(kernels: Iterable[Kernel]) -> list[str]:
    """The nodes that output floats from the CPU provider, each as `name (operator)`, in the order of their runs.

    Shapes and indices belong on the CPU, so nodes without a float output do not count; nor do Casts, which round to
    FP16 there as well.
    """
    floats = [each for each in kernels if each["type"] != "Cast" and _FLOATS.intersection(each["outputs"])]
    return list(dict.fromkeys(f"{each['name']} ({each['type']})" for each in floats if each["provider"] == CPU))


def kernels_of(events: Iterable[Event]) -> list[Kernel]:
    """What ran, in order.

    Args:
        events: a profile of ONNX Runtime, as read from its JSON file.
    """
    return [
        {
            "name": str(event["name"]).removesuffix("_kernel_time"),
            "type": event["args"]["op_name"],
            "provider": event["args"]["provider"],
            "inputs": _types(event["args"].get("input_type_shape", [])),
            "outputs": _types(event["args"].get("output_type_shape", [])),
        }
        for event in events
        if (event.get("args") or {}).get("provider") and str(event.get("name", "")).endswith("_kernel_time")
    ]


def _types(tensors: Iterable[Mapping[str, list[int]]]) -> list[str]:
    return [name for tensor in tensors for name in tensor]


def _profiled(settings: Any) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="truehalf-profile-")
    settings.enable_profiling = True
    settings.profile_file_prefix = str(Path(folder.name) / "run")
    return folder


def _open(model: Path | str | bytes | ir.Model, settings: Any, provider: str, options: Mapping[str, str]) -> Any:
    import onnxruntime as ort

    providers: list[Any] = [(provider, ({"use_tf32": "0"} if provider == CUDA else {}) | dict(options))]
    if provider == TENSORRT:  # what TensorRT does not take stays on the GPU
        providers.append((CUDA, {"use_tf32": "0"}))
    if isinstance(model, (Path, str)):
        try:
            return ort.InferenceSession(str(model), settings, providers=providers)
        except Exception:
            if (newer := _of_newer_form(Path(model))) is None:
                raise
            model = newer
    if isinstance(model, bytes):
        return ort.InferenceSession(model, settings, providers=providers)
    data, weights = _apart(model)
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    settings.add_external_initializers(list(weights), values)  # copied when the session is made
    return ort.InferenceSession(data, settings, providers=providers)


def _of_newer_form(path: Path) -> ir.Model | None:
    """A file of a later IR version than ONNX Runtime reads, in memory; None of any other file."""
    from truehalf.ir.model_file import load_model

    with contextlib.suppress(StageError):  # of no model; ONNX Runtime has said so
        model = load_model(path)
        return model if (model.ir_version or 0) > newest_ir_version() else None
    return None


def _apart(model: ir.Model) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model in memory as bytes without its larger weights, and these; no weight is left in a file."""
    import onnx_ir as ir

    shared = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}
    tensors = {
        value: tensor
        for value in model.graph.initializers.values()
        if (tensor := value.const_value) is not None and tensor.dtype in shared and tensor.nbytes >= _SHARED_FROM
        if value.uses() and not value.is_graph_input()  # ONNX Runtime does not find one that nothing reads
    }
    weights = {str(value.name): np.ascontiguousarray(tensor.numpy()) for value, tensor in tensors.items()}
    in_files = {
        value: tensor
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(tensor := value.const_value, ir.ExternalTensor) and value not in tensors
    }
    try:
        for value, tensor in in_files.items():
            value.const_value = ir.Tensor(tensor.numpy(), tensor.dtype, shape=tensor.shape, name=tensor.name)
        for value, tensor in tensors.items():
            value.const_value = ir.ExternalTensor(
                "weights", 0, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=str(value.name)
            )
        proto = ir.to_proto(model)
        proto.ir_version = min(proto.ir_version, newest_ir_version())
        return proto.SerializeToString(), weights
    finally:
        for value, tensor in (*tensors.items(), *in_files.items()):
            value.const_value = tensor


def _first_line(error: Exception) -> str:
    """Without the location in the sources of ONNX Runtime, and cut where it is long."""
    return _SOURCE_LOCATION.sub("", first_line(error))[:_MESSAGE_MAX].rstrip(". ")
