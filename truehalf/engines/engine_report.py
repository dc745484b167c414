"""Report of an engine, the content of engine.json: what was built, whether it is what was asked for, how fast it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from truehalf.json_values import JsonObject, from_fields, to_fields
from truehalf.runtime.timing import Timing


class Layer(TypedDict):
    """A row of the layer table: a layer, its type, the element types of its inputs and outputs, and the ONNX nodes in
    it. Types are TensorRT's names, each once; None: not known.
    """

    name: str
    type: str | None
    types: list[str | None]
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


class Parity(TypedDict, total=False):
    """The engine's outputs against the reference.

    Attributes:
        state, reason: "verified", "failed" or "not verified", and why.
        matched_fraction ... max_abs_error: where outputs were measured, the numbers of verify in a line.
        evaluation, provider: what computed them.
        samples: how many.
        batches: at min, opt and max of the profiles.
        adversarial: on the adversarial samples.
        gates: of verify.
    """

    state: str
    reason: str
    matched_fraction: float | None
    box_error_px_p99: float | None
    score_error_p99: float | None
    top1_agreement: float | None
    max_abs_error: dict[str, float]
    ap50: float | None
    ap50_95: float | None
    ap50_95_fp32: float | None
    self_ap50_95: float | None
    tensor_rms: float | None
    nonfinite: int
    evaluation: str
    provider: str
    samples: int
    batches: JsonObject
    adversarial: JsonObject
    gates: Sequence[JsonObject]


class CompilerFacts(TypedDict):
    """Facts of the layers that TensorRT or TensorRT for RTX made of a file; None: not known.

    Attributes:
        compiler, targets: which compiler; compute capabilities, none: its default, or the GPU of the machine.
        layers: number of layers.
        fused_attention: of the `attention_regions` of the graph, those whose Softmax lies in an attention kernel.
        attention_not_fused: the Softmax nodes of the others.
        computed_in_fp32: nodes that the file types FP16, in layers without Half.
        file_half_arithmetic, half_arithmetic: share of the arithmetic in FP16, 0 to 1: of the file, and as compiled.
    """

    compiler: str
    targets: list[str]
    layers: int | None
    fused_attention: int | None
    attention_regions: int
    attention_not_fused: list[str]
    computed_in_fp32: list[str]
    file_half_arithmetic: float | None
    half_arithmetic: float | None


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
        compiled: layers of an engine of TensorRT or TensorRT for RTX.
        gates: of its layers.
        parity: outputs against the reference, of an engine that was run.
        latency: by profile point: p50, p95, p99 of a run in ms, p50 of each round, samples per second, clocks.
        not_verified: what is not known, and why.
        gpu, provider: names.
        engine: the engine's file, as the plan calls it.
        engine_mb, build_seconds, device_memory_mb: 10^6 bytes; seconds; 10^6 bytes of one execution context.
        layer_table: each layer's name, type, types and ONNX nodes.
        warnings: of TensorRT, each once.
    """

    status: str = "planned"
    reason: str | None = None
    reasons: Sequence[str] = ()
    declared: str | None = None
    plan: JsonObject | None = None
    lint: Sequence[JsonObject] = ()
    precision: PrecisionFacts | None = None
    compiled: CompilerFacts | None = None
    gates: Sequence[EngineGate] = ()
    parity: Parity | None = None
    latency: Sequence[PointLatency] = ()
    not_verified: Sequence[str] = ()
    gpu: str | None = None
    provider: str | None = None
    engine: str | None = None
    engine_mb: float | None = None
    build_seconds: float | None = None
    layer_table: Sequence[Layer] = ()
    device_memory_mb: float | None = None
    warnings: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> EngineReport:
        return from_fields(cls, content)

    @property
    def is_made(self) -> bool:
        """True if there is an engine: good or bad, run or only compiled."""
        return self.status == "built" or self.parity is not None or self.compiled is not None

    @property
    def has_open_gate(self) -> bool:
        """True if there is no engine, or a gate of its layers is not verified."""
        return self.status in ("planned", "refused") or any(gate["state"] == "not verified" for gate in self.gates)
