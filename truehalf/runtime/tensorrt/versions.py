"""Versions of TensorRT, forms of a plan and of facts, and what the machine has."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import NamedTuple, NotRequired, TypedDict

Profile = dict[str, dict[str, list[int]]]  # input -> {"min" | "opt" | "max": a shape; of a shape tensor its values}


class Graph(TypedDict, total=False):
    """`graph` of a plan: nodes of the file; their names in the plans of TensorRT."""

    float_nodes: int
    fp16_nodes: int
    fp16_node_names: list[str]


class Plugin(TypedDict):
    path: str
    sha256: str


class BuilderOptions(TypedDict):
    """`builder` of a plan, see conf/engine/tensorrt.yaml."""

    memory_pools_gb: dict[str, float]
    builder_optimization_level: int | None
    max_aux_streams: int | None
    tiling_optimization_level: str
    tf32: bool
    timing_cache: str | None
    editable_timing_cache: bool
    version_compatible: bool
    hardware_compatibility: str
    refit: bool
    strip_weights: bool
    profiling_verbosity: str


class Plan(TypedDict):
    """What plan.json says of the model, whatever is to run it."""

    onnx: str
    onnx_data: list[str]
    onnx_sha256: str
    declared: str
    graph: Graph
    profiles: list[Profile]
    plugins: list[Plugin]


class Target(TypedDict):
    """GPUs that an engine is for, by compute capability: ["sm86", ...]; none: TensorRT's default."""

    compute_capability: list[str]


class BuildPlan(Plan):
    """What a build reads of plan.json."""

    engine: str
    builder: BuilderOptions
    target: NotRequired[Target]


class ParserError(TypedDict):
    node: str
    op_type: str
    message: str
    code: str


class Port(TypedDict):
    """An input or output: mode "INPUT" or "OUTPUT", dtype as the runtime calls it, -1 for an axis that varies."""

    name: str
    mode: str
    dtype: str | None
    shape: list[int]


class Layer(TypedDict, total=False):
    """A row of the layer table. Types are TensorRT's names, None where not known. Layers of an engine have `weights`
    (their type), `constants` and `onnx_nodes`, kernels of ONNX Runtime `provider`.
    """

    name: str
    type: str | None
    inputs: list[str | None]
    outputs: list[str | None]
    weights: str | None
    constants: list[str | None]
    onnx_nodes: list[str]
    provider: str


class CacheUse(TypedDict):
    file: str
    loaded: bool
    saved: bool


class EngineFacts(TypedDict, total=False):
    """Facts of an engine that was made, as engine.json has them.

    Attributes:
        tensorrt, gpu, onnxruntime, provider: versions and names.
        engine_mb, build_seconds, device_memory_mb: 10^6 bytes; seconds; 10^6 bytes of one execution context.
        layers, half_layers, half_layers_fraction: layers; those that compute with a Half output; their share of those
            that compute floats.
        half_io_fraction: share of Half in all float inputs and outputs of layers.
        layer_table: each layer's name, type, types and ONNX nodes.
        nodes_by_provider, cpu_nodes: of ONNX Runtime.
        io: inputs and outputs.
        inspection_fault: what TensorRT did not report, and why; None: nothing.
        timing_cache, warnings: file, loaded, saved; TensorRT's warnings, each once.
    """

    tensorrt: str
    gpu: str | None
    onnxruntime: str
    provider: str
    engine: str
    engine_mb: float
    build_seconds: float
    layers: int | None
    half_layers: int | None
    half_layers_fraction: float | None
    half_io_fraction: float | None
    layer_table: list[Layer]
    nodes_by_provider: dict[str, int]
    cpu_nodes: list[str]
    device_memory_mb: float | None
    io: list[Port]
    inspection_fault: str | None
    timing_cache: CacheUse | None
    warnings: list[str]


class Version(NamedTuple):
    """What one major version of TensorRT wants otherwise than another."""

    network_flags: tuple[str, ...]  # members of NetworkDefinitionCreationFlag that make a network strongly typed
    trtexec: tuple[str, ...]  # the same for trtexec
    inspector_dtype: tuple[str, ...]  # keys of the engine inspector's JSON that hold a tensor's type, best first


TENSORRT, RTX = "tensorrt", "tensorrt_rtx"  # modules with one API
VERSIONS: dict[int, Version] = {
    1: Version((), (), ("Datatype",)),  # TensorRT for RTX, with the API of TensorRT 11
    10: Version(("STRONGLY_TYPED",), ("--stronglyTyped",), ("Format/Datatype", "Format/DataType")),
    11: Version((), (), ("DataType", "Datatype", "Format", "Format/DataType", "Format/Datatype")),
}
BUILDER_FLAGS = {  # option of a plan -> member of BuilderFlag
    "tf32": "TF32",
    "editable_timing_cache": "EDITABLE_TIMING_CACHE",
    "version_compatible": "VERSION_COMPATIBLE",
    "refit": "REFIT",
    "strip_weights": "STRIP_PLAN",
}
BUILDER_OPTIONS = tuple(BuilderOptions.__annotations__)


class BuildError(Exception):
    """No engine that can be used: the text is complete, and its first line ends with the code.

    Attributes:
        code: of truehalf.codes.
        errors: of the parser: {node, op_type, message, code}.
        facts: where a file was written all the same, what is known of it, in the shape of `build`'s; else None.
    """

    def __init__(
        self, code: str, message: str, errors: Iterable[ParserError] = (), facts: EngineFacts | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        first, newline, rest = message.partition("\n")
        self._message = f"{first} [{code}]{newline}{rest}"
        self.errors, self.facts = list(errors), facts

    def __str__(self) -> str:
        return self._message


def tensorrt_version(module: str = TENSORRT) -> str | None:
    """Version of the module "tensorrt" or "tensorrt_rtx", or None when it cannot be imported here."""
    try:
        return str(importlib.import_module(module).__version__)
    except (ImportError, OSError):
        return None


_INSTALL = {TENSORRT: "'truehalf[tensorrt]' from NVIDIA's channel", RTX: "'truehalf[rtx]'"}


# Compute capabilities, beside all from 12.0 on, whose GPUs TensorRT for RTX 1.7 runs engines on; not those of data
# centres from Hopper to Blackwell, nor Jetson's.
_OF_RTX = ("7.5", "8.0", "8.6", "8.9")


def unavailable_reason(capability: str | None, module: str, version: str | None) -> str | None:
    """Why no engine can be built and run on a machine with a GPU of that compute capability, or None without a GPU, and
    with that version of "tensorrt" or "tensorrt_rtx"; None when one can.
    """
    missing = []
    if capability is None:
        missing.append("no NVIDIA GPU (neither nvidia-smi nor the driver finds one)")
    elif module == RTX and capability not in _OF_RTX and float(capability) < 12:
        runs = f"{', '.join(_OF_RTX)} and from 12.0 on"
        missing.append(f"a GPU of compute capability {capability}: TensorRT for RTX runs on {runs}")
    if not version:
        called = "TensorRT" if module == TENSORRT else "TensorRT for RTX"
        missing.append(f"{called} cannot be imported (pip install {_INSTALL[module]})")
    return " and ".join(missing) or None


def version_of(version: str) -> Version:
    """The row of VERSIONS for a version such as "11.4.0.106".

    Raises:
        BuildError: for another major version.
    """
    major = int(version.split(".")[0])
    if major not in VERSIONS:
        known = " and ".join(f"{one}.x" for one in VERSIONS if one > 1) + ", or TensorRT for RTX 1.x"
        raise BuildError("package-missing", f"TensorRT {version}: expected {known}; install one of these")
    return VERSIONS[major]


def quoted(messages: list[str]) -> str:
    """The last messages of a log, each on a line of its own below the text that they follow."""
    return "".join(f"\n  {line}" for line in messages[-20:])
