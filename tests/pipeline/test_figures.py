"""The figures of a run: the same keys in every run, and nothing in place of one that was not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.figures import FIGURES, figures_of, low_precision_note, metrics_of, mlflow_metrics
from pipeline.run_record import Run
from tests.messages import expect

VERIFY: Any = {
    "status": "done",
    "verdict": "passed",
    "ap50_95": 0.80721722,
    "ap50_95_fp32": 0.8072,
    "ap50_95_drop": -1.7e-05,
    "matched_fraction": 0.99951,
    "box_error_px_p99": 0.1098480,
    "score_error_p99": 0.0125170,
    "metrics": {"mine:iou": 0.75},
}
REPORTS: Any = {
    "slim": {"model": {"casts": 18, "size_mb": 11.4}, "seconds": 2.0},
    "fp16": {"fp16_arithmetic": 0.98, "seconds": 3.0},
    "cast_cleanup": {"model": {"casts": 33, "size_mb": 5.966}},
    "verify": VERIFY,
    "engine": {"status": "compiled", "compiled": {"half_arithmetic": 0.97, "fused_attention": 11}},
}
METRICS = {
    **{"ap": 0.8072, "ap_drop": 0, "matched": 0.9995, "same_class": None, "tensor_rms": None, "box_p99": 0.1098},
    **{"score_p99": 0.0125, "fp16": 0.98, "casts": 15, "fused": 11, "mb": 5.966, "verdict": "passed"},
}


def run_of(reports: Any, **params: Any) -> Run:
    return Run(Path("nowhere"), params, reports)


def test_the_metrics_of_a_run() -> None:
    metrics = metrics_of(run_of(REPORTS))
    assert metrics == METRICS and list(metrics) == list(METRICS)
    assert str(metrics["ap_drop"]) == "0.0", "not -0.0, which a difference would show"


@pytest.mark.parametrize(
    ("stage", "report", "changes"),
    [
        ("engine", {"status": "planned"}, {"fused": None}),
        ("engine", {"status": "failed"}, {"fused": None, "verdict": "failed"}),
        ("verify", VERIFY | {"verdict": "not verified", "ap50_95": None}, {"ap": None, "verdict": "not verified"}),
        ("verify", VERIFY | {"verdict": "failed", "status": "failed"}, {"verdict": "failed"}),
        ("slim", {"status": "done"}, {"casts": None}),
        ("cast_cleanup", {"model": {"casts": 4}}, {"casts": -14, "mb": None}),
    ],
)
def test_a_figure_that_was_not_measured_is_none(stage: str, report: Any, changes: Any) -> None:
    assert metrics_of(run_of(REPORTS | {stage: report})) == METRICS | changes


def test_an_open_requirement_fails() -> None:
    assert metrics_of(run_of(REPORTS, verify={"require": ["engine"]}))["verdict"] == "failed"


def test_a_share_is_that_of_the_file_whether_or_not_an_engine_was_compiled() -> None:
    figures = figures_of(run_of(REPORTS))
    assert (figures["fp16"], figures["fp16_compiled"]) == (0.98, 0.97)
    assert figures_of(run_of(REPORTS | {"engine": {"status": "planned"}}))["fp16"] == 0.98


def test_mlflow_gets_what_was_measured_the_users_own_metrics_and_seconds() -> None:
    metrics = mlflow_metrics(run_of(REPORTS))
    assert metrics["ap"] == 0.80721722 and metrics["own/mine.iou"] == 0.75
    assert (metrics["seconds/slim"], metrics["seconds/fp16"], metrics["seconds"]) == (2.0, 3.0, 5.0)
    assert "same_class" not in metrics and "seconds/verify" not in metrics
    assert next(iter(sorted(metrics))) == "ap", "which MLflow plots first"


def test_every_figure_has_its_own_key_and_label() -> None:
    assert len({figure.key for figure in FIGURES}) == len({figure.label for figure in FIGURES}) == len(FIGURES)
    assert set(figures_of(run_of({})).values()) == {None}


@pytest.mark.parametrize(("precision", "is_low"), [(0.08, True), (0.4, False), (None, False)])
def test_a_reference_that_finds_little_is_pointed_out(precision: float | None, is_low: bool) -> None:
    note = low_precision_note(run_of(REPORTS | {"verify": VERIFY | {"ap50_95_fp32": precision}}))
    assert (note is not None) is is_low
    if note is not None:
        expect(note, None, "0.0800")
