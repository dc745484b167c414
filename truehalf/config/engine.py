"""Options of the engine: types, defaults, bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from truehalf.codes import coded
from truehalf.config.options import Options, key, share
from truehalf.config.selector_entries import problem_of
from truehalf.config.typed import plain

KINDS = ("min", "opt", "max")  # of a profile

Backend = StrEnum("Backend", ["tensorrt", "tensorrt_rtx"])


@dataclass(frozen=True)
class ProfileShapes:
    """One input of one profile: shapes."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    def problems(self) -> Iterator[str]:
        if lengths := [kind for kind in KINDS if len(getattr(self, kind)) != len(self.opt)]:
            for kind in lengths:
                message = f"expected {len(self.opt)} axes as in opt, got {plain(getattr(self, kind))}"
                yield coded("wrong-shape", f"{kind}: {message}")
            return
        for i, sides in enumerate(zip(self.min, self.opt, self.max, strict=True)):
            if list(sides) != sorted(sides) or sides[0] < 0:
                text = f"opt: axis {i}: expected 0 <= min <= opt <= max, got {', '.join(map(str, sides))}"
                yield coded("out-of-range", text)


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
    fused_attention: bool = key(True, "not verified if an attention is not fused, and no range or list asks for that")


NO_GATES = EngineGates(half_share_less=None, fused_attention=False)
# GPUs of TensorRT 11; TensorRT for RTX 1.7 compiles for COMPILED_FOR alone: no data centre since Hopper, no Jetson.
COMPILED_FOR = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")
ComputeCapability = StrEnum("ComputeCapability", "sm75 sm80 sm86 sm87 sm89 sm90 sm100 sm103 sm110 sm120 sm121")


@dataclass(frozen=True)
class TargetConfig(Options):
    """GPUs that the final file is for, where it is compiled without one."""

    compute_capability: tuple[ComputeCapability, ...] = key(
        (), f"{', '.join(COMPILED_FOR)}; []: Ampere and later; none here compiles for others, such as sm87"
    )

    def problems(self) -> Iterator[str]:
        if len(set(self.compute_capability)) < len(self.compute_capability):
            yield coded("given-twice", "compute_capability: expected each GPU once")


@dataclass(frozen=True)
class EngineConfig(Options):
    """How an engine is built, on the machine that builds it."""

    backend: Backend = key(Backend.tensorrt, "tensorrt, or tensorrt_rtx (TensorRT for RTX)")
    profiles: tuple[Mapping[str, ProfileShapes], ...] | None = key(
        None,
        "optimization profiles, [{images: {min: [1, 3, 64, 64], opt: [1, 3, 64, 64], max: [8, 3, 64, 64]}}]: shapes, "
        "or values of a shape tensor; null: one, of 1 to 8 samples where their number varies",
    )
    workspace_gb: float = key(4.0, "GiB that a layer may use while it computes", above=0)
    builder_optimization_level: int | None = key(
        None, "0 to 5: quicker builds to faster engines; null: TensorRT's default", least=0, most=5
    )
    tf32: bool = key(False, "10 bits of mantissa in what the graph keeps FP32; off for parity")
    timing_cache: str | None = key(
        ".timing_cache", "folder with a file for each GPU and TensorRT version, shared between runs; null: none"
    )
    plugins: tuple[str, ...] = key((), "files of TensorRT plugins, loaded before the model is read: [build/libmine.so]")
    plugin_ops: tuple[str, ...] = key(
        (), "operators of the plugins, for lint: [Mine, com.acme::Other]; []: all of domains that ONNX lacks"
    )
    build_minutes: float | None = key(60.0, "minutes after which a build is stopped; null: no limit", above=0)
    build_unverified: bool = key(False, "build even from a model that failed verify")
    latency: LatencyConfig = LatencyConfig()
    gates: EngineGates = EngineGates()

    def problems(self) -> Iterator[str]:
        for i, file in enumerate(self.plugins):
            if not re.fullmatch(r".*[^/\\]\.(so(\.\d+)*|dll)", file):
                message = f"plugins[{i}]: expected the file of a library, such as build/libmine.so, got {file!r}"
                yield coded("bad-syntax", message)
        for i, entry in enumerate(self.plugin_ops):
            if problem := problem_of("op", entry):
                yield coded("bad-syntax", f"plugin_ops[{i}]: {entry!r} {problem}")
        if self.profiles is not None and not (self.profiles and all(self.profiles)):
            yield coded("needs-value", "profiles: expected null, or profiles that each give shapes of the inputs")


def shown(value: object) -> str:
    """Format a value as one would write it on the command line."""
    return json.dumps(value).replace('"', "")
