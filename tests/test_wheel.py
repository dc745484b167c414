"""The wheel in an empty environment: the library alone, light, and working from a folder that is no clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.conftest import ROOT

LARGEST_MB = 800
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y)
{ ["m"] h = MatMul(x, w) ["s"] y = Softmax(h) }"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in names:
        if name.startswith(("truehalf/", "pyproject.toml", "README", "LICENSE", "CHANGELOG")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    line = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_it_holds_one_package_and_what_that_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"truehalf"}
    assert "truehalf/py.typed" in names


@pytest.mark.slow
def test_it_converts_verifies_and_lints_where_nothing_else_is(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    install = [str(place / "bin/pip"), "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    size = sum(file.lstat().st_size for file in place.rglob("*") if file.is_file() and not file.is_symlink())
    assert size < LARGEST_MB * 1e6
    here = tmp_path / "here"
    (here / "stages").mkdir(parents=True)
    (here / "stages/__init__.py").write_text("raise RuntimeError('of the user')")
    proto = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, here / "model.onnx")
    np.savez(here / "feeds.npz", x=np.random.default_rng(1).standard_normal((6, 2, 8)).astype(np.float32))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        line = [str(place / "bin/truehalf"), *words]
        return subprocess.run(line, cwd=here, env=environment, capture_output=True, text=True)

    done = command("convert", "model.onnx", "--samples", "feeds.npz", "-o", "out.onnx", "--json", "r.json")
    assert done.returncode == 0 and done.stdout.startswith("passed: out.onnx"), done.stdout + done.stderr
    assert json.loads((here / "r.json").read_text())["conversion"]["fp16"]["fp16_fraction"] == 1.0
    assert command("verify", "model.onnx", "out.onnx", "--samples", "feeds.npz").returncode == 0
    assert command("lint", "model.onnx").returncode == 0
    assert command("report", "r.json", "-o", "r.html").returncode == 0
    exported = command("export", "m:build", "-o", "m.onnx", "--shape", "x:1x2")
    assert exported.returncode == 2 and "truehalf[torch]" in exported.stderr
