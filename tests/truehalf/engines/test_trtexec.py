"""The record of a build: complete, plain, and the same as a trtexec line."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.truehalf.conftest import MODEL, PROFILE, parsed
from truehalf.config.engine import EngineConfig
from truehalf.engines.trtexec import plan_of
from truehalf.ir.model_forms import ModelFile


def plan(path: Path, model: str | onnx.ModelProto = MODEL, profiles: Any = (PROFILE,), **options: Any) -> Any:
    """The plan of a model, which is saved, with options beside no timing cache."""
    onnx.save(parsed(model) if isinstance(model, str) else model, path)
    chosen = EngineConfig(**{"timing_cache": None} | options)
    return plan_of(ModelFile(path), chosen, profiles)


def test_a_plan_is_complete_and_plain(tmp_path: Path) -> None:
    library = tmp_path / "libmine.so"
    library.write_bytes(b"mine")
    made = plan(tmp_path / "model.onnx", plugins=[str(library)], workspace_gb=2)
    content = (tmp_path / "model.onnx").read_bytes()
    assert made["onnx_sha256"] == hashlib.sha256(content).hexdigest() and made["onnx_data"] == []
    assert made["plugins"] == [{"path": str(library), "sha256": hashlib.sha256(b"mine").hexdigest()}]
    assert made["profiles"] == [PROFILE]
    assert {"tf32", "workspace_gb"} < set(made["builder"]) and "plugins" not in made["builder"]
    assert json.loads(json.dumps(made)) == made


@pytest.mark.parametrize("location", ["big.bin", "weights/big.bin"])
def test_external_data_counts_for_the_digest(tmp_path: Path, location: str) -> None:
    model = parsed("g (float[N,64] x) => (float[N,64] y) { y = Mul(x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(64, np.float32), "w"))
    path = tmp_path / "big.onnx"
    (tmp_path / "weights").mkdir()
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=0)
    made: Any = plan_of(ModelFile(path), EngineConfig(), [])
    both = path.read_bytes() + (tmp_path / location).read_bytes()
    assert made["onnx_data"] == [location] and made["onnx_sha256"] == hashlib.sha256(both).hexdigest()


def test_the_trtexec_line_of_the_defaults(tmp_path: Path) -> None:
    made = plan(tmp_path / "model.onnx")
    expected = [
        "trtexec",
        "--onnx=model.onnx",
        "--saveEngine=model.engine",
        "--memPoolSize=workspace:4096M",
        "--profilingVerbosity=detailed",
        "--noTF32",
        "--minShapes=images:1x3x8x8",
        "--optShapes=images:2x3x8x8",
        "--maxShapes=images:4x3x8x8",
        "--skipInference",
    ]
    assert shlex.split(made["trtexec"]) == expected
    assert shlex.split(made["trtexec_10"]) == [*expected[:5], "--stronglyTyped", *expected[5:]]
    assert not any(flag in made["trtexec"] + made["trtexec_10"] for flag in ("--fp16", "--best", "--int8"))


def test_the_trtexec_line_of_all_options(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"")
    made = plan(
        tmp_path / "model.onnx",
        profiles=[PROFILE, PROFILE],
        workspace_gb=0.5,
        builder_optimization_level=5,
        tf32=True,
        timing_cache="caches",
        plugins=[str(tmp_path / "a.so")],
    )
    line = shlex.split(made["trtexec"])
    shapes = ["--minShapes=images:1x3x8x8", "--optShapes=images:2x3x8x8", "--maxShapes=images:4x3x8x8"]
    assert line[3:] == [
        "--memPoolSize=workspace:512M",
        "--builderOptimizationLevel=5",
        "--timingCacheFile=trtexec.cache",
        "--profilingVerbosity=detailed",
        "--dynamicPlugins=./a.so",
        "--profile=0",
        *shapes,
        "--profile=1",
        *shapes,
        "--skipInference",
    ]
    assert "--noTF32" not in line


def test_names_with_marks_of_trtexec_are_quoted(tmp_path: Path) -> None:
    model = parsed("g (float[N,2] x) => (float[N,2] y) { y = Relu(x) }")
    model.graph.input[0].name = model.graph.node[0].input[0] = "input:0"
    made = plan(tmp_path / "m.onnx", model, [{"input:0": {"min": [1, 2], "opt": [1, 2], "max": [2, 2]}}])
    assert "--minShapes='input:0':1x2" in shlex.split(made["trtexec"])


def test_a_model_of_fixed_shapes_needs_no_flags_for_them(tmp_path: Path) -> None:
    fixed = {"x": {"min": [2, 3], "opt": [2, 3], "max": [2, 3]}}
    for profiles in ([], [{}], [fixed], [fixed, fixed]):
        made = plan(tmp_path / "m.onnx", "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }", profiles)
        assert "Shapes" not in made["trtexec"] and "--profile=" not in made["trtexec"]
        assert made["profiles"] == profiles, "the builder takes them"


def test_shapes_are_given_for_the_inputs_that_need_them(tmp_path: Path) -> None:
    """Dynamic ones and shape tensors; one whose shape is fixed has it from the model."""
    text = """g (float[N,3] x, float[1,3] fixed, int64[2] size) => (float[N,3] y, float[A,B] z)
        { y = Add(x, fixed)  z = Expand(fixed, size) }"""
    numbers = {"x": ([1, 3], [2, 3], [4, 3]), "fixed": ([1, 3],) * 3, "size": ([1, 3], [2, 3], [5, 3])}
    profile = {name: dict(zip(("min", "opt", "max"), each, strict=True)) for name, each in numbers.items()}
    made = plan(tmp_path / "m.onnx", text, [profile])
    shapes = [part for part in shlex.split(made["trtexec"]) if "Shapes" in part]
    assert shapes == ["--minShapes=x:1x3,size:1x3", "--optShapes=x:2x3,size:2x3", "--maxShapes=x:4x3,size:5x3"]
