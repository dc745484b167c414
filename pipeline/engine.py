"""Engine of a run in words and rows: state, sentence, facts, latency and layers, from reports/engine.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from truehalf.codes import coded
from truehalf.engines.engine_report import EngineReport
from truehalf.errors import some_of
from truehalf.report.numbers import number, percent

_NODES_SHOWN = 6


def exists(engine: EngineReport) -> bool:
    """True if there is an engine: good or bad, run or only compiled."""
    return engine.status == "built" or engine.parity is not None or engine.compiled is not None


def state_of(engine: EngineReport | None) -> tuple[str, str]:
    """("verified" | "failed" | "not verified", reason)."""
    if engine is None:
        return "not verified", coded("not-run", "the engine stage has not run")
    reason = engine.reason or "no reason is given"
    if not exists(engine):
        state = "failed" if engine.status == "failed" else "not verified"
        return state, coded("no-engine", f"no engine was built: {reason}")
    if engine.status == "failed":
        return "failed", reason
    parity: dict[str, Any] = dict(engine.parity or {})
    if parity.get("state") == "verified":
        open_gates = [gate for gate in engine.gates or [] if gate["state"] == "not verified"]
        if not open_gates:
            return "verified", ""
        listed = "; ".join(f"engine.gates.{gate['gate']}: {gate['reason']}" for gate in open_gates)
        return "not verified", f"its outputs are verified, but not its layers: {listed}"
    reason = parity.get("reason") or ", ".join(engine.not_verified or [])
    return parity.get("state", "not verified"), reason or coded("nothing-compared", "its outputs were not compared")


def maker_of(engine: EngineReport) -> str:
    """Compiler or runtime with its version, such as "TensorRT 11.4"."""
    if engine.compiled:
        return str(engine.compiled["compiler"])
    if engine.tensorrt:
        return f"TensorRT {engine.tensorrt}"
    return f"ONNX Runtime {engine.onnxruntime or 'unknown'} ({engine.provider or 'unknown'})"


def engine_sentence(engine: EngineReport) -> str:
    """Sentence on compiler, size and share, such as "built with TensorRT 11.4: 12.3 MB, 95.0 % of float layers
    in Half", or why there is no engine.
    """
    reason = engine.reason or "no reason is given"
    if exists(engine):
        text = f"compiled with {maker_of(engine)}, not run" if engine.compiled else f"built with {maker_of(engine)}"
        text += f": {engine.engine_mb:.2f} MB" if engine.engine_mb is not None else ""
        if engine.half_layers_fraction is not None:
            text += f", {percent(engine.half_layers_fraction)} of float layers in Half"
        if engine.status == "failed":
            return f"{text}. It failed and is kept for inspection in artifacts/engine: {reason}"
        return f"{text}; plan: artifacts/engine/plan.json" if engine.compiled else text
    if engine.status == "planned":
        return f"no engine was built: {reason}; the build plan: artifacts/engine/plan.json"
    return f"no engine was built ({engine.status or 'unknown'}): {reason}"


def fact_rows(engine: EngineReport) -> list[tuple[str, str]]:
    """(name, text) for each fact of the engine; facts that are missing read "not known"."""
    if not exists(engine):
        return []
    rows = [("GPU", str(engine.gpu))] if engine.gpu else []
    if engine.precision:
        counts = (
            f"{engine.precision['fp16_nodes']} of {engine.precision['float_nodes']} float nodes of the file are FP16"
        )
        rows.append(("precision", f"{engine.precision['declared']} declared; {counts}"))
    half = "not known"
    if engine.half_layers is not None:
        half = f"{engine.half_layers} of {engine.layers} layers compute a Half output"
        if engine.half_layers_fraction is not None:
            half += f", {percent(engine.half_layers_fraction)} of those that compute floats"
    rows.append(("layers in Half", half))
    if engine.compiled:
        rows += _compiled_rows(engine.compiled)
    rows += [(f"gate {gate['gate']}", _gate_text(gate)) for gate in engine.gates or []]
    rows.append(("build", _measured(engine.build_seconds, "s")))
    rows.append(("engine file", _measured(engine.engine_mb, "MB")))
    rows.append(("device memory", _measured(engine.device_memory_mb, "MB for an execution context")))
    return rows


def _compiled_rows(compiled: Any) -> list[tuple[str, str]]:
    changed, unfused = compiled["computed_in_fp32"], compiled["attention_not_fused"]
    fused = f"{_known(compiled['fused_attention'])} of {compiled['attention_regions']}"
    return [
        ("compiled for", ", ".join(compiled["targets"]) or "the compiler's default GPUs"),
        ("fused attention", fused + (f"; not fused: {some_of(unfused, _NODES_SHOWN)}" if unfused else "")),
        (
            "FP16 nodes computed in FP32",
            f"{len(changed)}: {some_of(changed, _NODES_SHOWN)}" if changed else "none is known",
        ),
    ]


def _gate_text(gate: Any) -> str:
    """State and reason of a gate, and the attentions that are excused with their evidence."""
    text = f"{gate['state']}: {gate['reason']}" if gate["reason"] else gate["state"]
    excused = [f"{name}: {evidence}" for name, evidence in gate.get("excused", {}).items()]
    return text + (f"; {len(excused)} excused: {'; '.join(excused)}" if excused else "")


def _known(value: int | None) -> str:
    return "not known" if value is None else str(value)


def _measured(value: float | None, unit: str) -> str:
    return "not known" if value is None else f"{number(value)} {unit}"


def latency_rows(engine: EngineReport) -> list[dict[str, Any]]:
    """Latency at the points of the profiles, each with the point (`where`) and the GPU's `clocks` in words."""
    return [
        {"p95_ms": None, "spread": None, **row, "where": point_text(row), "clocks": clocks_text(row.get("clocks"))}
        for row in engine.latency or []
    ]


def point_text(point: Any) -> str:
    """A point of a profile, such as "profile 0, min and opt: images 1x3x640x640"."""
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in point["shapes"].items())
    return f"profile {point['profile']}, {' and '.join(point['points'])}: {shapes}"


def clocks_text(clocks: Any) -> str:
    """Clocks, temperature and power of the GPU while it was timed; "" if they are not known or there was no GPU."""
    if clocks is None:
        return ""
    if clocks.get("sm_mhz") is None:
        return "GPU clocks: not known, nvidia-smi does not tell them"
    most = f" of {clocks['sm_max_mhz']:g}" if clocks.get("sm_max_mhz") is not None else ""
    parts = [f"SM clock {clocks['sm_mhz']:g}{most} MHz"]
    for key, text in (("memory_mhz", "memory {:g} MHz"), ("temperature_c", "{:g} °C"), ("power_w", "{:g} W")):
        parts += [text.format(clocks[key])] if clocks.get(key) is not None else []
    return ", ".join([*parts, *([clocks["performance_state"]] if clocks.get("performance_state") else [])])


def layer_rows(engine: EngineReport) -> list[dict[str, str]]:
    """The layer table: {name, type, inputs, outputs, weights, nodes}, each as text."""
    return [
        {
            "name": str(row.get("name", "")),
            "type": str(row.get("type") or "not known"),
            "inputs": _types(row.get("inputs") or []),
            "outputs": _types(row.get("outputs") or []),
            "weights": str(row.get("weights") or ""),
            "nodes": some_of(row.get("onnx_nodes") or [], _NODES_SHOWN),
        }
        for row in engine.layer_table or []
    ]


def _types(types: Sequence[str | None]) -> str:
    """Equal types once, such as "Half ×3, Float"."""
    counted = Counter(dtype or "not known" for dtype in types)
    return ", ".join(name if times == 1 else f"{name} ×{times}" for name, times in counted.items())
