"""Findings as text and JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.messages import expect
from truehalf.patterns import Finding
from truehalf.patterns.report import LintReport, counts, failing, failure, summary, text

GRID = Finding(
    "grid-sample",
    "warning",
    "/decoder/GridSample",
    "GridSample",
    "decoder",
    "Wrong " * 30 + "results.",
    "Use gathers.",
    "docs/reference/lint.md#grid-sample",
)
DET = dataclasses.replace(GRID, rule="unsupported-op", severity="error", node="/Det", op_type="Det", message="No Det.")
NAMES = dataclasses.replace(GRID, rule="empty-node-name", severity="info", node="", op_type="", message="17.", count=17)


def report(*findings: Finding, **changes: object) -> LintReport:
    made = LintReport("model.onnx", "model.onnx", ("10.16", "11.4"), findings, {})
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def many(count: int) -> list[Finding]:
    return [dataclasses.replace(GRID, node=f"/decoder/GridSample_{number}") for number in range(count)]


# --- counts -----------------------------------------------------------------------------------------------------------


def test_counts_are_of_places() -> None:
    assert counts([DET, GRID, GRID, NAMES]) == {
        "counts": {"error": 1, "warning": 2, "info": 17},
        "rules": {"unsupported-op": 1, "grid-sample": 2, "empty-node-name": 17},
    }


@pytest.mark.parametrize(("severity", "number"), [("never", 0), ("error", 1), ("warning", 2), ("info", 3)])
def test_failing(severity: str, number: int) -> None:
    assert len(failing([DET, GRID, NAMES], severity)) == number
    assert report(DET, GRID, NAMES).reaches(severity) is (number > 0)


def test_summary_holds_the_first_findings_only() -> None:
    made = summary([DET, *many(30)], {"float64": 0})
    assert (len(made["first"]), made["first"][0]["rule"], made["counts"]["warning"]) == (20, "unsupported-op", 30)
    assert made["ignored"] == {"float64": 0} and "file" not in made["first"][0]


def test_failure_names_each_rule_with_its_first_place() -> None:
    det, grid = failure([DET, *many(3)]).splitlines()
    expect(det, None, "error unsupported-op (1):", DET.message, "/Det (Det)")
    expect(grid, None, "warning grid-sample (3):", GRID.message, "/decoder/GridSample_0 (GridSample)")


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 200])
def test_text_fits_and_groups(width: int) -> None:
    lines = text(report(DET, *many(7), NAMES), width).splitlines()
    expect(lines[0], None, "model.onnx:", "1 error", "7 warnings", "17 info", "10.16", "11.4")
    assert max(map(len, lines)) <= min(width, 120)
    assert [line for line in lines if line and not line.startswith(" ")][1:] == [
        "error  unsupported-op",
        "warning  grid-sample  (7)",
        "info  empty-node-name  (17)",
    ]
    shown = [line.strip() for line in lines if "/decoder/GridSample_" in line]
    assert shown == [f"/decoder/GridSample_{number} (GridSample)" for number in range(5)]
    expect(lines[lines.index(f"    {shown[-1]}") + 1], None, 2)
    assert {"/Det (Det)", GRID.link} <= {line.strip() for line in lines}


def test_findings_that_say_something_else_are_another_group() -> None:
    other = dataclasses.replace(GRID, message="Something else.")
    assert text(report(GRID, other), 80).count("warning  grid-sample\n") == 2


def test_nothing_found() -> None:
    (line,) = text(report(), 80).splitlines()
    expect(line, None, "model.onnx:", "0 errors", "0 warnings", "0 info", "10.16", "11.4")


def test_what_is_ignored_and_what_matches_nothing_is_said() -> None:
    _, _, taken, _, missed = text(report(ignored={"grid-sample": 18, "float64@x": 0}), 80).splitlines()
    expect(taken, None, 18, "'grid-sample'")
    expect(missed, "no-match", "lint.ignore", "'float64@x'")


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_is_plain_and_whole() -> None:
    made = json.loads(json.dumps(report(DET, ignored={"float64": 2}).to_json()))
    assert (made["model"], made["tensorrt"], made["ignored"]) == ("model.onnx", ["10.16", "11.4"], {"float64": 2})
    assert made["findings"][0]["node"] == "/Det"
