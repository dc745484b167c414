"""Both library doors and both command lines, given bad files: one message, and nothing is written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.conftest import ROOT
from tests.measuring.converted import to_fp16
from tests.messages import expect, raises
from truehalf.conversion.casts_of_file import clean_casts

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[4,4] x) => (float[4,4] y) '
DOORS: list[Callable[..., Any]] = [to_fp16, clean_casts]


def good() -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + "{ a = MatMul(x, w) b = Cast<to = 10>(a) y = Cast<to = 1>(b) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    return model


def not_a_model(path: Path) -> None:
    path.write_text("x = 1\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(good().SerializeToString()[:-20])


def a_folder(path: Path) -> None:
    path.mkdir()


def absent(path: Path) -> None:
    pass


def external(path: Path, location: str) -> None:
    model = good()
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], location)
    model.graph.initializer[0].ClearField("raw_data")
    onnx.save(model, path)


def weights_missing(path: Path) -> None:
    external(path, "gone.bin")


def weights_outside(path: Path) -> None:
    (path.parent.parent / "outside.bin").write_bytes(np.eye(4, dtype=np.float32).tobytes())
    external(path, "../outside.bin")


def weights_cut_off(path: Path) -> None:
    (path.parent / "w.bin").write_bytes(bytes(63))
    external(path, "w.bin")


def a_cycle(path: Path) -> None:
    onnx.save(onnx.parser.parse_model(HEAD + "{ [one] a = Add(x, b) [two] b = Relu(a) [end] y = Relu(b) }"), path)


def two_producers(path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + "{ a = Relu(x) y = Neg(a) }")
    model.graph.node[1].output[0] = "a"
    onnx.save(model, path)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (not_a_model, "file-unreadable", ["in.onnx", 6]),
        (empty, "file-unreadable", ["in.onnx", 0]),
        (truncated, "file-unreadable", ["in.onnx", len(good().SerializeToString()) - 20]),
        (a_folder, "wrong-file", ["in.onnx"]),
        (absent, "file-missing", ["in.onnx"]),
        (weights_missing, "file-missing", ["in.onnx", "'gone.bin'", "'w'"]),
        (weights_outside, "unsafe-data", ["in.onnx", "'../outside.bin'", "'w'"]),
        (weights_cut_off, "file-unreadable", ["in.onnx", "'w.bin'", "'w'", 0, 64, 63]),
        (a_cycle, "graph-cycle", ["'one'"]),
        (two_producers, None, ["'a'"]),  # the doors read it in different ways
    ],
)
def test_bad_input(
    tmp_path: Path, door: Callable[..., Any], make: Callable[[Path], None], code: str | None, facts: list[object]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder / "in.onnx")
    before = sorted(folder.iterdir())
    with raises(code, *facts):
        door(folder / "in.onnx", folder / "out.onnx")
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("door", DOORS)
def test_an_output_that_cannot_be_written(tmp_path: Path, door: Callable[..., Any]) -> None:
    onnx.save(good(), tmp_path / "in.onnx")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder").mkdir()
    for out in ("folder", "file/out.onnx"):
        with raises("file-unwritable", out):
            door(tmp_path / "in.onnx", tmp_path / out)
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("command", ["clean-casts", "repair"])
def test_no_space_left(tmp_path: Path, command: str) -> None:
    """A limit on file size fails a write in the way of a full disk."""
    model = good()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300_000, np.float32), "large"))
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["large"], ["s"], keepdims=0))
    model.graph.output.append(onnx.helper.make_tensor_value_info("s", 1, []))
    onnx.save(model, tmp_path / "in.onnx")
    (tmp_path / "out.onnx").write_text("earlier")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        f"from truehalf.cli.app import run; sys.exit(run(['{command}', 'in.onnx', '-o', 'out.onnx']))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"truehalf {command}: out.onnx: {os.strerror(errno.EFBIG)}")
    expect(done.stderr, "file-unwritable")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "out.onnx"]
    assert (tmp_path / "out.onnx").read_text() == "earlier"
