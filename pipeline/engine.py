"""Summary of a run's engine, in words and numbers, from reports/engine.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from pipeline.forms import Reports
from truehalf.codes import coded
from truehalf.engines.engine_report import (
    CompilerFacts,
    EngineGate,
    EngineReport,
    Parity,
    PointOfProfile,
    excused_count,
)
from truehalf.errors import some_of
from truehalf.report.forms import StageNumbers
from truehalf.runtime.timing import BeforeAndAfter

_SHOWN = (
    *("evaluation", "provider", "samples", "ap50", "ap50_95", "ap50_95_fp32", "self_ap50_95", "matched_fraction"),
    *("nonfinite", "max_abs_error", "max_abs_error_all_queries"),
)


def engine_stage(reports: Reports) -> StageNumbers:
    """The engine's line of the table of stages: {state: verified | failed | not verified, reason}, and where its
    outputs were measured the numbers of a stage.
    """
    engine = reports.get("engine")
    if engine is None:
        return {"state": "not verified", "reason": coded("not-run", "the engine stage has not run")}
    parity: Parity = engine.get("parity") or {}
    measured: StageNumbers = {}
    if "matched_fraction" in parity:
        measured = cast("StageNumbers", {name: value for name, value in parity.items() if name in _SHOWN})
    reason = engine.get("reason", "no reason is given")
    if not was_made(engine):
        state = "failed" if engine.get("status") == "failed" else "not verified"
        return {"state": state, "reason": coded("no-engine", f"no engine was built: {reason}")}
    if engine.get("status") == "failed":
        return {"state": "failed", "reason": reason, **measured}
    if parity.get("state") == "verified":
        unsure = [gate for gate in engine.get("gates") or [] if gate["state"] == "not verified"]
        if not unsure:
            return {"state": "verified", "reason": "", **measured}
        said = "; ".join(f"engine.gates.{gate['gate']}: {gate['reason']}" for gate in unsure)
        reason = f"its outputs are verified, but not its layers: {said}"
        return {"state": "not verified", "reason": reason, **measured}
    reason = parity.get("reason") or ", ".join(engine.get("not_verified") or [])
    reason = reason or coded("not-compared", "its outputs were not compared")
    return {"state": str(parity.get("state", "not verified")), "reason": reason, **measured}


def was_made(engine: EngineReport) -> bool:
    """Whether there is an engine, good or bad, run or only compiled."""
    return engine.get("status") == "built" or "parity" in engine or "compiled" in engine


def maker(engine: EngineReport) -> str:
    """Such as "TensorRT 11.4" or "ONNX Runtime 1.31.1 (CPUExecutionProvider)"."""
    if compiled := engine.get("compiled"):
        return compiled["compiler"]
    if engine.get("tensorrt"):
        return f"TensorRT {engine['tensorrt']}"
    return f"ONNX Runtime {engine.get('onnxruntime', 'unknown')} ({engine.get('provider', 'unknown')})"


def engine_sentence(engine: EngineReport) -> str:
    """What became of it: "built with TensorRT 11.4: 12.3 MB, 95.0 % of 300 layers in Half", or why
    there is none.
    """
    reason = engine.get("reason", "no reason is given")
    if was_made(engine):
        half, size, compiled = engine.get("half_layers_fraction"), engine.get("engine_mb"), "compiled" in engine
        text = f"compiled with {maker(engine)}, not run" if compiled else f"built with {maker(engine)}"
        text += f": {size:.2f} MB" if size is not None else ""
        text += f", {100 * half:.1f} % of {engine['layers']} layers in Half" if half is not None else ""
        if engine.get("status") == "failed":
            return f"{text}. it failed and is kept for inspection in artifacts/engine: {reason}"
        return f"{text}; plan: artifacts/engine/plan.json" if compiled else text
    if engine.get("status") == "planned":
        return f"no engine was built: {reason}; the build plan: artifacts/engine/plan.json"
    return f"no engine was built ({engine.get('status', 'unknown')}): {reason}"


def latency_rows(engine: EngineReport) -> list[dict[str, Any]]:
    """Latency at the points of the profiles, each with `where` that is; the clocks in words."""
    return [
        {"p95_ms": None, "spread": None, **row, "where": where(row), "clocks": clocks_sentence(row.get("clocks"))}
        for row in engine.get("latency") or []
    ]


def clocks_sentence(clocks: BeforeAndAfter | None) -> str:
    """The GPU while it was timed: "SM clock 1590 of 1980 MHz (before: 345), memory 2619 MHz, 61 °C, 310 W, P0"; empty
    where no GPU was.
    """
    if clocks is None:
        return ""
    before, during = clocks.get("before") or {}, clocks.get("after") or {}
    known = {name: _shown(value) for name, value in during.items() if value is not None}
    if "sm_mhz" not in known:
        return "GPU clocks: not known, nvidia-smi does not tell them"
    most = f" of {known['sm_max_mhz']}" if "sm_max_mhz" in known else ""
    idle = f" (before: {_shown(found)})" if (found := before.get("sm_mhz")) is not None else ""
    parts = [f"SM clock {known['sm_mhz']}{most} MHz{idle}"]
    parts += [f"memory {known['memory_mhz']} MHz"] if "memory_mhz" in known else []
    units = {"temperature_c": " °C", "power_w": " W", "performance_state": ""}
    return ", ".join(parts + [known[name] + unit for name, unit in units.items() if name in known])


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def fact_rows(engine: EngineReport) -> list[tuple[str, str]]:
    """What was measured of the engine itself, as (name, text); what it does not give is "not known"."""
    if not was_made(engine):
        return []
    precision, rows = engine.get("precision"), []
    if engine.get("gpu"):
        rows.append(("GPU", str(engine["gpu"])))
    if precision:
        nodes, fp16 = precision.get("float_nodes"), precision.get("fp16_nodes")
        text = f"{precision.get('declared')} declared; in the file {fp16} of {nodes} float nodes are FP16"
        rows.append(("precision", text))
    half, layers = engine.get("half_layers"), engine.get("layers")
    text = "not known" if half is None else f"{half} of {layers} layers compute a Half output"
    if (fraction := engine.get("half_layers_fraction")) is not None:
        text += f", {_share(fraction)} of those that compute floats"
    rows.append(("layers in Half", text))
    share = engine.get("half_io_fraction")
    text = "not known" if share is None else f"{_share(share)} of the float inputs and outputs of layers"
    rows.append(("layer I/O in Half", text))
    if compiled := engine.get("compiled"):
        rows += _compiled_rows(compiled)
    rows += [(f"gate {gate['gate']}", _gate_text(gate)) for gate in engine.get("gates") or []]
    for name, key, unit in (
        ("build", "build_seconds", "s"),
        ("engine file", "engine_mb", "MB"),
        ("device memory", "device_memory_mb", "MB for an execution context"),
    ):
        value = cast("float | None", engine.get(key))
        rows.append(
            (name, "not known" if value is None else f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}")
        )
    if cache := engine.get("timing_cache"):
        used = "read" if cache.get("loaded") else "began empty"
        rows.append(("timing cache", f"{used}, {'written' if cache.get('saved') else 'not written'}"))
    return rows


def _compiled_rows(compiled: CompilerFacts) -> list[tuple[str, str]]:
    """What a compiler made of the file."""

    def shown(value: int | None) -> str:
        return "not known" if value is None else str(value)

    changed, lost = compiled["computed_in_fp32"], compiled["attention_not_fused"]
    fused = f"{shown(compiled['fused_attention'])} of {compiled['attention_regions']}"
    return [
        ("compiled for", ", ".join(compiled["targets"]) or "the compiler's default GPUs"),
        ("fused attention", fused + (f"; not fused: {some_of(lost, _NODES_SHOWN)}" if lost else "")),
        (
            "FP16 nodes computed in FP32",
            f"{len(changed)}: {some_of(changed, _NODES_SHOWN)}" if changed else "none is known",
        ),
        ("kernels that only cast", shown(compiled["cast_layers"])),
        ("constants", ", ".join(f"{dtype} {count}" for dtype, count in compiled["constants"].items()) or "none"),
        ("nodes in no layer", f"{shown(compiled['nodes_without_layer'])} (folded, or moved)"),
    ]


def _gate_text(gate: EngineGate) -> str:
    """Such as "failed: 5 of 7 ...", and the attentions that have evidence against them."""
    text = f"{gate['state']}: {gate['reason']}" if gate["reason"] else gate["state"]
    left_out = [f"{name}: {why}" for name, why in gate.get("excused", {}).items()]
    return text + (f"; {len(left_out)} excused: {'; '.join(left_out)}" if left_out else "")


def _share(value: float) -> str:
    """A share in percent that is 100 or 0 only where it is all or nothing."""
    return "all" if value == 1 else "none" if value == 0 else f"{min(max(100 * value, 0.1), 99.9):.1f} %"


def layer_rows(engine: EngineReport) -> list[dict[str, str]]:
    """The layer table: {name, type, inputs, outputs, weights, nodes}, each as text."""
    return [
        {
            "name": str(row.get("name", "")),
            "type": str(row.get("type") or "not known"),
            "inputs": _types(row.get("inputs") or []),
            "outputs": _types(row.get("outputs") or []),
            "weights": str(row.get("weights") or ""),
            "nodes": some_of(row.get("onnx_nodes") or ([row["provider"]] if row.get("provider") else []), _NODES_SHOWN),
        }
        for row in engine.get("layer_table") or []
    ]


_NODES_SHOWN = 6


def _types(types: Sequence[str | None]) -> str:
    """Equal types once: "Half ×3, Float"."""
    counted = Counter(one or "not known" for one in types)
    return ", ".join(name if number == 1 else f"{name} ×{number}" for name, number in counted.items())


def where(point: PointOfProfile) -> str:
    """A point of a profile: "profile 0, min and opt: images 1x3x640x640"."""
    shapes = ", ".join(f"{name} {'x'.join(map(str, numbers))}" for name, numbers in point["shapes"].items())
    return f"profile {point['profile']}, {' and '.join(point['points'])}: {shapes}"


def engine_metrics(engine: EngineReport) -> dict[str, object]:
    """Numbers of the engine itself for tracking, under names that stay the same; what was not measured is None."""
    facts = ("engine_mb", "build_seconds", "device_memory_mb", "layers", "half_layers_fraction", "half_io_fraction")
    found: dict[str, object] = {f"engine/{name}": engine.get(name) for name in facts}
    compiled = engine.get("compiled")
    of_layers = ("computing_layers", "fused_attention", "attention_regions", "cast_layers")
    for name in (*of_layers, "file_half_arithmetic", "half_arithmetic"):
        found[f"engine/{name}"] = compiled.get(name) if compiled else None
    found["engine/fp16_nodes_in_fp32"] = len(compiled["computed_in_fp32"]) if compiled else None
    found["engine/attention_excused"] = excused_count(engine) if compiled else None
    for row in engine.get("latency") or []:
        for point in row["points"]:
            for name in ("p50_ms", "p99_ms", "throughput_per_s"):
                found[f"engine/{name}/profile{row['profile']}_{point}"] = row.get(name)
    for severity in ("error", "warning"):
        count = sum(finding.get("severity") == severity for finding in engine.get("lint") or [])
        found[f"engine/lint_{severity}s"] = count if "lint" in engine else None
    return found
