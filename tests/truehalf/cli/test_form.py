"""Messages of the library, whose remedies the command states as its own flags."""

from __future__ import annotations

import random
import re
from dataclasses import fields
from pathlib import Path

import click
import numpy as np
import onnx
import onnx.parser
import pytest

from tests.conftest import ROOT
from tests.messages import expect
from truehalf.cli.app import app
from truehalf.cli.app import run as truehalf
from truehalf.cli.form import with_flags
from truehalf.config.precision import Precision
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.linting import RULES

COMMANDS = {name: app.get_command(click.Context(app), name) for name in ("convert", "verify", "export", "lint")}


def said(command: str, text: str) -> str:
    with click.Context(COMMANDS[command], parent=click.Context(app, info_name="truehalf"), info_name=command):
        return with_flags(text)


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("verify", "verify.evaluation=cuda runs it", "--evaluation cuda runs it"),
        ("convert", "verify.evaluation=cuda runs it", "truehalf verify --evaluation cuda runs it"),
        ("verify", "set verify.batch to that", "set --batch to that"),
        ("verify", "verify.gates.tensor_error_max (0.01)", "--tolerance (0.01)"),
        ("convert", "(verify.skip_corrupt=true leaves them out)", "(--skip-corrupt leaves them out)"),
        ("convert", "precision.masks=false keeps it", "--no-masks keeps it"),
        ("convert", "precision.opset=17 first", "--opset 17 first"),
        ("verify", "precision.opset=17 first", "truehalf convert --opset 17 first"),
        ("verify", "precision.keep_io_types=true", "truehalf convert --keep-io-types all"),
        ("lint", "lint.ignore: 'x' matches nothing", "--ignore: 'x' matches nothing"),
        ("export", "set trace.opset=18 or trace.exporter=dynamo", "set --opset 18 or --exporter dynamo"),
        ("export", "take it out of trace.dynamic_axes", "take it out of trace.dynamic_axes"),
        ("verify", "out/verify.json, lint.sarif, model.opset", "out/verify.json, lint.sarif, model.opset"),
    ],
)
def test_keys_of_the_configuration_become_flags(command: str, text: str, expected: str) -> None:
    assert said(command, text) == expected


def test_without_a_command_the_text_stays() -> None:
    assert with_flags("precision.opset=17") == "precision.opset=17"


@pytest.mark.parametrize("seed", range(6))
def test_every_flag_named_is_one_of_the_command(seed: int) -> None:
    draw = random.Random(seed)
    for section in (Precision, VerifyConfig, GatesConfig):
        for each in draw.sample(fields(section), 8):
            command, value = draw.choice([*COMMANDS]), draw.choice(["", "=true", "=false", "=some"])
            shown = said(command, f"a {section.SECTION}.{each.name}{value} b").removeprefix("a ").removesuffix(" b")
            if shown.startswith(section.SECTION):
                continue  # no command has it
            where = re.match(r"(?:truehalf (\w+) )?(--[\w-]+)", shown)
            assert where is not None, shown
            known = {
                name
                for option in COMMANDS[where[1] or command].params
                for name in (*option.opts, *option.secondary_opts)
            }
            assert where[2] in known, shown


def test_remedies_of_a_comparison_are_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) { m = MatMul(x, w) y = Relu(m) }'
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    onnx.save(proto, "m.onnx")
    np.savez("x.npz", x=np.random.default_rng(0).random((8, 4), np.float32))
    assert truehalf(["convert", "m.onnx", "--samples", "x.npz"]) == 0
    expect(" ".join(capsys.readouterr().out.split()), None, "truehalf verify --evaluation", "--spec")
    assert truehalf(["verify", "m.onnx", "m_fp16.onnx", "--samples", "x.npz"]) == 0
    found = " ".join(capsys.readouterr().out.split())
    expect(found, None, "--evaluation", "--spec")
    assert "verify.evaluation" not in found and "spec=)" not in found


@pytest.mark.parametrize("rule", ["grid-sample", "baked-item", "int64-range", "empty-node-name"])
def test_a_rule_is_explained(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["lint", "--explain", rule]) == 0
    text = capsys.readouterr().out
    explained = RULES[rule]
    assert text.startswith(f"{rule}\n") and explained.title in text and explained.explanation.split()[-1] in text


def test_an_unknown_rule_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["lint", "--explain", "no-rule"]) == 2
    expect(capsys.readouterr().err, "unknown-choice", "no-rule", "grid-sample")


def test_no_message_of_the_library_sends_its_reader_to_docs() -> None:
    """A wheel has no docs/ folder. Docstrings and comments are for readers of the source."""
    import ast

    for path in (ROOT / "truehalf").rglob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None
        }
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        shown = [node.value for node in texts if id(node) not in docstrings and path.name != "codes.py"]
        assert not [text for text in shown if re.search(r"docs/[\w/-]+\.md", text)], path


@pytest.mark.parametrize(
    ("given", "meant"), [("conver", "convert"), ("compare", "verify"), ("clean_casts", "clean-casts")]
)
def test_another_name_of_a_command_is_answered(given: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf([given, "model.onnx"]) == 2
    assert f"'{meant}'" in capsys.readouterr().err
