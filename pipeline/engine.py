"""What is known of a run's engine, in words and numbers, from reports/engine.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHOWN = (
    *("evaluation", "provider", "samples", "ap50", "ap50_95", "ap50_95_fp32", "self_ap50_95", "matched_fraction"),
    *("nonfinite", "max_abs_error", "max_abs_error_all_queries"),
)


def engine_hop(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The engine's line of the hop table: {state: verified | failed | not verified, reason}, and where its outputs were
    measured the numbers of a hop.
    """
    engine = reports.get("engine")
    if engine is None:
        return {"state": "not verified", "reason": "the engine stage has not run"}
    parity = engine.get("parity") or {}
    measured = {name: parity[name] for name in _SHOWN if name in parity} if "matched_fraction" in parity else {}
    if engine.get("status") == "failed":
        reason = engine.get("reason", "no reason is given")
        return {
            "state": "failed",
            "reason": reason if was_made(engine) else f"no engine was built: {reason}",
        } | measured
    if not was_made(engine):
        return {"state": "not verified", "reason": f"no engine was built: {engine.get('reason', 'no reason is given')}"}
    precision = engine.get("precision") or {}
    if parity.get("state") == "verified" and precision.get("state", "verified") == "verified":
        return {"state": "verified", "reason": ""} | measured
    if parity.get("state") == "verified":
        reason = f"its outputs are, but not that its layers are {engine.get('declared')}: {precision.get('reason')}"
        return {"state": "not verified", "reason": reason} | measured
    reason = parity.get("reason") or ", ".join(engine.get("not_verified") or []) or "nobody compared its outputs"
    return {"state": str(parity.get("state", "not verified")), "reason": reason} | measured


def was_made(engine: Mapping[str, Any]) -> bool:
    """Whether there is an engine, good or bad."""
    return engine.get("status") == "built" or "parity" in engine


def maker(engine: Mapping[str, Any]) -> str:
    """Such as "TensorRT 11.4" or "ONNX Runtime 1.31.1 (CPUExecutionProvider)"."""
    if engine.get("tensorrt"):
        return f"TensorRT {engine['tensorrt']}"
    return f"ONNX Runtime {engine.get('onnxruntime', 'unknown')} ({engine.get('provider', 'unknown')})"


def engine_sentence(engine: Mapping[str, Any]) -> str:
    """What became of it: "built with TensorRT 11.4: 12.3 MB, 95.0 % of what its 300 layers compute in Half", or why
    there is none.
    """
    reason = engine.get("reason", "no reason is given")
    if was_made(engine):
        half, size = engine.get("half_layers_fraction"), engine.get("engine_mb")
        said = f"built with {maker(engine)}"
        said += f": {size:.2f} MB" if size is not None else ""
        said += (
            f", {100 * half:.1f} % of what its {engine['layers']} layers compute in Half" if half is not None else ""
        )
        if engine.get("status") == "failed":
            return f"{said}. IT FAILED and is kept for inspection in artifacts/engine: {reason}"
        return said
    if engine.get("status") == "planned":
        return f"NO ENGINE WAS BUILT: {reason}. The build plan is artifacts/engine/plan.json"
    return f"NO ENGINE WAS BUILT ({engine.get('status', 'unknown')}): {reason}"


def latency_rows(engine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Latency by point of the profiles: {where, p50_ms, p95_ms, p99_ms, spread, throughput_per_s}."""
    return [
        {"where": where(row)}
        | {name: row.get(name) for name in ("p50_ms", "p95_ms", "p99_ms", "spread", "throughput_per_s")}
        for row in engine.get("latency") or []
    ]


def where(point: Mapping[str, Any]) -> str:
    """A point of a profile: "profile 0, min and opt: images 1x3x640x640"."""
    shapes = ", ".join(f"{name} {'x'.join(map(str, numbers))}" for name, numbers in point["shapes"].items())
    return f"profile {point['profile']}, {' and '.join(point['points'])}: {shapes}"


def engine_metrics(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers for tracking, under names that stay the same; what was not measured is None."""
    parity = engine.get("parity") or {}
    facts = ("engine_mb", "build_seconds", "device_memory_mb", "layers", "half_layers_fraction", "half_io_fraction")
    found = {f"engine/{name}": engine.get(name) for name in facts}
    found |= {f"engine/{name}": parity.get(name) for name in ("ap50_95", "matched_fraction", "nonfinite")}
    found |= {f"engine/max_abs_error/{name}": value for name, value in (parity.get("max_abs_error") or {}).items()}
    for row in engine.get("latency") or []:
        for point in row["points"]:
            for name in ("p50_ms", "p99_ms", "throughput_per_s"):
                found[f"engine/{name}/profile{row['profile']}_{point}"] = row.get(name)
    for severity in ("error", "warning"):
        count = sum(finding.get("severity") == severity for finding in engine.get("lint") or [])
        found[f"engine/lint_{severity}s"] = count if "lint" in engine else None
    return found
