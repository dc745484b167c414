"""Reports as JSON and back, of this and of another version."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from truehalf.calibration.calibrate_report import CalibrateReport
from truehalf.conversion.report import CastsReport, Fp16Report
from truehalf.engines.engine_report import EngineReport
from truehalf.exporting.trace_report import Baked, TraceReport
from truehalf.provenance.inputs_report import InputsReport
from truehalf.slimming.slim_report import SlimReport

REPORTS: tuple[Any, ...] = (
    TraceReport,
    SlimReport,
    CalibrateReport,
    Fp16Report,
    CastsReport,
    EngineReport,
    InputsReport,
)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_of_another_version_is_read(report: Any) -> None:
    assert report.from_json({}) == report()
    assert report.from_json({"of_another_version": 1, "model": None}) == report()
    assert report.from_json(json.loads(json.dumps(report().to_json()))).to_json() == json.loads(
        json.dumps(report().to_json())
    )


def test_what_is_not_known_is_left_out_and_nested_reports_are_read() -> None:
    report = TraceReport(exporter="dynamo", opset=18, baked=Baked(inputs=["zeros"]))
    assert "parameters" not in report.to_json()
    read = TraceReport.from_json(report.to_json())
    assert read == report and read.baked is not None and not read.baked.reason
    assert TraceReport.from_json(replace(report, baked=None).to_json()).baked is None
