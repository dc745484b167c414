"""Options of the engine: types, defaults, bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from truehalf.codes import coded
from truehalf.config.bounds import outside
from truehalf.config.selector_entries import fault_of_op

# What engine.memory_pools_gb may name: TensorRT's pools, in lower case.
MEMORY_POOLS = (
    "workspace",
    "dla_managed_sram",
    "dla_local_dram",
    "dla_global_dram",
    "tactic_dram",
    "tactic_shared_memory",
)
# Of the options of TensorRT's builder, those that each execution provider of ONNX Runtime has. TensorRT's has
# no option for TF32, which a variable of the environment switches off.
PROVIDER_TAKES: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "cuda": ("tf32",),
    "tensorrt": (
        *("memory_pools_gb.workspace", "builder_optimization_level", "max_aux_streams", "tf32", "timing_cache"),
        *("hardware_compatibility", "plugins"),
    ),
}
# Values by which each of these options asks for nothing; what a provider has no option for must have them.
ASKS_NOTHING: dict[str, object] = {
    "builder_optimization_level": None,
    "max_aux_streams": None,
    "tiling_optimization_level": "none",
    "tf32": False,
    "editable_timing_cache": False,
    "version_compatible": False,
    "hardware_compatibility": "none",
    "refit": False,
    "strip_weights": False,
    "plugins": [],
}


class Backend(Enum):
    tensorrt = "tensorrt"
    onnxruntime = "onnxruntime"


class Provider(Enum):
    cuda = "cuda"
    tensorrt = "tensorrt"
    cpu = "cpu"


class TilingLevel(Enum):
    none = "none"
    fast = "fast"
    moderate = "moderate"
    full = "full"


class HardwareCompatibility(Enum):
    none = "none"
    ampere_plus = "ampere_plus"
    same_compute_capability = "same_compute_capability"


class ProfilingVerbosity(Enum):
    detailed = "detailed"
    layer_names_only = "layer_names_only"
    none = "none"


class WhenUnavailable(Enum):
    plan = "plan"
    fail = "fail"


@dataclass(frozen=True)
class ProfileShapes:
    """One input of one profile: shapes, null where the model fixes the side; of a shape tensor its values."""

    min: list[int | None]
    opt: list[int | None]
    max: list[int | None]


@dataclass(frozen=True)
class LatencyConfig:
    warm_up: int = 20
    runs: int = 200
    rounds: int = 2


@dataclass(frozen=True)
class EngineConfig:
    """See engine/tensorrt.yaml for the meaning of each key."""

    backend: Backend = Backend.tensorrt
    provider: Provider | None = None
    profiles: list[dict[str, ProfileShapes]] | None = None
    memory_pools_gb: dict[str, float] = field(default_factory=lambda: {"workspace": 4.0})
    builder_optimization_level: int | None = None
    max_aux_streams: int | None = None
    tiling_optimization_level: TilingLevel = TilingLevel.none
    tf32: bool = False
    timing_cache: str | None = ".timing_cache"
    editable_timing_cache: bool = False
    version_compatible: bool = False
    hardware_compatibility: HardwareCompatibility = HardwareCompatibility.none
    refit: bool = False
    strip_weights: bool = False
    profiling_verbosity: ProfilingVerbosity = ProfilingVerbosity.detailed
    plugins: list[str] = field(default_factory=list)
    plugin_ops: list[str] = field(default_factory=list)
    when_unavailable: WhenUnavailable = WhenUnavailable.plan
    build_unverified: bool = False
    latency: LatencyConfig = LatencyConfig()


def faults_of_engine(e: EngineConfig) -> Iterator[str]:
    """Bounds and rules of the section `engine` by itself; the API states one without the rest."""
    yield from _bounds_of_engine(e)
    if e.backend is Backend.onnxruntime and e.provider is None:
        yield coded("needs-value", "engine.provider: engine=onnxruntime needs one of cuda, tensorrt, cpu, got null")
    if e.backend is Backend.tensorrt and e.provider is not None:
        yield coded(
            "in-conflict",
            f"engine.provider: of ONNX Runtime, and engine.backend is tensorrt; got {e.provider.value!r}; choose "
            f"engine=onnxruntime engine.provider={e.provider.value}, or leave it null",
        )
    if e.editable_timing_cache and e.timing_cache is None:
        yield coded(
            "needs-value", "engine.editable_timing_cache: needs engine.timing_cache, a folder for the cache, got null"
        )
    yield from _options_that_no_provider_takes(e)
    yield from _faults_of_plugin_ops(e)
    for i, file in enumerate(e.plugins):
        if not re.fullmatch(r".*[^/\\]\.(so(\.\d+)*|dll)", file):
            yield coded(
                "bad-syntax",
                f"engine.plugins[{i}]: expected the file of a library, such as build/libmine.so, got {file!r}",
            )


def _faults_of_plugin_ops(e: EngineConfig) -> Iterator[str]:
    if e.plugin_ops and not e.plugins:
        yield coded(
            "needs-value",
            "engine.plugin_ops: names operators of plugins, and engine.plugins is empty; name their libraries there",
        )
    for i, entry in enumerate(e.plugin_ops):
        if found := fault_of_op(entry):
            yield coded("bad-syntax", f"engine.plugin_ops[{i}]: {entry!r} {found}")


def _options_that_no_provider_takes(e: EngineConfig) -> Iterator[str]:
    """Options of TensorRT's builder that ask ONNX Runtime's provider that it does not have."""
    if e.backend is not Backend.onnxruntime or e.provider is None:
        return
    provider, takes = e.provider.value, PROVIDER_TAKES[e.provider.value]
    refused = f"ONNX Runtime's provider {provider!r} has no option for it"
    for name, nothing in ASKS_NOTHING.items():
        value = getattr(e, name)
        given = value.value if isinstance(value, Enum) else value
        if name not in takes and given != nothing:
            yield coded(
                "in-conflict",
                f"engine.{name}: {refused}; expected {shown(nothing)}, got {shown(given)}; engine=tensorrt takes it",
            )
    for pool in e.memory_pools_gb:
        if pool != "workspace":
            yield coded(
                "in-conflict", f"engine.memory_pools_gb.{pool}: {refused}; leave it out; engine=tensorrt takes it"
            )
    if e.provider is Provider.tensorrt and e.hardware_compatibility is HardwareCompatibility.same_compute_capability:
        yield coded(
            "in-conflict",
            "engine.hardware_compatibility: ONNX Runtime's provider 'tensorrt' knows ampere_plus alone; expected none "
            "or ampere_plus, got same_compute_capability; engine=tensorrt takes it",
        )


def shown(value: object) -> str:
    """A value as one would write it on the command line."""
    return json.dumps(value).replace('"', "")


def _bounds_of_engine(e: EngineConfig) -> Iterator[str]:
    for pool, size in e.memory_pools_gb.items():
        if pool not in MEMORY_POOLS:
            yield coded("unknown-key", f"engine.memory_pools_gb.{pool}: unknown pool; known: {', '.join(MEMORY_POOLS)}")
        elif not size > 0:
            yield coded("out-of-range", f"engine.memory_pools_gb.{pool}: expected above 0, got {size:g}")
    if e.builder_optimization_level is not None:
        yield from outside({"engine.builder_optimization_level": e.builder_optimization_level}, 0, 5)
    if e.max_aux_streams is not None:
        yield from outside({"engine.max_aux_streams": e.max_aux_streams}, 0, None)
    yield from outside({"engine.latency.warm_up": e.latency.warm_up}, 0, None)
    yield from outside({"engine.latency.runs": e.latency.runs}, 10, None)  # fewer have no 95th percentile
    yield from outside({"engine.latency.rounds": e.latency.rounds}, 2, None)  # one would not show the noise
