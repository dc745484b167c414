"""An engine in words: planned, refused, built, verified, failed; by TensorRT and by ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from pipeline.engine import (
    clocks_sentence,
    engine_metrics,
    engine_sentence,
    engine_stage,
    fact_rows,
    latency_rows,
    layer_rows,
)
from tests.messages import expect
from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import FEW, NO_GPU
from truehalf.codes import codes_in
from truehalf.engines.engine_report import fused_sentence

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
BUILT: dict[str, Any] = {
    **{"status": "built", "backend": "tensorrt", "tensorrt": "11.4.0.106", "provider": "tensorrt", "engine_mb": 12.345},
    **{"layers": 200, "half_layers": 190, "half_layers_fraction": 0.95, "half_io_fraction": 0.9, "build_seconds": 30.0},
    **{"parity": PARITY, "latency": [LATENCY], "not_verified": [], "device_memory_mb": 40.0},
    "lint": [FINDING | {"severity": severity} for severity in ("error", "warning", "warning", "info")],
}
ON_CPU = BUILT | {"tensorrt": None, "onnxruntime": "1.31.1", "provider": "CPUExecutionProvider"}
ON_CPU |= {"half_layers_fraction": None}
COMPILED = {key: value for key, value in BUILT.items() if key not in ("parity", "latency")} | {
    **{"status": "compiled", "reason": "nothing was executed: no GPU", "tensorrt": "1.7.1", "provider": "tensorrt_rtx"},
    "not_verified": ["the engine's outputs: compiled, no GPU"],
    "compiled": {
        **{"compiler": "TensorRT for RTX 1.7.1", "targets": ["sm86"], "computing_layers": 150, "fused_attention": 6},
        **{"attention_regions": 7, "attention_not_fused": ["/a/Softmax"], "computed_in_fp32": ["/b/Add", "/c/Mul"]},
        **{"file_half_arithmetic": 0.97, "half_arithmetic": 0.96},
        **{"cast_layers": 3, "constants": {"Float": 2, "Half": 9}, "nodes_without_layer": 11},
    },
}
OF_BUILT = ["TensorRT 11.4.0.106", "12.35 MB", "95.0 %", "200"]


@pytest.mark.parametrize(
    ("report", "state", "code", "reason"),
    [
        (None, "not verified", ["not-run"], "engine"),
        ({"status": "planned", "reason": "no GPU"}, "not verified", ["no-engine"], "no GPU"),
        ({"status": "refused", "reason": "it failed verify"}, "not verified", ["no-engine"], "it failed verify"),
        ({"status": "failed", "reason": "no GPU"}, "failed", ["no-engine"], "no GPU"),
        ({"status": "built", "not_verified": ["the engine's outputs"]}, "not verified", [], "the engine's outputs"),
        ({"status": "built"}, "not verified", ["not-compared"], ""),
        ({"status": "built", "parity": {"state": "not verified", "reason": "none"}}, "not verified", [], "none"),
        ({"status": "failed", "reason": "NaN", "parity": {"state": "failed", "reason": "y"}}, "failed", [], "NaN"),
    ],
)
def test_the_engine_has_its_line_in_every_state(report: Any, state: str, code: list[str], reason: str) -> None:
    stage = engine_stage({} if report is None else {"engine": report})
    assert set(stage) == {"state", "reason"} and stage["state"] == state
    assert codes_in(stage["reason"]) == code and (stage["reason"] == reason if not code else reason in stage["reason"])


@pytest.mark.parametrize(("state", "expected"), [("verified", "verified"), ("not verified", "not verified")])
def test_outputs_alone_do_not_verify_an_engine_of_unknown_precision(state: str, expected: str) -> None:
    stage = engine_stage(
        {"engine": BUILT | {"gates": [{"gate": "half_share_less", "state": state, "reason": "types are hidden"}]}}
    )
    assert stage["state"] == expected and stage["matched_fraction"] == 1.0
    assert ("types are hidden" in stage["reason"]) == (expected == "not verified")


def test_where_outputs_were_measured_the_line_has_their_numbers() -> None:
    stage = engine_stage({"engine": BUILT})
    assert (stage["state"], stage["reason"], stage["samples"], stage["matched_fraction"]) == ("verified", "", 60, 1.0)
    assert stage["evaluation"] == "tensorrt" and "points" not in stage and "gates" not in stage
    failed = BUILT | {"status": "failed", "reason": "0 layers are Half"}
    assert engine_stage({"engine": failed}) == stage | {"state": "failed", "reason": "0 layers are Half"}


@pytest.mark.parametrize(
    ("report", "facts", "others"),
    [
        (BUILT, OF_BUILT, ["artifacts/engine", "NaN"]),
        (ON_CPU, ["ONNX Runtime 1.31.1", "CPUExecutionProvider", "12.35 MB"], ["%", "200", "TensorRT"]),
        (BUILT | {"status": "failed", "reason": "NaN"}, [*OF_BUILT, "artifacts/engine", "NaN"], ["plan.json"]),
        (COMPILED, ["TensorRT for RTX 1.7.1", "12.35 MB", "95.0 %", "artifacts/engine/plan.json"], ["built"]),
        ({"status": "planned", "reason": "no GPU"}, ["no GPU", "artifacts/engine/plan.json"], ["planned", "MB"]),
        ({"status": "refused", "reason": "it failed verify"}, ["refused", "it failed verify"], ["plan.json", "MB"]),
    ],
)
def test_what_became_of_it_in_a_sentence(report: dict[str, Any], facts: list[str], others: list[str]) -> None:
    said = engine_sentence(report)
    expect(said, None, *facts)
    assert not [other for other in others if other in said]


def test_reports_as_the_library_writes_them_have_their_state(tmp_path: Path) -> None:
    def state(**options: Any) -> str:
        report = build_engine(tmp_path / "m.onnx", tmp_path / "out", profiles=[], declared="fp16", **options)
        assert report["reason"] in engine_sentence(report) if "reason" in report else "built" in engine_sentence(report)
        return str(engine_stage({"engine": report})["state"])

    text = '<ir_version: 8, opset_import: ["" : 17]> g (float16[4] x) => (float16[4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    served = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW}
    assert state(probe=NO_GPU) == state(**served) == "not verified"
    assert state(probe=NO_GPU, when_unavailable="fail") == "failed", "no engine, and not for want of a GPU"


def test_latency_says_where_it_was_measured() -> None:
    (row,) = latency_rows(BUILT)
    expect(row["where"], None, "profile 0", "min", "opt", "images 1x3x64x64")
    assert row["p99_ms"] == 1.8 and row["spread"] == 0.07
    assert latency_rows({"status": "planned"}) == []


@pytest.mark.parametrize(
    ("clocks", "numbers", "facts"),
    [
        ({"before": None, "after": None}, [], ["nvidia-smi"]),
        ({"before": {"sm_mhz": 345.0}, "after": {"sm_mhz": None}}, [], ["nvidia-smi"]),
        ({"before": {"sm_mhz": None}, "after": {"sm_mhz": 1590.0, "power_w": None}}, ["1590"], ["1590 MHz"]),
        (
            {"before": {"sm_mhz": 345.0}, "after": {"sm_mhz": 1590.0, "sm_max_mhz": 1980.0, "temperature_c": 61.0}},
            ["1590", "1980", "345", "61"],
            ["1980 MHz", "61 °C"],
        ),
    ],
)
def test_clocks_are_said_as_far_as_they_are_known(clocks: dict[str, Any], numbers: list[str], facts: list[str]) -> None:
    said = clocks_sentence(clocks)
    assert re.findall(r"[\d.]+", said) == numbers
    expect(said, None, *facts)


def test_of_no_clocks_nothing_is_said() -> None:
    assert clocks_sentence(None) == ""


def test_facts_are_those_of_an_engine_that_there_is() -> None:
    rows = dict(fact_rows(BUILT | {"half_layers_fraction": 0.9999}))
    expect(rows["layers in Half"], None, 190, 200, "99.9 %")
    assert rows["build"] == "30 s"
    expect(rows["device memory"], None, "40 MB")
    assert "timing cache" not in rows and "GPU" not in rows
    assert fact_rows({"status": "planned"}) == []


def test_what_was_done_with_the_timing_cache_is_told_apart() -> None:
    caches = [{"loaded": loaded, "saved": saved} for loaded in (True, False) for saved in (True, False)]
    told = [dict(fact_rows(BUILT | {"timing_cache": cache}))["timing cache"] for cache in caches]
    assert len(set(told)) == 4


def test_a_layer_of_many_nodes_stays_a_line() -> None:
    row = {"name": "fused", "type": "kgen", "inputs": ["Half"] * 3 + ["Float"], "outputs": [None], "weights": None}
    (shown,) = layer_rows({"layer_table": [row | {"onnx_nodes": [f"/n{i}" for i in range(9)]}]})
    assert shown["inputs"] == "Half ×3, Float" and shown["outputs"] and shown["weights"] == ""
    assert "Half" not in shown["outputs"] and "Float" not in shown["outputs"] and "None" not in shown["outputs"]
    assert shown["nodes"].startswith("/n0, /n1, /n2, /n3, /n4, /n5 ") and "/n6" not in shown["nodes"]
    assert re.findall(r" (\d+) ", shown["nodes"]) == ["3"], "so many more"
    (served,) = layer_rows({"layer_table": [{"name": "a", "type": "Conv", "provider": "CUDAExecutionProvider"}]})
    assert served["nodes"] == "CUDAExecutionProvider"


def test_metrics_keep_their_names_and_what_was_not_measured_has_no_number() -> None:
    found = engine_metrics(BUILT)
    assert found["engine/half_layers_fraction"] == 0.95
    assert found["engine/p50_ms/profile0_min"] == found["engine/p50_ms/profile0_opt"] == 1.5
    assert found["engine/lint_errors"] == 1 and found["engine/lint_warnings"] == 2
    assert {name for name, value in engine_metrics({}).items() if value is not None} == set()


def test_a_compiled_engine_is_not_verified_and_tells_what_the_compiler_made() -> None:
    stage = engine_stage({"engine": COMPILED})
    assert stage["state"] == "not verified" and "no GPU" in stage["reason"]
    rows = dict(fact_rows(COMPILED))
    expect(rows["fused attention"], None, "6 of 7", "/a/Softmax")
    expect(rows["FP16 nodes computed in FP32"], None, "2", "/b/Add", "/c/Mul")
    expect(rows["compiled for"], None, "sm86")
    gate = {"gate": "fused_attention", "state": "verified", "value": 6, "limit": 6, "reason": ""}
    gated = COMPILED | {"gates": [gate | {"excused": {"/a/Softmax": "overflow of scores"}}]}
    assert engine_metrics(gated)["engine/attention_excused"] == 1
    expect(dict(fact_rows(gated))["gate fused_attention"], None, "verified", "/a/Softmax", "overflow of scores")
    metrics = engine_metrics(COMPILED)
    assert (metrics["engine/fused_attention"], metrics["engine/attention_regions"]) == (6, 7)
    assert (metrics["engine/fp16_nodes_in_fp32"], metrics["engine/cast_layers"]) == (2, 3)
    unknown = COMPILED | {"compiled": COMPILED["compiled"] | {"fused_attention": None, "cast_layers": None}}
    assert "not known" in dict(fact_rows(unknown))["fused attention"] and not fused_sentence(unknown)
    expect(fused_sentence(COMPILED), None, "6 of 7")
    expect(fused_sentence(gated), None, "6 of 7", "1")
    assert engine_metrics(BUILT)["engine/fused_attention"] is None
