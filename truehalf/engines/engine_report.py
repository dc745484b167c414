"""Report of an engine, the content of engine.json: what was built, whether it is what was asked for, how fast it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from truehalf.json_values import JsonObject, from_fields, to_fields
from truehalf.runtime.tensorrt.versions import BuilderOptions, CacheUse, EngineFacts, Layer, Plan, Port, Target
from truehalf.runtime.timing import Timing
from truehalf.verification.stage_numbers import AdversarialFacts, StageNumbers


class EngineOptions(BuilderOptions):
    """The section `engine` as plain values, as far as plans read it."""

    backend: str
    provider: str | None
    plugins: list[str]


class EnginePlan(Plan, total=False):
    """plan.json: what is built, and from what.

    Attributes:
        backend, target: of the configuration.
        onnx, onnx_data, onnx_sha256: the model, its files of weights, and the SHA-256 of all, one after the other.
        engine: the engine's file.
        declared, graph: precision of the configuration; FP16 nodes of the file.
        profiles, plugins, builder: what TensorRT's builder takes.
        trtexec, trtexec_10: command lines for TensorRT 11 and 10, to be run in a folder that holds the files.
        trtexec_lacks: options that trtexec has no flag for.
        provider, provider_options, environment: of ONNX Runtime.
    """

    backend: str
    target: Target
    engine: str
    builder: BuilderOptions
    trtexec: str
    trtexec_10: str
    trtexec_lacks: list[str]
    provider: str
    provider_options: dict[str, str]
    environment: dict[str, str]


class PrecisionFacts(TypedDict):
    """The file's declared precision, and how many of its nodes are FP16."""

    declared: str
    float_nodes: int
    fp16_nodes: int
    fp16_fraction: float | None


class PointOfProfile(TypedDict):
    """A point of an optimization profile: its number, which of min, opt and max are this point, shapes by input."""

    profile: int
    points: list[str]
    shapes: dict[str, list[int]]


class PointLatency(PointOfProfile, Timing):
    """Latency at a point."""


class Parity(StageNumbers, total=False):
    """The engine's outputs against the reference; where they were measured, with the headline of a stage."""

    evaluation: str
    provider: str
    samples: int
    points: Sequence[JsonObject]
    adversarial: AdversarialFacts
    gates: Sequence[JsonObject]


class CompilerFacts(TypedDict):
    """What a compiler made of a file without running it, by the layers that it logged; None: not known.

    Attributes:
        compiler, targets: which compiler; compute capabilities, none: its default.
        computing_layers: layers that do more than move or convert.
        fused_attention: of the `attention_regions` of the graph, those whose Softmax lies in an attention kernel.
        attention_not_fused: the Softmax nodes of the others.
        computed_in_fp32: nodes that the file types FP16, in layers without Half.
        file_half_arithmetic, half_arithmetic: share of the arithmetic in FP16, 0 to 1: of the file, and as compiled.
        cast_layers: kernels that only cast.
        constants: number by type.
        nodes_without_layer: nodes of the file that were folded or moved.
    """

    compiler: str
    targets: list[str]
    computing_layers: int | None
    fused_attention: int | None
    attention_regions: int
    attention_not_fused: list[str]
    computed_in_fp32: list[str]
    file_half_arithmetic: float | None
    half_arithmetic: float | None
    cast_layers: int | None
    constants: dict[str, int]
    nodes_without_layer: int | None


class EngineGate(TypedDict, total=False):
    """A gate of engine.gates: its key, state ("verified", "failed", "not verified") and reason, what was found and what
    is the least. excused: attentions that are not fused, by Softmax, with the evidence of the conversion.
    """

    gate: str
    state: str
    value: float | None
    limit: float | None
    reason: str
    excused: dict[str, str]


class LintRow(TypedDict, total=False):
    """A finding of truehalf.linting."""

    rule: str
    severity: str
    node: str
    message: str


@dataclass(frozen=True)
class EngineReport:
    """Content of engine.json and reports/engine.json; its further keys are those of EngineFacts.

    Attributes:
        status: "built"; "compiled" and "planned", with the machine's reason; "failed", with reasons; "refused" by the
            stage.
        declared: precision of the configuration.
        plan: all that the build takes.
        lint: findings of the file that is built.
        precision: FP16 nodes of the file.
        compiled: what a compiler made of it.
        gates: of its layers.
        parity: outputs against the reference.
        latency: by profile point: p50, p95, p99 of a run in ms, p50 of each round, samples per second, clocks.
        not_verified: what is not known, and why.
    """

    status: str = "planned"
    reason: str | None = None
    reasons: Sequence[str] = ()
    backend: str | None = None
    declared: str | None = None
    plan: EnginePlan | None = None
    lint: Sequence[LintRow] = ()
    precision: PrecisionFacts | None = None
    compiled: CompilerFacts | None = None
    gates: Sequence[EngineGate] = ()
    parity: Parity | None = None
    latency: Sequence[PointLatency] = ()
    not_verified: Sequence[str] = ()
    tensorrt: str | None = None
    gpu: str | None = None
    onnxruntime: str | None = None
    provider: str | None = None
    engine: str | None = None
    engine_mb: float | None = None
    build_seconds: float | None = None
    layers: int | None = None
    half_layers: int | None = None
    half_layers_fraction: float | None = None
    half_io_fraction: float | None = None
    layer_table: Sequence[Layer] = ()
    nodes_by_provider: Mapping[str, int] = field(default_factory=dict)
    cpu_nodes: Sequence[str] = ()
    device_memory_mb: float | None = None
    io: Sequence[Port] = ()
    inspection_fault: str | None = None
    timing_cache: CacheUse | None = None
    warnings: Sequence[str] = ()

    def with_facts(self, facts: EngineFacts) -> EngineReport:
        """This report with the facts of an engine that was made."""
        return replace(self, **facts)

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> EngineReport:
        return from_fields(cls, content)

    @property
    def excused_count(self) -> int:
        """How many attentions are not fused that the conversion has evidence against."""
        return sum(len(gate.get("excused", {})) for gate in self.gates)

    @property
    def fused_sentence(self) -> str:
        """Number of attentions that the compiler fused, of all; "" where none was compiled or there are none."""
        if self.compiled is None or self.compiled["fused_attention"] is None or not self.compiled["attention_regions"]:
            return ""
        excused = f" ({self.excused_count} hold nodes that the conversion keeps FP32)" if self.excused_count else ""
        return f"{self.compiled['fused_attention']} of {self.compiled['attention_regions']} attentions fused{excused}"
