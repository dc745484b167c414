"""The figures by which runs are compared: flat, the same keys in every run, and narrow enough for a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.metrics import Metrics, main, metrics_of
from tests.configurations import write_params

VERIFY: Any = {
    "verdict": "passed",
    "ap50_95": 0.80721722,
    "ap50_95_drop": -1.7e-05,
    "matched_fraction": 0.99951,
    "box_error_px_p99": 0.1098480,
    "score_error_p99": 0.0125170,
}
REPORTS: Any = {
    "slim": {"model": {"casts": 18, "size_mb": 11.4}},
    "fp16": {"fp16_arithmetic": 0.98},
    "cast_cleanup": {"model": {"casts": 33, "size_mb": 5.966}},
    "verify": VERIFY,
    "engine": {"status": "compiled", "compiled": {"half_arithmetic": 0.97, "fused_attention": 11}},
}
FOUND = {
    **{"ap": 0.8072, "ap_drop": 0, "matched": 0.9995, "box_p99": 0.1098, "score_p99": 0.0125, "fp16": 0.97},
    **{"casts": 15, "fused": 11, "mb": 5.97, "verdict": "passed"},
}


def test_the_figures_of_a_run() -> None:
    found = metrics_of(REPORTS, {})
    assert found == FOUND and [*found] == [*Metrics.__annotations__]
    assert str(found["ap_drop"]) == "0.0", "not -0.0, which a difference would show"


@pytest.mark.parametrize(
    ("stage", "report", "changes"),
    [
        ("engine", {"status": "planned"}, {"fp16": 0.98, "fused": None}),
        (
            "engine",
            {"status": "compiled", "compiled": {"half_arithmetic": None, "fused_attention": None}},
            {"fp16": 0.98, "fused": None},
        ),
        ("engine", {"status": "failed"}, {"fp16": 0.98, "fused": None, "verdict": "failed"}),
        ("verify", VERIFY | {"verdict": "not verified", "ap50_95": None}, {"ap": None, "verdict": "not verified"}),
        ("verify", VERIFY | {"verdict": "failed", "status": "failed"}, {"verdict": "failed"}),
        ("slim", {"status": "done"}, {"casts": None}),
        ("cast_cleanup", {"model": {"casts": 4}}, {"casts": -14, "mb": None}),
    ],
)
def test_what_was_not_measured_is_no_figure(stage: str, report: Any, changes: Any) -> None:
    assert metrics_of(REPORTS | {stage: report}, {}) == FOUND | changes


def test_what_had_to_be_verified_and_was_not_fails() -> None:
    assert metrics_of(REPORTS, {"verify": {"require": ["engine"]}})["verdict"] == "failed"


def test_the_report_stage_writes_them_whatever_of_a_run_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").touch()
    write_params(tmp_path)
    (tmp_path / "reports").mkdir()
    main()
    written = json.loads((tmp_path / "reports/metrics.json").read_text())
    assert written == dict.fromkeys(FOUND) | {"verdict": "not verified"}
