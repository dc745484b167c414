"""Findings as text, JSON and SARIF."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.messages import expect
from truehalf.linting import RULES, Finding
from truehalf.linting.report import LintReport, counts, failing, failure, sarif, summary, text

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


# --- SARIF: the parts of the schema of 2.1.0 that readers need --------------------------------------------------------


def test_sarif() -> None:
    made = json.loads(json.dumps(sarif(report(DET, GRID, NAMES), RULES)))
    assert made["version"] == "2.1.0" and made["$schema"].endswith("sarif-2.1.0.json")
    (run,) = made["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] and [rule["id"] for rule in driver["rules"]] == [*RULES]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"] and f"lint --explain {rule['id']}" in rule["help"]["text"]
        assert rule["shortDescription"]["text"] in rule["help"]["markdown"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert GRID.remedy in result["message"]["text"]
        assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations", "properties"}
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "model.onnx"


def test_sarif_places_nodes_logically() -> None:
    (det,) = sarif(report(DET), RULES)["runs"][0]["results"]
    assert det["locations"][0]["logicalLocations"] == [{"name": "/Det", "fullyQualifiedName": "/Det", "kind": "object"}]
    assert "region" not in det["locations"][0]["physicalLocation"]


def test_sarif_quotes_paths() -> None:
    made = sarif(report(DET, model="my models/a b.onnx"), RULES)
    location = made["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "my%20models/a%20b.onnx"


def uri(model: str) -> str:
    made = sarif(report(DET, model=model), RULES)["runs"][0]["results"][0]
    return str(made["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])


def test_sarif_paths_are_relative_or_have_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code scanning drops absolute paths without one."""
    monkeypatch.chdir(tmp_path)
    assert uri(str(tmp_path / "models" / "a b.onnx")) == "models/a%20b.onnx"
    assert uri("/elsewhere/a b.onnx") == "file:///elsewhere/a%20b.onnx"


def test_sarif_explains_each_rule_without_the_documentation_at_hand() -> None:
    for rule in sarif(report(DET), RULES)["runs"][0]["tool"]["driver"]["rules"]:
        assert len(rule["help"]["markdown"]) > 40, rule["id"]
