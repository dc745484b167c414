"""Lint: the function and the command."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.messages import expect, raises
from truehalf.api import lint
from truehalf.cli.app import run as truehalf
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.patterns import RULES

TEXTS = {
    "clean": '(float[N,3] x) => (float[N,3] y) { ["a"] y = Relu(x) }',
    "wrong": '(float[N,3,8,8] x, float[N,4,4,2] g) => (float[N,3,4,4] y) { ["/head/Sample"] y = GridSample(x, g) }',
    "lacking": '(float[N,3] x) => (float[N,3] y) { ["a"] y = Where(x) }',
    "broken": '(float[4,4] x) => (float[1] y) <int64[1] one = {1}> { ["d"] z = Det(x) ["r"] y = Reshape(z, one) }',
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, text in TEXTS.items():
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
        onnx.save(proto, tmp_path / f"{name}.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    return {path.stem: str(path) for path in tmp_path.iterdir()}


# --- the function -----------------------------------------------------------------------------------------------------


def test_a_file(files: dict[str, str]) -> None:
    report = lint(files["wrong"])
    assert [finding.rule for finding in report.findings] == ["grid-sample"]
    assert (report.model, report.target, report.tensorrt) == (files["wrong"], files["wrong"], ("10.16", "11.4"))
    assert lint(files["wrong"], tensorrt="10").tensorrt == ("10.16",)


def test_types_that_a_file_does_not_state_are_inferred(files: dict[str, str], tmp_path: Path) -> None:
    text = "(float[N] x) => (float[A] y) <float h = {0.5}> { m = Greater(x, h) p = NonZero(m) t = Transpose(p) "
    text += "y = GatherND(x, t) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'), tmp_path / "bare.onnx")
    report = lint(tmp_path / "bare.onnx", ignore=["empty-node-name"])
    assert [finding.rule for finding in report.findings] == ["nonzero-threshold"]


def test_an_input_of_the_spec_that_the_file_lost(files: dict[str, str], tmp_path: Path) -> None:
    model = onnx.load(files["clean"])
    model.metadata_props.add(key=SPEC_KEY, value=json.dumps({"inputs": [{"name": "x"}, {"name": "scale"}]}))
    onnx.save(model, tmp_path / "lost.onnx")
    (finding,) = lint(tmp_path / "lost.onnx").findings
    assert (finding.rule, finding.node) == ("baked-item", "scale")


def test_ignoring_counts(files: dict[str, str]) -> None:
    report = lint(files["wrong"], ignore=["grid-sample@^/head/", "float64"])
    assert (report.findings, dict(report.ignored)) == ((), {"grid-sample@^/head/": 1, "float64": 0})


def test_plugins(files: dict[str, str]) -> None:
    assert lint(files["broken"]).reaches("error")
    assert lint(files["broken"], plugin_ops=["Det"]).findings == ()


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "options", "ends"),
    [
        ("clean", [], 0),
        ("wrong", [], 0),
        ("wrong", ["--fail-on", "warning"], 1),
        ("wrong", ["--fail-on", "warning", "--ignore", "grid-sample"], 0),
        ("wrong", ["--fail-on", "warning", "--ignore", "float64", "--ignore", "grid-sample"], 0),
        ("broken", [], 1),
        ("broken", ["--fail-on", "never"], 0),
        ("broken", ["--plugin-ops", "Det"], 0),
    ],
)
def test_exit_codes(
    files: dict[str, str], file: str, options: list[str], ends: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert truehalf(["lint", files[file], *options]) == ends
    said = capsys.readouterr()
    assert not said.err and said.out


@pytest.mark.parametrize(
    ("file", "options", "code", "facts"),
    [
        ("text", [], "file-unreadable", ["text.onnx"]),
        ("lacking", [], "model-invalid", ["lacking.onnx", "'a'"]),
        ("broken", ["--tensorrt", "8.6"], "bad-syntax", ["10", "11", "11.4", "'8.6'"]),
        ("broken", ["--ignore", "no-such-rule"], "bad-syntax", ["lint.ignore", "'no-such-rule'"]),
    ],
)
def test_bad_input_is_2_and_said_once(
    files: dict[str, str],
    file: str,
    options: list[str],
    code: str,
    facts: list[object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert truehalf(["lint", files[file], *options]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("truehalf lint: ") and said.err.count("lint: ") == 1
    expect(said.err, code, *facts)


def test_a_node_that_lacks_inputs_is_named(files: dict[str, str]) -> None:
    with raises("model-invalid", "lacking.onnx:", "'a'", "Where", 3, 1):
        lint(files["lacking"])


@pytest.mark.parametrize("options", [["--ignore", "grid-sample"], ["--plugin-ops", "GridSample"]])
def test_the_file_may_come_last(files: dict[str, str], options: list[str]) -> None:
    assert truehalf(["lint", "--fail-on", "error", *options, files["wrong"]]) == 0


def test_stopped(files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("truehalf.patterns.report.InferTypes.edit", stop)
    assert truehalf(["lint", files["clean"]]) == 130
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("truehalf lint: ")


def test_a_fault_of_ours_is_no_finding(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("truehalf.patterns.report.lint", fail)
    assert truehalf(["lint", files["clean"]]) == 70
    expect(capsys.readouterr().err, "internal-error", "lint: ZeroDivisionError: of ours", "Traceback")


def test_formats(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["lint", files["wrong"], "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["warning"] == 1
    assert truehalf(["lint", files["wrong"]]) == 0
    expect(capsys.readouterr().out.splitlines()[0], None, f"{files['wrong']}: ", "0 errors", "1 warning")


def test_neither_file_nor_rule_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["lint"]) == 2
    expect(capsys.readouterr().err, None, "model.onnx", "--explain RULE")


# --- documentation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained(rule: str) -> None:
    assert (RULES[rule].__doc__ or "").strip() and RULES[rule].explanation.startswith(f"{RULES[rule].severity}: ")
