"""Report of an engine, the content of engine.json: what was built, whether it is what was asked for, how fast it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from truehalf.json_values import JsonObject, from_fields, to_fields
from truehalf.runtime.timing import Timing
from truehalf.verification.stage_numbers import AdversarialFacts, StageNumbers


class Layer(TypedDict):
    """A row of the layer table. Types, of weights and constants, too, are TensorRT's names, None where not known."""

    name: str
    type: str | None
    inputs: list[str | None]
    outputs: list[str | None]
    weights: str | None
    constants: list[str | None]
    onnx_nodes: list[str]


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
    """The engine's outputs against the reference; where they were measured, with the headline of a stage.

    Attributes:
        evaluation, provider: what computed them.
        samples: how many.
        batches: at min, opt and max of the profiles.
        adversarial: on the adversarial samples.
        gates: of verify.
    """

    evaluation: str
    provider: str
    samples: int
    batches: JsonObject
    adversarial: AdversarialFacts
    gates: Sequence[JsonObject]


class CompilerFacts(TypedDict):
    """Facts of a file that was compiled and not run, by the layers that the compiler logged; None: not known.

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
    """A gate of engine.gates: its key, state ("verified", "failed", "not verified") and reason, the value measured and
    its lower limit. excused: attentions that are not fused, by Softmax, with the evidence of the conversion.
    """

    gate: str
    state: str
    value: float | None
    limit: float | None
    reason: str
    excused: dict[str, str]


@dataclass(frozen=True)
class EngineReport:
    """Content of engine.json and reports/engine.json.

    Attributes:
        status: "built"; "compiled" and "planned", with the machine's reason; "failed", with reasons; "refused" by the
            stage.
        declared: precision of the configuration.
        plan: plan.json, what the build takes.
        lint: findings of the file that is built.
        precision: FP16 nodes of the file.
        compiled: what a compiler made of it.
        gates: of its layers.
        parity: outputs against the reference.
        latency: by profile point: p50, p95, p99 of a run in ms, p50 of each round, samples per second, clocks.
        not_verified: what is not known, and why.
        tensorrt, gpu, onnxruntime, provider: versions and names.
        engine_mb, build_seconds, device_memory_mb: 10^6 bytes; seconds; 10^6 bytes of one execution context.
        layers, half_layers, half_layers_fraction: layers; those that compute with a Half output; their share of those
            that compute floats.
        layer_table: each layer's name, type, types and ONNX nodes.
        nodes_by_provider, cpu_nodes: of ONNX Runtime.
        inspection_fault: what TensorRT did not report, and why.
        warnings: of TensorRT, each once.
    """

    status: str = "planned"
    reason: str | None = None
    reasons: Sequence[str] = ()
    backend: str | None = None
    declared: str | None = None
    plan: JsonObject | None = None
    lint: Sequence[JsonObject] = ()
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
    layer_table: Sequence[Layer] = ()
    nodes_by_provider: Mapping[str, int] = field(default_factory=dict)
    cpu_nodes: Sequence[str] = ()
    device_memory_mb: float | None = None
    inspection_fault: str | None = None
    warnings: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> EngineReport:
        return from_fields(cls, content)

    @property
    def has_open_gate(self) -> bool:
        """True if there is no engine, or a gate of its layers is not verified."""
        return self.status in ("planned", "refused") or any(gate["state"] == "not verified" for gate in self.gates)

    @property
    def excused_count(self) -> int:
        """Number of attentions that are not fused and that the conversion has evidence against."""
        return sum(len(gate.get("excused", {})) for gate in self.gates)

    @property
    def fused_sentence(self) -> str:
        """Number of attentions that the compiler fused, of all; "" where none was compiled or there are none."""
        if self.compiled is None or self.compiled["fused_attention"] is None or not self.compiled["attention_regions"]:
            return ""
        excused = f" ({self.excused_count} hold nodes that the conversion keeps FP32)" if self.excused_count else ""
        return f"{self.compiled['fused_attention']} of {self.compiled['attention_regions']} attentions fused{excused}"
