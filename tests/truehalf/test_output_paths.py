"""Every door refuses before its work: places of no regular file, outputs of one name, outputs over inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import raises
from tests.truehalf.test_files import made
from truehalf import api
from truehalf.conversion.casts_of_file import clean_casts
from truehalf.exporting.trace import trace
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


def _pass_on(folder: Path, out: Path) -> None:
    trace(folder / "in.onnx", {}, out, spec=SPEC)


DOORS: dict[str, Callable[..., None]] = {
    "cast_cleanup": lambda folder, out: clean_casts(folder / "in.onnx", out),
    "slim": lambda folder, out: slim(folder / "in.onnx", out),
    "api.convert": lambda folder, out: api.convert(folder / "in.onnx", out, samples=folder / "samples", skip=["slim"]),
    "api.convert by ranges": lambda folder, out: api.convert(folder / "in.onnx", out, ranges=folder / "ranges.json"),
    "api.repair": lambda folder, out: api.repair(folder / "in.onnx", out),
    "pass_on": _pass_on,
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
    (folder / "ranges.json").write_text("{}")
    return folder


@pytest.mark.parametrize("kind", ["folder", "fifo"])
@pytest.mark.parametrize("door", DOORS)
def test_no_regular_file(door: str, kind: str, folder: Path) -> None:
    (folder / "out").mkdir()
    place, facts = made(folder / "out", kind)
    before = facts()
    with raises("file-unwritable", place):
        DOORS[door](folder, place)
    assert facts() == before


@pytest.mark.parametrize("door", DOORS)
def test_a_model_is_not_written_to_stdout(door: str, folder: Path) -> None:
    with raises("file-unwritable"):
        DOORS[door](folder, Path("-"))
    assert not (folder / "-").exists()


@pytest.mark.parametrize("door", ["api.convert"])
def test_what_is_refused_leaves_no_folder(door: str, folder: Path) -> None:
    np.savez(folder / "samples" / "0.npz", x=np.ones((1, 5), np.float32))
    with raises("wrong-shape"):
        DOORS[door](folder, folder / "new" / "deep" / "o.onnx")
    assert not (folder / "new").exists()


READ = {  # door -> what it reads, in the folder
    "cast_cleanup": ["in.onnx", "w.bin"],
    "slim": ["in.onnx", "w.bin"],
    "api.convert": ["in.onnx", "w.bin"],
    "api.convert by ranges": ["in.onnx", "w.bin", "ranges.json"],
    "api.repair": ["in.onnx", "w.bin"],
    "pass_on": ["in.onnx", "w.bin", "io_spec.json"],
}


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize(("door", "read"), [(door, read) for door, files in READ.items() for read in files])
def test_no_output_is_an_input_or_another_output(door: str, read: str, is_linked: bool, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    place = folder / read
    if is_linked:
        place = folder / f"linked{place.suffix}"
        place.symlink_to(folder / read)
    with raises("would-overwrite", place):
        DOORS[door](folder, place)
    assert {path: path.read_bytes() for path in before} == before


def test_links_are_followed(folder: Path) -> None:
    (folder / "real-o.onnx").write_text("old")
    (folder / "o.onnx").symlink_to("real-o.onnx")
    DOORS["api.convert"](folder, folder / "o.onnx")
    assert (folder / "o.onnx").is_symlink()
    onnx.checker.check_model(folder / "real-o.onnx", full_check=True)
