"""Building an engine: refusals and plans."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.messages import expect, raises
from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import NO_GPU, PROFILES
from truehalf.patterns.operators import ASSUMED
from truehalf.runtime.machine import probe

GPU = {"name": "NVIDIA T4", "compute_capability": "7.5"}

# --- plans and refusals


def test_the_plan_is_complete(models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = build_engine(
        models["fp16"],
        out,
        profiles=PROFILES,
        declared="fp16",
        probe=NO_GPU,
        workspace_gb=2.0,
    )
    assert report["status"] == "planned"
    expect(report["reason"], None, "NVIDIA", "TensorRT")
    (item,) = report["not_verified"]
    assert item.endswith(report["reason"]) and "truehalf[rtx]" in report["reason"], "what compiles without a GPU"
    command = report["plan"]["trtexec"]
    for part in (
        "--minShapes=images:1x3x8x8",
        "--optShapes=images:2x3x8x8",
        "--maxShapes=images:4x3x8x8",
        "--memPoolSize=workspace:2048M",
        "--noTF32",
    ):
        assert part in command
    assert "--onnx=fp16.onnx" in command and "--saveEngine=model.engine" in command
    assert report["plan"]["onnx"] == "fp16.onnx" and report["plan"]["engine"] == "model.engine"
    assert report["plan"]["onnx_sha256"] == hashlib.sha256(models["fp16"].read_bytes()).hexdigest()
    assert "--fp16" not in command, "precision is in the graph; TensorRT 11 has no such flag"
    assert sorted(path.name for path in out.iterdir()) == ["plan.json"]
    assert json.loads((out / "plan.json").read_text()) == report["plan"]


def test_two_plans_are_the_same_bytes(models: dict[str, Path], tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        build_engine(models["fp16"], tmp_path / name, profiles=PROFILES, declared="fp16", probe=NO_GPU)
        texts.append((tmp_path / name / "plan.json").read_bytes())
    assert texts[0] == texts[1] and str(tmp_path).encode() not in texts[0]


@pytest.mark.parametrize(("declared", "holds"), [("fp16", "fp32"), ("fp32", "fp16")])
def test_a_file_that_contradicts_the_declared_precision_fails(
    models: dict[str, Path], declared: str, holds: str, tmp_path: Path
) -> None:
    report = build_engine(models[holds], tmp_path / "out", profiles=PROFILES, declared=declared)
    assert report["status"] == "failed" and report["reasons"] == [report["reason"]]
    expect(report["reason"], "wrong-file", models[holds], f"precision={declared}")


def test_wrong_options_come_all_at_once_before_anything_is_built(models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with raises("bad-options") as caught:
        build_engine(models["fp32"], out, profiles=PROFILES, declared="fp32", tf32="no", workspace_gb="yes")
    faults = {line.strip(" -").split(":")[0]: line for line in str(caught.value).splitlines()[1:]}
    assert set(faults) == {"tf32", "workspace_gb"}
    expect(faults["tf32"], "wrong-type", "'no'")
    expect(faults["workspace_gb"], "wrong-type", "'yes'")
    assert not out.exists()


def test_lint_looks_before_the_build_and_knows_the_operators_of_plugins(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
        g (float16[1,4] images) => (float16[1,4] y, int64["u"] z)
        { a = com.acme.Mine(images)  y = Relu(images)  b = Cast<to = 1>(y)  c = Flatten<axis = 0>(b)
          d, z, e, f = Unique(c) }"""
    proto = onnx.parser.parse_model(text)
    for number, node in enumerate(proto.graph.node):
        node.name = f"/head/{node.op_type}_{number}"
    onnx.save(proto, tmp_path / "model.onnx")
    (tmp_path / "libmine.so").write_bytes(b"a plugin")

    def found(**options: Any) -> dict[str, str]:
        keywords = {"profiles": [], "declared": "fp16", "probe": NO_GPU} | options
        report = build_engine(tmp_path / "model.onnx", tmp_path / "out", **keywords)
        return {finding["node"]: finding["severity"] for finding in report["lint"]}

    without, library = found(), [str(tmp_path / "libmine.so")]
    assert without["/head/Mine_0"] == "error" and "/head/Unique_4" in without
    assert "/head/Mine_0" not in found(plugins=library), "nobody knows what it brings"
    assert "/head/Mine_0" in found(plugins=library, plugin_ops=["Other"]), "it does not bring this one"
    named = found(plugins=library, plugin_ops=["Mine", "Unique"])
    assert "/head/Mine_0" not in named and "/head/Unique_4" not in named, "of ONNX's own domain, too"
    assert "/head/Unique_4" not in found(lint_ignore=["unique"])


def test_what_is_assumed_of_plugins_is_said(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "libmine.so").write_bytes(b"a plugin")
    options = {"profiles": PROFILES, "declared": "fp16", "probe": NO_GPU, "plugins": [str(tmp_path / "libmine.so")]}
    assert ASSUMED in build_engine(models["fp16"], tmp_path / "out", **options)["not_verified"]
    report = build_engine(models["fp16"], tmp_path / "out", **options, plugin_ops=["Mine"])
    assert ASSUMED not in report["not_verified"]


@pytest.mark.parametrize(
    ("fail_on", "ignore", "status"),
    [("never", [], "planned"), ("error", [], "failed"), ("warning", [], "failed"), ("error", ["unique"], "planned")],
)
def test_findings_of_the_file_that_is_built_end_it_where_told(
    fail_on: str, ignore: list[str], status: str, tmp_path: Path
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (int64["u"] z) { d, z, e, f = Unique(x) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.node[0].name = "/head/Unique"
    onnx.save(proto, tmp_path / "model.onnx")
    options = {"profiles": [], "declared": "fp32", "probe": NO_GPU, "lint_fail_on": fail_on, "lint_ignore": ignore}
    report = build_engine(tmp_path / "model.onnx", tmp_path / "out", **options)
    assert report["status"] == status
    if status == "failed":
        expect(report["reason"], "lint-fails", "lint.fail_on", fail_on, "unique (1):", "/head/Unique")
        assert report["reasons"] == [report["reason"]]


@pytest.mark.parametrize("link", [False, True])
def test_an_engine_is_never_written_over_its_model(link: bool, models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    model = out / "model.engine"
    models["fp32"].rename(model)
    content = model.read_bytes()
    given = tmp_path / "given.onnx"
    given.symlink_to(model)
    with raises("would-overwrite", model):
        build_engine(given if link else model, out, profiles=PROFILES, declared="fp32", probe=NO_GPU)
    assert model.read_bytes() == content and [file.name for file in out.iterdir()] == ["model.engine"]


@pytest.mark.gpu
def test_an_fp16_file_becomes_an_engine_of_half_layers(models: dict[str, Path], tmp_path: Path) -> None:
    machine = probe()
    assert machine["tensorrt"], "there is a GPU and TensorRT cannot be imported: pip install 'truehalf[tensorrt]'"
    report = build_engine(models["fp16"], tmp_path / "out", profiles=PROFILES, declared="fp16", probe=machine)
    assert report["status"] == "built", report
    assert report["compiled"]["half_arithmetic"] == 1 and (tmp_path / "out/model.engine").stat().st_size > 0
    assert len(report["latency"]) == 3
