"""Every door refuses before its work: places of no regular file, outputs of one name, outputs over inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.measuring.converted import to_fp16
from tests.messages import expect
from tests.truehalf.test_output_files import REFUSED, made
from truehalf import api
from truehalf.cli.app import run as truehalf
from truehalf.conversion.casts_of_file import clean_casts
from truehalf.engines.plan import check_target
from truehalf.errors import StageError
from truehalf.exporting.onnx_source import pass_on
from truehalf.io_spec.spec import IoSpec
from truehalf.slimming.slim import slim

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float["n",4] x) => (float["n",4] y) { y = Mul(x, w) }"""
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "kind": "other", "dtype": "float32", "shape": ["n", 4]}],
        "outputs": [{"name": "y", "kind": "other", "dtype": "float32", "shape": ["n", 4]}],
    }
)


def _shell(code: int) -> None:
    if code:
        raise SystemExit(code)


def _fp16(folder: Path, out: Path, decisions: Path) -> None:
    to_fp16(folder / "in.onnx", out, decisions_path=decisions, calibration=folder / "samples")


def _lint(folder: Path, out: Path) -> None:
    _shell(truehalf(["lint", str(folder / "in.onnx"), "--out", str(out)]))


def _verify(folder: Path, out: Path) -> None:
    files = [str(folder / "in.onnx"), str(folder / "other.onnx")]
    _shell(truehalf(["verify", *files, "--samples", str(folder / "samples"), "--json", str(out)]))


def _pass_on(folder: Path, out: Path) -> None:
    pass_on(folder / "in.onnx", out, spec=SPEC)


def _engine(folder: Path, out: Path) -> None:
    plan = {"engine": out.name, "onnx_data": ["w.bin"], "plugins": [{"path": str(folder / "plugin.so")}]}
    check_target(plan, folder / "in.onnx", out.parent, ["plan.json", "engine.json"])


DOORS: dict[str, Callable[..., None]] = {
    "fp16": lambda folder, out: _fp16(folder, out, folder / "d.json"),
    "decisions": lambda folder, out: _fp16(folder, folder / "o.onnx", out),
    "cast_cleanup": lambda folder, out: clean_casts(folder / "in.onnx", out),
    "slim": lambda folder, out: slim(folder / "in.onnx", out),
    "api.convert": lambda folder, out: api.convert(folder / "in.onnx", out, samples=folder / "samples", skip=["slim"]),
    "api.convert by ranges": lambda folder, out: api.convert(folder / "in.onnx", out, ranges=folder / "ranges.json"),
    "api.repair": lambda folder, out: api.repair(folder / "in.onnx", out),
    "pass_on": _pass_on,
    "lint": _lint,
    "verify": _verify,
    "engine": _engine,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "files"
    (folder / "samples").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name, data in (("in", "w.bin"), ("other", "v.bin")):
        proto = onnx.parser.parse_model(MODEL)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
        onnx.save(proto, folder / f"{name}.onnx", save_as_external_data=True, location=data, size_threshold=0)
    np.savez(folder / "samples" / "0.npz", x=np.ones((1, 4), np.float32))
    (folder / "plugin.so").write_text("")
    (folder / "plan.json").write_text("{}")
    (folder / "ranges.json").write_text("{}")
    return folder


def refused(code: str, call: Callable[[], None], capsys: pytest.CaptureFixture[str], *facts: object) -> None:
    with pytest.raises((StageError, SystemExit)) as caught:
        call()
    said = capsys.readouterr().err if isinstance(caught.value, SystemExit) else str(caught.value)
    expect(said, code, *facts)


@pytest.mark.parametrize("kind", [kind for kind in REFUSED if kind != "link to an open file without a name"])
@pytest.mark.parametrize("door", DOORS)
def test_no_regular_file(door: str, kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "out").mkdir()
    place, facts = made(folder / "out", kind)
    before = facts()
    refused("file-unwritable", lambda: DOORS[door](folder, place), capsys, place)
    assert facts() == before


@pytest.mark.parametrize("door", [door for door in DOORS if door not in ("engine", "decisions", "verify")])
def test_a_model_is_not_written_to_stdout(door: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused("file-unwritable", lambda: DOORS[door](folder, Path("-")), capsys)
    assert not (folder / "-").exists()


@pytest.mark.parametrize("door", ["fp16", "api.convert", "verify"])
def test_what_is_refused_leaves_no_folder(door: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "samples" / "0.npz", x=np.ones((1, 5), np.float32))
    refused("wrong-shape", lambda: DOORS[door](folder, folder / "new" / "deep" / "o.onnx"), capsys)
    assert not (folder / "new").exists()


READ = {  # door -> what it reads, in the folder
    "fp16": ["in.onnx", "w.bin", "samples/0.npz"],
    "decisions": ["in.onnx", "w.bin", "samples/0.npz", "o.onnx", "o.onnx.data"],
    "cast_cleanup": ["in.onnx", "w.bin"],
    "slim": ["in.onnx", "w.bin"],
    "api.convert": ["in.onnx", "w.bin", "samples/0.npz"],
    "api.convert by ranges": ["in.onnx", "w.bin", "ranges.json"],
    "api.repair": ["in.onnx", "w.bin"],
    "pass_on": ["in.onnx", "w.bin", "io_spec.json"],
    "lint": ["in.onnx", "w.bin"],
    "verify": ["in.onnx", "w.bin", "other.onnx", "v.bin", "samples/0.npz"],
    "engine": ["in.onnx", "w.bin", "plugin.so", "plan.json", "engine.json"],
}
WAYS: Mapping[str, Callable[[Path], Path]] = {
    "itself": lambda path: path,
    "a detour": lambda path: path.parent / ".." / path.parent.name / path.name,
    "from here": lambda path: Path(os.path.relpath(path)),
    "a link": lambda path: _linked(path, os.symlink),
    "a hard link": lambda path: _linked(path, os.link),
    "a linked folder": lambda path: _linked(path.parent, os.symlink) / path.name,
}


def _linked(path: Path, link: Callable[[Path, Path], None]) -> Path:
    other = Path(f"linked{path.suffix}").absolute()
    link(path, other)
    return other


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("door", "read"), [(door, read) for door, files in READ.items() for read in files])
def test_no_output_is_an_input_or_another_output(
    door: str, read: str, way: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = (folder / read).exists()
    if way == "a hard link" and (not there or read in ("w.bin", "v.bin", "samples/0.npz")):
        pytest.skip("nothing to link to; weights of several links are not read at all; samples are not looked up")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    place = WAYS[way](folder / read)
    refused("would-overwrite", lambda: DOORS[door](folder, place), capsys, place)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path in before} == before


def test_links_are_followed(folder: Path) -> None:
    for name in ("o.onnx", "d.json"):
        (folder / f"real-{name}").write_text("old")
        (folder / name).symlink_to(f"real-{name}")
    _fp16(folder, folder / "o.onnx", folder / "d.json")
    assert (folder / "o.onnx").is_symlink() and (folder / "d.json").is_symlink()
    onnx.checker.check_model(folder / "real-o.onnx", full_check=True)
    assert json.loads((folder / "real-d.json").read_text())
