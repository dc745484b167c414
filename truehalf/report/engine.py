"""Engine's report in words and rows: state, sentence, facts, latency and layers, for terminal and page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.errors import some_of
from truehalf.report.numbers import number, percent

if TYPE_CHECKING:
    from truehalf.engines.engine_report import CompilerFacts, EngineGate, EngineReport, PointOfProfile
    from truehalf.runtime.timing import Clocks

_NODES_SHOWN = 6


def state_of(engine: EngineReport | None) -> tuple[str, str]:
    """("verified" | "failed" | "not verified", reason)."""
    if engine is None:
        return "not verified", coded("not-run", "the engine stage has not run")
    reason = engine.reason or "no reason is given"
    if not engine.is_made:
        state = "failed" if engine.status == "failed" else "not verified"
        return state, coded("no-engine", f"no engine was built: {reason}")
    if engine.status == "failed":
        return "failed", reason
    parity: Mapping[str, Any] = engine.parity or {}
    if parity.get("state") == "verified":
        open_gates = [gate for gate in engine.gates or [] if gate["state"] == "not verified"]
        listed = "; ".join(f"engine.gates.{gate['gate']}: {gate['reason']}" for gate in open_gates)
        text = f"its outputs are verified, but not its layers: {listed}"
        return ("not verified", text) if open_gates else ("verified", "")
    reason = parity.get("reason") or ", ".join(engine.not_verified or [])
    return parity.get("state", "not verified"), reason or coded("nothing-compared", "its outputs were not compared")


def engine_sentence(engine: EngineReport) -> str:
    """Sentence on compiler, size and share, such as "built with TensorRT 11.4: 12.3 MB, 95.0 % of arithmetic in
    Half", or why there is no engine.
    """
    reason = engine.reason or "no reason is given"
    if not engine.is_made:
        status = "" if engine.status == "planned" else f" ({engine.status or 'unknown'})"
        plan = "; the build plan: artifacts/engine/plan.json" if engine.status == "planned" else ""
        return f"no engine was built{status}: {reason}{plan}"
    made = [f"{engine.engine_mb:.2f} MB"] if engine.engine_mb is not None else []
    facts = engine.compiled
    if facts is not None and facts["half_arithmetic"] is not None:
        made.append(f"{percent(facts['half_arithmetic'])} of arithmetic in Half")
    is_run = engine.parity is not None
    maker = "an unknown compiler" if facts is None else facts["compiler"]
    text = f"built with {maker}" if is_run else f"compiled with {maker}, not run"
    text += f": {', '.join(made)}" if made else ""
    if engine.status == "failed":
        return f"{text}. It failed and is kept for inspection in artifacts/engine: {reason}"
    return text if is_run else f"{text}; plan: artifacts/engine/plan.json"


def fused_sentence(engine: EngineReport) -> str:
    """Number of attentions that the compiler fused, of all; "" where none was compiled or there are none."""
    facts = engine.compiled
    if facts is None or facts["fused_attention"] is None or not facts["attention_regions"]:
        return ""
    excused = sum(len(gate.get("excused", {})) for gate in engine.gates)
    kept = f" ({excused} hold nodes that the conversion keeps FP32)" if excused else ""
    return f"{facts['fused_attention']} of {facts['attention_regions']} attentions fused{kept}"


def fact_rows(engine: EngineReport) -> list[tuple[str, str]]:
    """(label, text) for each fact of an engine; a fact that is missing reads "not known"."""
    if not engine.is_made:
        return []
    rows = [("GPU", str(engine.gpu))] if engine.gpu else []
    if facts := engine.precision:
        share = "" if facts["fp16_fraction"] is None else f", {percent(facts['fp16_fraction'])}"
        nodes = f"{facts['fp16_nodes']} of {facts['float_nodes']} float nodes of the file are FP16{share}"
        rows.append(("precision", f"{facts['declared']} declared; {nodes}"))
    if engine.compiled:
        rows += _layer_facts(engine.compiled)
        rows += [("gate", f"{gate['gate']} {_gate_text(gate)}") for gate in engine.gates or []]
        rows.append(("build", f"{_known(engine.build_seconds)} s, {_known(engine.engine_mb)} MB"))
    if engine.device_memory_mb is not None:
        rows.append(("memory", f"{number(engine.device_memory_mb)} MB of the GPU for an execution context"))
    if engine.parity is not None:
        rows.append(("outputs", ": ".join(filter(None, [engine.parity["state"], engine.parity.get("reason")]))))
    return rows


def _layer_facts(facts: CompilerFacts) -> list[tuple[str, str]]:
    arithmetic, wide, unfused = facts["half_arithmetic"], facts["computed_in_fp32"], facts["attention_not_fused"]
    shares = "not known"
    if arithmetic is not None:
        shares = f"{percent(arithmetic)} of the arithmetic, {percent(facts['file_half_arithmetic'])} of the file's"
    fused = f"{_known(facts['fused_attention'])} of {facts['attention_regions']}"
    return [
        ("compiler", f"{facts['compiler']}, for {', '.join(facts['targets']) or 'its default GPUs, or this one'}"),
        ("layers", _known(facts["layers"])),
        ("in Half", shares),
        ("FP16 in FP32", f"{len(wide)} nodes: {some_of(wide, _NODES_SHOWN)}" if wide else "no node is known"),
        ("attention", f"{fused} fused" + (f"; not fused: {some_of(unfused, _NODES_SHOWN)}" if unfused else "")),
    ]


def _gate_text(gate: EngineGate) -> str:
    """State and reason of a gate, and the attentions that are excused with their evidence."""
    text = f"{gate['state']}: {gate['reason']}" if gate["reason"] else gate["state"]
    excused = [f"{name}: {evidence}" for name, evidence in gate.get("excused", {}).items()]
    return text + (f"; {len(excused)} excused: {'; '.join(excused)}" if excused else "")


def _known(value: float | None) -> str:
    return "not known" if value is None else number(value)


def point_text(point: PointOfProfile) -> str:
    """A point of a profile, such as "profile 0, min and opt: images 1x3x640x640"."""
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in point["shapes"].items())
    return f"profile {point['profile']}, {' and '.join(point['points'])}: {shapes}"


def clocks_text(clocks: Clocks | None) -> str:
    """Clocks, temperature and power of the GPU while it was timed; "" if there was no GPU."""
    if clocks is None:
        return ""
    forms = {
        "sm_mhz": "SM clock {} MHz",
        "sm_max_mhz": "of at most {} MHz",
        "memory_mhz": "memory {} MHz",
        "temperature_c": "{} °C",
        "power_w": "{} W",
        "performance_state": "{}",
    }
    known = {key: f"{value:g}" if isinstance(value, float) else value for key, value in clocks.items() if value}
    parts = [form.format(known[key]) for key, form in forms.items() if key in known]
    return ", ".join(parts) or "GPU clocks: not known, nvidia-smi does not tell them"


def layer_rows(engine: EngineReport) -> list[dict[str, str]]:
    """The layer table: {name, type, types, nodes}, each as text."""
    return [
        {
            "name": row["name"],
            "type": row["type"] or "not known",
            "types": ", ".join(dtype or "not known" for dtype in row["types"]),
            "nodes": some_of(row["onnx_nodes"], _NODES_SHOWN),
        }
        for row in engine.layer_table or []
    ]
