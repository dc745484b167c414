"""An engine in words: planned, refused, built, verified, failed; by TensorRT and by ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.messages import expect
from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import NO_GPU
from truehalf.codes import codes_in
from truehalf.engines.engine_report import EngineReport
from truehalf.report.engine import (
    clocks_text,
    engine_sentence,
    fact_rows,
    fused_sentence,
    layer_rows,
    point_text,
    state_of,
)

PARITY: dict[str, Any] = {
    "state": "verified",
    "reason": "",
    **{"evaluation": "tensorrt", "provider": "tensorrt", "samples": 60, "ap50": 0.9, "ap50_95": 0.8},
    **{"ap50_95_fp32": 0.8, "self_ap50_95": None, "matched_fraction": 1.0, "nonfinite": 0},
    **{"max_abs_error": {"logits": 0.1}, "max_abs_error_all_queries": {"logits": 0.2}},
    **{"points": [], "gates": [], "batch": 1},
}
LATENCY = {"profile": 0, "points": ["min", "opt"], "shapes": {"images": [1, 3, 64, 64]}, "p50_ms": 1.5, "p95_ms": 1.7}
LATENCY |= {"p99_ms": 1.8, "rounds": [1.5, 1.6], "spread": 0.07, "samples": 1, "throughput_per_s": 600.0}
FINDING = {"rule": "dynamic-topk", "node": "/head/TopK", "message": "k varies.", "remedy": "Fix k."}
FACTS = {
    **{"compiler": "TensorRT 11.4.0.106", "targets": [], "layers": 200, "fused_attention": 6, "attention_regions": 7},
    **{"attention_not_fused": ["/a/Softmax"], "computed_in_fp32": ["/b/Add", "/c/Mul"]},
    **{"file_half_arithmetic": 0.97, "half_arithmetic": 0.95},
}
BUILT: dict[str, Any] = {
    **{"status": "built", "provider": "tensorrt", "engine_mb": 12.345, "build_seconds": 30.0},
    **{"compiled": FACTS, "parity": PARITY, "latency": [LATENCY], "not_verified": [], "device_memory_mb": 40.0},
    "lint": [FINDING | {"severity": severity} for severity in ("error", "warning", "warning", "info")],
}
COMPILED = {key: value for key, value in BUILT.items() if key not in ("parity", "latency")} | {
    **{"status": "compiled", "reason": "nothing was executed: no GPU", "provider": "tensorrt_rtx"},
    "not_verified": ["the engine's outputs: compiled, no GPU"],
    "compiled": FACTS | {"compiler": "TensorRT for RTX 1.7.1", "targets": ["sm86"]},
}
read = EngineReport.from_json
OF_BUILT = ["TensorRT 11.4.0.106", "12.35 MB", "95.0 %"]


@pytest.mark.parametrize(
    ("report", "state", "code", "reason"),
    [
        (None, "not verified", ["not-run"], "engine"),
        ({"status": "planned", "reason": "no GPU"}, "not verified", ["no-engine"], "no GPU"),
        ({"status": "refused", "reason": "it failed verify"}, "not verified", ["no-engine"], "it failed verify"),
        ({"status": "failed", "reason": "no GPU"}, "failed", ["no-engine"], "no GPU"),
        ({"status": "built", "not_verified": ["the engine's outputs"]}, "not verified", [], "the engine's outputs"),
        ({"status": "built"}, "not verified", ["nothing-compared"], ""),
        ({"status": "built", "parity": {"state": "not verified", "reason": "none"}}, "not verified", [], "none"),
        ({"status": "failed", "reason": "NaN", "parity": {"state": "failed", "reason": "y"}}, "failed", [], "NaN"),
    ],
)
def test_the_engine_has_its_line_in_every_state(report: Any, state: str, code: list[str], reason: str) -> None:
    shown, why = state_of(None if report is None else read(report))
    assert shown == state and codes_in(why) == code and (why == reason if not code else reason in why)


@pytest.mark.parametrize(("state", "expected"), [("verified", "verified"), ("not verified", "not verified")])
def test_outputs_alone_do_not_verify_an_engine_of_unknown_precision(state: str, expected: str) -> None:
    gate = {"gate": "half_share_less", "state": state, "reason": "types are hidden"}
    shown, why = state_of(read(BUILT | {"gates": [gate]}))
    assert shown == expected and ("types are hidden" in why) == (expected == "not verified")


@pytest.mark.parametrize(
    ("report", "facts", "others"),
    [
        (BUILT, OF_BUILT, ["artifacts/engine", "NaN"]),
        (BUILT | {"status": "failed", "reason": "NaN"}, [*OF_BUILT, "artifacts/engine", "NaN"], ["plan.json"]),
        (COMPILED, ["TensorRT for RTX 1.7.1", "12.35 MB", "95.0 %", "artifacts/engine/plan.json"], ["built"]),
        ({"status": "planned", "reason": "no GPU"}, ["no GPU", "artifacts/engine/plan.json"], ["planned", "MB"]),
        ({"status": "refused", "reason": "it failed verify"}, ["refused", "it failed verify"], ["plan.json", "MB"]),
    ],
)
def test_what_became_of_it_in_a_sentence(report: dict[str, Any], facts: list[str], others: list[str]) -> None:
    said = engine_sentence(read(report))
    expect(said, None, *facts)
    assert not [other for other in others if other in said]


def test_reports_as_the_library_writes_them_have_their_state(tmp_path: Path) -> None:
    def state(**options: Any) -> str:
        report = read(build_engine(tmp_path / "m.onnx", tmp_path / "out", profiles=[], declared="fp16", **options))
        assert (report.reason or "built") in engine_sentence(report)
        return state_of(report)[0]

    text = '<ir_version: 8, opset_import: ["" : 17]> g (float16[4] x) => (float16[4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert state(probe=NO_GPU) == "not verified"


def test_latency_says_where_it_was_measured() -> None:
    (row,) = read(BUILT).latency
    expect(point_text(row), None, "profile 0", "min", "opt", "images 1x3x64x64")


@pytest.mark.parametrize(
    ("clocks", "numbers", "facts"),
    [
        (None, [], []),
        ({"sm_mhz": None}, [], ["nvidia-smi"]),
        ({"sm_mhz": 1590.0, "power_w": None}, ["1590"], ["1590 MHz"]),
        (
            {"sm_mhz": 1590.0, "sm_max_mhz": 1980.0, "temperature_c": 61.0, "performance_state": "P0"},
            ["1590", "1980", "61", "0"],
            ["1980 MHz", "61 °C", "P0"],
        ),
    ],
)
def test_clocks_are_said_as_far_as_they_are_known(clocks: Any, numbers: list[str], facts: list[str]) -> None:
    text = clocks_text(clocks)
    assert re.findall(r"[\d.]+", text) == numbers and bool(text) == (clocks is not None)
    expect(text, None, *facts)


def test_facts_are_those_of_an_engine_that_there_is() -> None:
    rows = dict(fact_rows(read(BUILT | {"compiled": FACTS | {"half_arithmetic": 0.9999}})))
    expect(rows["in Half"], None, "99.9 %", "97.0 %")
    expect(rows["build"], None, 30, "12.3 MB")
    expect(rows["memory"], None, "40 MB")
    assert rows["layers"] == "200" and "GPU" not in rows and fact_rows(read({"status": "planned"})) == []


def test_a_layer_of_many_nodes_stays_a_line() -> None:
    row = {"name": "fused", "type": "kgen", "types": ["Half", None], "onnx_nodes": [f"/n{i}" for i in range(9)]}
    (shown,) = layer_rows(read({"layer_table": [row]}))
    assert shown["types"].startswith("Half, ") and "None" not in shown["types"]
    assert shown["nodes"].startswith("/n0, /n1, /n2, /n3, /n4, /n5 ") and "/n6" not in shown["nodes"]
    assert re.findall(r" (\d+) ", shown["nodes"]) == ["3"], "so many more"


def test_a_compiled_engine_is_not_verified_and_tells_what_the_compiler_made() -> None:
    state, why = state_of(read(COMPILED))
    assert state == "not verified" and "no GPU" in why
    rows = dict(fact_rows(read(COMPILED)))
    expect(rows["attention"], None, "6 of 7", "/a/Softmax")
    expect(rows["FP16 in FP32"], None, "2", "/b/Add", "/c/Mul")
    expect(rows["compiler"], None, "TensorRT for RTX 1.7.1", "sm86")
    gate = {"gate": "fused_attention", "state": "verified", "value": 6, "limit": 6, "reason": ""}
    gated = read(COMPILED | {"gates": [gate | {"excused": {"/a/Softmax": "overflow of scores"}}]})
    expect(dict(fact_rows(gated))["gate"], None, "fused_attention", "verified", "/a/Softmax", "overflow of scores")
    unknown = read(COMPILED | {"compiled": FACTS | {"fused_attention": None, "layers": None, "half_arithmetic": None}})
    assert "None" not in str(fact_rows(unknown)) and not fused_sentence(unknown)
    expect(fused_sentence(read(COMPILED)), None, "6 of 7")
    expect(fused_sentence(gated), None, "6 of 7", "1")
