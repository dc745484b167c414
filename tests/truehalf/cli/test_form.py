"""What commands print: names stay as they are, remedies can be followed, rules are explained."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.conftest import ROOT
from tests.messages import expect
from truehalf.cli.app import run as truehalf
from truehalf.patterns import RULES

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }'


def test_names_of_the_user_stay_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that look like keys of the configuration."""
    assert truehalf(["inspect", "verify.batch.onnx"]) == 2
    expect(capsys.readouterr().err, "file-missing", "verify.batch.onnx")
    made, out = tmp_path / "precision.data_max.onnx", tmp_path / "lint.ignore.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), made)
    assert truehalf(["clean-casts", str(made), "-o", str(out)]) == 0
    assert str(out) in capsys.readouterr().out


def test_remedies_of_a_comparison_are_keys_that_its_flags_are_named_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(MODEL.replace("Relu(x)", "MatMul(x, w)"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    onnx.save(proto, "m.onnx")
    np.savez("x.npz", x=np.random.default_rng(0).random((8, 4), np.float32))
    assert truehalf(["convert", "m.onnx", "--samples", "x.npz"]) == 0
    expect(" ".join(capsys.readouterr().out.split()), None, "verify.evaluation", "--spec")
    assert truehalf(["verify", "m.onnx", "m_fp16.onnx", "--samples", "x.npz"]) == 0
    found = " ".join(capsys.readouterr().out.split())
    expect(found, None, "verify.evaluation", "--spec")
    assert "spec=)" not in found


@pytest.mark.parametrize("rule", ["grid-sample", "baked-item", "float64", "empty-node-name"])
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
