"""ONNX Runtime: sessions whose provider is chosen, read back and recorded, and the facts of the installed package.

A session that has the CUDA provider still runs a node without a CUDA kernel on the CPU provider, which computes FP16 in
FP32. A session on a GPU therefore profiles its first run and reads from it where each node ran. TF32 is off unless
asked for: it would round values that the file keeps in FP32.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from truehalf.errors import StageError, first_line, some_of
from truehalf.files import read_json
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    import onnx_ir as ir

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_FLOATS = {"float", "float16"}  # as profiles call the types
_MESSAGE_MAX = 400  # characters of a message of ONNX Runtime's
_BFLOAT16_SHOWN = 3
_SOURCE_LOCATION = re.compile(r"/onnxruntime_src/\S+:\d+ (?:[^()]*\([^()]*\) )?")  # file, line and C++ function
# Threads that wait spin as long as a small node takes: without, a run takes an eighth longer; and no longer: they would
# take the processor from those that work, other jobs and Python between two runs.
SPINNING = "session.intra_op.spin_duration_us"
_SHARED_FROM = 1024  # bytes; smaller constants may be needed to infer shapes
_IR_VERSION = 10  # of a model in memory, at most: ONNX Runtime from 1.18 on reads it, and onnx may write a later one


# --- the installed package --------------------------------------------------------------------------------------------


def loadable_providers() -> list[str]:
    """Execution providers that a session gets on this machine, each tried with a model of one node."""
    import onnxruntime as ort

    loadable = []
    for provider in ort.get_available_providers():
        with contextlib.suppress(StageError):
            loadable.append(Session(_one_node(), str(provider), profiled=False).provider)
    return loadable


@functools.cache
def contributed_types() -> dict[tuple[str, str], tuple[list[str], list[str], dict[str, set[str]]]]:
    """Type parameters of inputs and of outputs by domain and operator, of all that ONNX Runtime has, "" where a slot
    may have several; and the types that each parameter of an output allows.
    """
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    def parameters(slots: Iterable[Any]) -> list[str]:
        return [slot.typeStr if slot.isHomogeneous else "" for slot in slots]

    return {
        (each.domain, each.name): (
            parameters(each.inputs),
            parameters(each.outputs),
            {slot.typeStr: set(slot.types) for slot in each.outputs},
        )
        for each in sorted(get_all_operator_schema(), key=lambda schema: schema.since_version)
    }


def _load_cuda() -> None:
    """Load CUDA's libraries from the packages of this environment, torch's too: ONNX Runtime looks in the system's
    folders alone, and prints what it does not find.
    """
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    with contextlib.redirect_stdout(io.StringIO()):  # the session that needs a missing one says so
        ort.preload_dlls()


def _one_node() -> bytes:
    import onnx.parser

    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    return bytes(onnx.parser.parse_model(text).SerializeToString())


# --- sessions ---------------------------------------------------------------------------------------------------------


class Kernel(TypedDict):
    """A node that ran; `outputs` as element types."""

    name: str
    type: str
    provider: str
    outputs: list[str]


class Session:
    """A loaded model, a `Runner` of truehalf.verification.open_file.

    Attributes:
        provider: the execution provider that runs it, read back from ONNX Runtime.
        output_names: in the model's order.
        cpu_nodes: of a profiled session on a GPU, after its first run, the nodes of that run which computed floats on
            the CPU provider (see cpu_float_nodes); None before, and of any other. A branch not taken is not seen.
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
            provider: CPU or CUDA; neither is ever replaced by the other.
            optimize: graph optimisations, all or none.
            provider_options: of the provider, as ONNX Runtime names them.
            profiled: whether the first run says what ran where; by default on a GPU.
            options: further attributes of onnxruntime.SessionOptions; with a dot in the name, entries of its
                configuration ("session.disable_prepacking"); None leaves ONNX Runtime's default.

        Raises:
            StageError: when ONNX Runtime cannot load the model, the provider is not the one asked for, or the model
                computes, takes or returns bfloat16.
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
            _load_cuda()
        what = str(model) if isinstance(model, (Path, str)) else "the model"
        wanted = [(provider, ({"use_tf32": "0"} if provider == CUDA else {}) | dict(provider_options or {}))]
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # on which ONNX Runtime says that it falls back
                self._session = _open(model, settings, wanted)
        except OSError:
            raise
        except Exception as error:  # the exception types of ONNX Runtime share no base but Exception
            check_no_bfloat16(model)
            message = _first_line(error)
            if "two nodes with same node name" in message:
                message += ". `truehalf repair` gives each node a name of its own"
            raise StageError("runtime-refuses", f"ONNX Runtime cannot load {what}: {message}") from error
        if any("bfloat16" in value.type for value in (*self._session.get_inputs(), *self._session.get_outputs())):
            check_no_bfloat16(model)
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
        """Outputs by name; a sequence or an optional is one vector of all its values.

        Raises:
            StageError: when the run fails, with ONNX Runtime's first line.
        """
        names = list(outputs) if outputs is not None else self.output_names
        try:
            values = self._session.run(names, dict(feeds))
        except Exception as error:
            raise StageError("runtime-refuses", f"ONNX Runtime cannot run the model: {_first_line(error)}") from error
        if self._profile is not None:
            self.kernels = kernels_of(read_json(Path(self._session.end_profiling())))
            self.cpu_nodes = None if self.provider == CPU else cpu_float_nodes(self.kernels)
            self._profile.cleanup()
            self._profile = None
        return {name: _as_array(value) for name, value in zip(names, values, strict=True)}


def cpu_float_nodes(kernels: Iterable[Kernel]) -> list[str]:
    """The nodes that output floats from the CPU provider, each as `name (operator)`, in the order of their runs.

    Shapes and indices belong on the CPU, so nodes without a float output do not count; nor do Casts, which round to
    FP16 there as well.
    """
    floats = [kernel for kernel in kernels if kernel["type"] != "Cast" and _FLOATS.intersection(kernel["outputs"])]
    return list(dict.fromkeys(f"{node['name']} ({node['type']})" for node in floats if node["provider"] == CPU))


def kernels_of(events: Iterable[JsonObject]) -> list[Kernel]:
    """Read the kernels that ran, in order, from the events of a profile of ONNX Runtime."""
    ran: Any = events
    return [
        {
            "name": str(event["name"]).removesuffix("_kernel_time"),
            "type": event["args"]["op_name"],
            "provider": event["args"]["provider"],
            "outputs": [name for tensor in event["args"].get("output_type_shape", []) for name in tensor],
        }
        for event in ran
        if (event.get("args") or {}).get("provider") and str(event.get("name", "")).endswith("_kernel_time")
    ]


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    tensors = [np.ravel(tensor) for tensor in value or ()]
    return np.concatenate(tensors) if tensors else np.zeros(0, np.float32)


def _profiled(settings: Any) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="truehalf-profile-")
    settings.enable_profiling = True
    settings.profile_file_prefix = str(Path(folder.name) / "run")
    return folder


def _open(model: Path | str | bytes | ir.Model, settings: Any, providers: list[Any]) -> Any:
    import onnxruntime as ort

    from truehalf.ir.model_file import load_model

    if isinstance(model, (Path, str)):
        try:
            return ort.InferenceSession(str(model), settings, providers=providers)
        except Exception as error:
            if "max supported IR version" not in str(error):
                raise
            model = load_model(Path(model))
    if isinstance(model, bytes):
        return ort.InferenceSession(model, settings, providers=providers)
    data, weights = _without_weights(model)
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    settings.add_external_initializers(list(weights), values)  # copied when the session is made
    return ort.InferenceSession(data, settings, providers=providers)


def _without_weights(model: ir.Model) -> tuple[bytes, dict[str, np.ndarray]]:
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
        proto.ir_version = min(proto.ir_version, _IR_VERSION)
        return proto.SerializeToString(), weights
    finally:
        for value, tensor in (*tensors.items(), *in_files.items()):
            value.const_value = tensor


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(error: StageError, model: ir.Model, remedy: str) -> StageError:
    """ONNX Runtime's error with the operators of the model that are not ONNX's, if there are such.

    Args:
        remedy: how the model is converted without running it.
    """
    unknown = custom_operators(model) if error.code == "runtime-refuses" else []
    if not unknown:
        return StageError(error.code, error.text)
    return StageError(
        "not-supported",
        f"{error.text}. The model has operators that neither ONNX nor a function of the file defines, and that "
        f"ONNX Runtime may not have ({', '.join(unknown)}). Plugins of TensorRT are left out of a run where they stand "
        f"in the graph itself, no body and no function, and behind something to run: export it so, or {remedy}",
    )


def custom_operators(model: ir.Model) -> list[str]:
    """Operators that neither ONNX nor ONNX Runtime has, as domain::Op."""
    from onnx.defs import has

    from truehalf.ir.facts import all_nodes
    from truehalf.ir.proto.plugins import is_known

    unknown = (node for node in all_nodes(model) if not (is_known(node.domain) if node.domain else has(node.op_type)))
    return sorted({f"{node.domain}::{node.op_type}".removeprefix("::") for node in unknown})


def check_no_bfloat16(model: Path | str | bytes | ir.Model) -> None:
    """Refuse a model that holds bfloat16 values, as far as it can be read.

    Raises:
        StageError: naming the first inputs and nodes.
    """
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes, label_of
    from truehalf.ir.model_file import load_model
    from truehalf.ir.normalize import NORMALIZE

    if isinstance(model, bytes):
        return
    try:
        typed = model.clone() if isinstance(model, ir.Model) else load_model(model)
        NORMALIZE(typed)
    except StageError:
        return
    made = [(f"input {value.name!r}", value) for value in typed.graph.inputs]
    made += [(f"{node.op_type} {label_of(node)!r}", value) for node in all_nodes(typed) for value in node.outputs]
    places = [place for place, value in made if value.dtype == ir.DataType.BFLOAT16]
    if places:
        text = f"the model is bfloat16 ({some_of(places, _BFLOAT16_SHOWN)}), which neither ONNX Runtime on a CPU nor"
        raise StageError("not-supported", f"{text} numpy computes: give the float32 model, or export it in float32")


def _first_line(error: Exception) -> str:
    """Without the location in the sources of ONNX Runtime, and cut where it is long."""
    return _SOURCE_LOCATION.sub("", first_line(error))[:_MESSAGE_MAX].rstrip(". ")
