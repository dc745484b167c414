"""Options of the engine: types, defaults, bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar

from truehalf.codes import coded
from truehalf.config.options import Options, key, share
from truehalf.config.selector_entries import problem_of_op

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
    "plugins": (),
}

KINDS = ("min", "opt", "max")  # of a profile

Backend = StrEnum("Backend", ["tensorrt", "tensorrt_rtx", "onnxruntime"])
Provider = StrEnum("Provider", ["cuda", "tensorrt", "cpu"])
TilingLevel = StrEnum("TilingLevel", ["none", "fast", "moderate", "full"])
HardwareCompatibility = StrEnum("HardwareCompatibility", ["none", "ampere_plus", "same_compute_capability"])
ProfilingVerbosity = StrEnum("ProfilingVerbosity", ["detailed", "layer_names_only", "none"])
WhenUnavailable = StrEnum("WhenUnavailable", ["plan", "fail"])


@dataclass(frozen=True)
class ProfileShapes:
    """One input of one profile: shapes, null where the model fixes the side; of a shape tensor its values."""

    min: tuple[int | None, ...]
    opt: tuple[int | None, ...]
    max: tuple[int | None, ...]


def problems_of_numbers(
    where: str,
    numbers: Mapping[str, Sequence[int | None]],
    axes: Sequence[int | str | None] | None,
    like: str = "opt",
    are_values: bool = False,
) -> Iterator[str]:
    """What is wrong with an input of a profile: lengths and order of min, opt and max, and axes that are fixed.

    Args:
        numbers: by kind; null stands for a side that the model fixes.
        axes: of the input, a number where one is fixed; None: not known.
        like: what has these axes.
        are_values: whether the numbers are those of a shape tensor, as many as `axes`.
    """
    rank = len(numbers["opt"]) if axes is None else len(axes)
    wrong = {kind: list(numbers[kind]) for kind in KINDS if len(numbers[kind]) != rank}
    for kind, given in wrong.items():
        what = "values" if are_values else "axes"
        yield coded("wrong-shape", f"{where}.{kind}: expected {rank} {what} as in {like}, got {given}")
    if wrong:
        return
    for i, sides in enumerate(zip(*(numbers[kind] for kind in KINDS), strict=True)):
        shown = ", ".join("null" if side is None else str(side) for side in sides)
        known = [side for side in sides if side is not None]
        fixed = None if axes is None or are_values else axes[i]
        if not known:
            continue
        if len(known) < len(sides):
            message = f"{where}: expected null in min, opt and max of axis {i}, or in none, got {shown}"
            yield coded("in-conflict", message)
        elif known != sorted(known) or (known[0] < 0 and not are_values):
            bound, kind = ("", "value") if are_values else ("0 <= ", "axis")
            yield coded("out-of-range", f"{where}: {kind} {i}: expected {bound}min <= opt <= max, got {shown}")
        elif isinstance(fixed, int) and set(known) != {fixed}:
            yield coded(
                "axis-fixed",
                f"{where}: axis {i} is fixed at {fixed}, got {shown}; give that number, or trace the model with this "
                "axis dynamic (trace.dynamic_axes)",
            )


@dataclass(frozen=True)
class LatencyConfig:
    """How latency is measured."""

    warm_up: int = key(20, "unmeasured runs", least=0)
    runs: int = key(200, "measured runs of a round", least=10)  # fewer have no 95th percentile
    rounds: int = key(2, "rounds, which show the noise", least=2)  # one would not show it


@dataclass(frozen=True)
class EngineGates:
    """Gates on the layers of an FP16 file's engine."""

    half_share_less: float | None = share(
        0.02, "share of the arithmetic in Half: at most this much less than in the file; null: no gate"
    )
    fused_attention: bool = key(
        True,
        "not verified where an attention is not fused and holds FP32 nodes or casts, unless ranges or lists ask for it",
    )


NO_GATES = EngineGates(half_share_less=None, fused_attention=False)
# Those that TensorRT for RTX 1.7 compiles for.
ComputeCapability = StrEnum("ComputeCapability", ["sm75", "sm80", "sm86", "sm89", "sm120", "sm121"])


@dataclass(frozen=True)
class TargetConfig(Options):
    """GPUs that the final file is for, where it is compiled without one."""

    SECTION: ClassVar[str] = "target"

    compute_capability: tuple[ComputeCapability, ...] = key((), f"{', '.join(ComputeCapability)}; []: Ampere and later")

    def problems(self) -> Iterator[str]:
        if len(set(self.compute_capability)) < len(self.compute_capability):
            yield coded("given-twice", "target.compute_capability: expected each GPU once")


@dataclass(frozen=True)
class EngineConfig(Options):
    """How an engine is built, on the machine that builds it."""

    SECTION: ClassVar[str] = "engine"

    backend: Backend = key(
        Backend.tensorrt,
        "tensorrt, tensorrt_rtx (TensorRT for RTX), or onnxruntime: the final file on one provider",
    )
    provider: Provider | None = key(None, "of engine=onnxruntime")
    profiles: tuple[Mapping[str, ProfileShapes], ...] | None = key(
        None,
        "optimization profiles: shapes of the inputs, or, of a shape tensor, its values; null: one for the "
        "model's inputs, 1 to 8 samples where their number varies (opt 1)",
    )
    memory_pools_gb: Mapping[str, float] = key(
        {"workspace": 4.0}, "GiB by pool; another: engine.memory_pools_gb.dla_local_dram=1.0"
    )
    builder_optimization_level: int | None = key(
        None, "0 to 5: quicker builds to faster engines; null: TensorRT's default", least=0, most=5
    )
    max_aux_streams: int | None = key(None, "streams beside the main one; null: TensorRT decides", least=0)
    tiling_optimization_level: TilingLevel = key(TilingLevel.none, "none | fast | moderate | full")
    tf32: bool = key(False, "10 bits of mantissa in what the graph keeps FP32; off for parity")
    timing_cache: str | None = key(
        ".timing_cache", "folder with a file for each GPU and TensorRT version, shared between runs; null: none"
    )
    editable_timing_cache: bool = key(False, "true: equal tactics in each build from the same cache")
    version_compatible: bool = key(False, "an engine that later TensorRT versions load, too")
    hardware_compatibility: HardwareCompatibility = key(
        HardwareCompatibility.none, "none | ampere_plus | same_compute_capability: an engine for other GPUs, too"
    )
    refit: bool = key(False, "weights that can be replaced in the finished engine")
    strip_weights: bool = key(False, "an engine without the weights, which a refit puts back")
    profiling_verbosity: ProfilingVerbosity = key(
        ProfilingVerbosity.detailed, "detailed (what the share of Half layers is read from) | layer_names_only | none"
    )
    plugins: tuple[str, ...] = key((), "files of TensorRT plugins, loaded before the model is read: [build/libmine.so]")
    plugin_ops: tuple[str, ...] = key(
        (),
        "operators that the plugins bring along, for lint: [Mine, com.acme::Other]; []: all of domains that ONNX lacks",
    )
    when_unavailable: WhenUnavailable = key(
        WhenUnavailable.plan, "where none can be built here: plan (write what would be built) | fail"
    )
    build_unverified: bool = key(False, "build even from a model that failed verify")
    latency: LatencyConfig = key(
        LatencyConfig(), "unmeasured runs, measured runs of a round, rounds (two or more: the noise)"
    )
    gates: EngineGates = key(EngineGates(), "of the layers of an FP16 file's engine")

    def problems(self) -> Iterator[str]:
        for pool, size in self.memory_pools_gb.items():
            if pool not in MEMORY_POOLS:
                known = ", ".join(MEMORY_POOLS)
                yield coded("unknown-key", f"engine.memory_pools_gb.{pool}: unknown pool; known: {known}")
            elif not size > 0:
                yield coded("out-of-range", f"engine.memory_pools_gb.{pool}: expected above 0, got {size:g}")
        if self.backend is Backend.onnxruntime and self.provider is None:
            yield coded("needs-value", "engine.provider: engine=onnxruntime needs one of cuda, tensorrt, cpu, got null")
        if self.backend is not Backend.onnxruntime and self.provider is not None:
            provider = self.provider.value
            yield coded(
                "in-conflict",
                f"engine.provider: of ONNX Runtime, and engine.backend is {self.backend.value}; got {provider!r}; "
                f"choose engine=onnxruntime engine.provider={provider}, or leave it null",
            )
        if self.editable_timing_cache and self.timing_cache is None:
            message = "engine.editable_timing_cache: needs engine.timing_cache, a folder for the cache, got null"
            yield coded("needs-value", message)
        yield from _options_that_no_provider_takes(self)
        yield from _problems_of_plugin_ops(self)
        for i, file in enumerate(self.plugins):
            if not re.fullmatch(r".*[^/\\]\.(so(\.\d+)*|dll)", file):
                message = f"engine.plugins[{i}]: expected the file of a library, such as build/libmine.so, got {file!r}"
                yield coded("bad-syntax", message)


def _problems_of_plugin_ops(e: EngineConfig) -> Iterator[str]:
    if e.plugin_ops and not e.plugins:
        yield coded(
            "needs-value",
            "engine.plugin_ops: names operators of plugins, and engine.plugins is empty; name their libraries there",
        )
    for i, entry in enumerate(e.plugin_ops):
        if found := problem_of_op(entry):
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
            message = f"engine.memory_pools_gb.{pool}: {refused}; leave it out; engine=tensorrt takes it"
            yield coded("in-conflict", message)
    if e.provider is Provider.tensorrt and e.hardware_compatibility is HardwareCompatibility.same_compute_capability:
        yield coded(
            "in-conflict",
            "engine.hardware_compatibility: ONNX Runtime's provider 'tensorrt' knows only ampere_plus; expected none "
            "or ampere_plus, got same_compute_capability; engine=tensorrt takes it",
        )


def shown(value: object) -> str:
    """A value as one would write it on the command line."""
    return json.dumps(value).replace('"', "")
