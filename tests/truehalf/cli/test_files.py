"""Files of the command: no input is written over, and broken ones are one line and exit code 2."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from truehalf.cli.app import run as truehalf

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y)
{ ["m"] h = MatMul(x, w) ["s"] y = Softmax(h) }"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weights lie in w.bin, samples, and a result of a conversion."""
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    np.savez("x.npz", x=np.random.default_rng(1).standard_normal((4, 2, 8)).astype(np.float32))
    assert truehalf(["convert", "m.onnx", "--samples", "x.npz", "-o", "fp16.onnx", "--json", "r.json", "--quiet"]) == 0
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "line",
    [
        "convert m.onnx -o w.bin",
        "convert m.onnx -o out.onnx --json w.bin",
        "convert m.onnx -o r.json --ranges r.json",
        "verify m.onnx fp16.onnx --samples x.npz --json w.bin",
        "inspect m.onnx --json m.onnx",
        "inspect m.onnx --json w.bin",
        "inspect m.onnx --result r.json --json r.json",
        "clean-casts fp16.onnx -o out.onnx --json out.onnx",
        "clean-casts fp16.onnx -o out.onnx --json fp16.onnx",
        "clean-casts m.onnx -o w.bin",
        "repair m.onnx -o out.onnx --json m.onnx",
        "repair m.onnx -o w.bin",
        "calibrate m.onnx --samples x.npz -o x.npz",
        "calibrate m.onnx --samples x.npz -o w.bin",
        "lint m.onnx --json w.bin",
        "report r.json -o r.json",
        "export nets:build -o x.npz --samples x.npz",
        "export nets:build -o out.onnx --json out.onnx --samples x.npz",
        "export nets:build -o w.pt --checkpoint w.pt --shape x:1x2",
    ],
)
def test_no_output_lies_where_an_input_does(
    folder: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(folder)
    assert truehalf(line.split()) == 2
    expect(capsys.readouterr().err, "would-overwrite")
    assert content(folder) == before


@pytest.mark.parametrize(
    "line",
    ["inspect m.onnx", "clean-casts fp16.onnx -o new.onnx", "repair m.onnx -o new.onnx", "convert m.onnx -o new.onnx"],
)
def test_an_unwritable_report_is_found_before_the_work(
    folder: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert truehalf([*line.split(), "--json", "m.onnx/r.json"]) == 2
    expect(capsys.readouterr().err, "file-unwritable", "--json", "m.onnx/r.json")
    assert not (folder / "new.onnx").exists()


def without(result: Path, key: str) -> None:
    found = json.loads(result.read_text())
    del found[key]
    result.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("convert .", "wrong-file"),
        ("engine .", "wrong-file"),
        ("report m.onnx -o out.html", "file-unreadable"),
        ("report absent.json -o out.html", "file-missing"),
        ("report cut.json -o out.html", "wrong-file"),
        ("inspect m.onnx --result m.onnx", "file-unreadable"),
        ("inspect m.onnx --result cut.json", "wrong-file"),
        ("engine cut.json --out out", "file-unreadable"),
        ("engine r.json --out out", "file-unreadable"),
        ("convert m.onnx -o out.onnx --ranges absent.json", "file-missing"),
        ("convert m.onnx -o out.onnx --ranges r.json", "wrong-file"),
        ("convert m.onnx -o out.onnx --samples absent --size 8x8", "file-missing"),
        ("convert m.onnx -o out.onnx --samples m.onnx --size 8x8", "file-unreadable"),
        ("convert m.onnx -o out.onnx --samples x.npz --size 8x8", "in-conflict"),
        ("convert m.onnx -o out.onnx --samples x.npz --ranges r.json --no-verify", "in-conflict"),
    ],
)
def test_a_wrong_file_is_one_error(folder: Path, line: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cut.json").write_text((folder / "r.json").read_text())
    for key in ("verdict", "decisions"):
        without(folder / "cut.json", key)
    before = content(folder)
    assert truehalf(line.split()) == 2
    said = capsys.readouterr().err
    expect(said, code)
    assert "Traceback" not in said and content(folder) == before


def test_a_file_is_named_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("absent.onnx", "x.npz"):
        assert truehalf(["lint", name]) == 2
        assert capsys.readouterr().err.count(name) == 1


def test_a_full_disk_takes_the_json_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, text: str, encoding: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    assert truehalf(["verify", "m.onnx", "fp16.onnx", "--samples", "x.npz", "--json", "new.json", "--quiet"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("passed: ") and not (folder / "new.json").exists()
    expect(said.err, "file-unwritable", "new.json")
