"""Building an engine: refusals, plans, and ONNX Runtime's CPU provider from end to end."""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.messages import expect, raises
from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import FEW, NO_GPU, PROFILES
from tests.truehalf.runtime.test_device_lock import measuring, says
from tests.waiting import HANG_S
from truehalf.codes import codes_in
from truehalf.engines.build import NO_EVIDENCE
from truehalf.engines.precision import contradiction
from truehalf.errors import StageError
from truehalf.ir.model_forms import ModelFile
from truehalf.patterns.operators import ASSUMED
from truehalf.runtime.machine import probe
from truehalf.runtime.ort import CPU, CUDA, Session

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
    assert contradiction(ModelFile(models[holds]), holds) is None
    report = build_engine(models[holds], tmp_path / "out", profiles=PROFILES, declared=declared)
    assert report["status"] == "failed" and report["reasons"] == [report["reason"]]
    expect(report["reason"], "wrong-file", models[holds], f"precision={declared}")


def test_wrong_options_come_all_at_once_before_anything_is_built(models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with raises("bad-options") as caught:
        build_engine(models["fp32"], out, profiles=PROFILES, declared="fp32", tf32="no", version_compatible="yes")
    faults = {line.strip(" -").split(":")[0]: line for line in str(caught.value).splitlines()[1:]}
    assert set(faults) == {"tf32", "version_compatible"}
    expect(faults["tf32"], "wrong-type", "'no'")
    expect(faults["version_compatible"], "wrong-type", "'yes'")
    assert not out.exists()


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime"])
def test_where_an_engine_is_demanded_a_plan_is_a_failure(backend: str, models: dict[str, Path], tmp_path: Path) -> None:
    report = build_engine(
        models["fp16"],
        tmp_path / "out",
        profiles=PROFILES,
        declared="fp16",
        probe=NO_GPU,
        backend=backend,
        when_unavailable="fail",
    )
    assert report["status"] == "failed"
    expect(report["reason"], None, "engine.when_unavailable=fail", "NVIDIA")
    assert report["reasons"] == [report["reason"]] and (tmp_path / "out/plan.json").exists()


def test_a_plan_for_cuda_needs_no_gpu_to_be_made(models: dict[str, Path], tmp_path: Path) -> None:
    report = build_engine(
        models["fp16"], tmp_path / "out", profiles=PROFILES, declared="fp16", probe=NO_GPU, backend="onnxruntime"
    )
    assert report["status"] == "planned"
    expect(report["reason"], None, "NVIDIA", "nvidia-smi")
    assert report["plan"]["provider"] == "cuda" and not report["lint"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["plan.json"]


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


# --- ONNX Runtime, run here


def test_without_a_reference_an_engine_is_built_and_not_verified(models: dict[str, Path], tmp_path: Path) -> None:
    report = build_engine(
        models["fp32"],
        tmp_path / "out",
        profiles=PROFILES,
        declared="fp32",
        backend="onnxruntime",
        provider="cpu",
        latency=FEW,
    )
    assert report["status"] == "built" and report["provider"] == "CPUExecutionProvider"
    assert report["parity"]["state"] == "not verified"
    (item,) = report["not_verified"]
    expect(item, None, NO_EVIDENCE)
    assert report["parity"]["reason"] == NO_EVIDENCE
    assert [(row["points"], row["samples"]) for row in report["latency"]] == [(["min"], 1), (["opt"], 2), (["max"], 4)]


def test_latencies_of_two_jobs_are_measured_one_after_the_other(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("truehalf.runtime.machine.LOCKS", tmp_path)
    other = measuring("cpu", tmp_path)
    assert says(other) == "measures"
    options = {"profiles": PROFILES, "backend": "onnxruntime", "provider": "cpu", "latency": FEW}
    with ThreadPoolExecutor(1) as pool:
        build = pool.submit(build_engine, models["fp32"], tmp_path / "out", declared="fp32", **options)
        said = ""
        while "waits-for-another" not in codes_in(said) and not build.done():
            said += capsys.readouterr().err
            time.sleep(0.05)
        assert not build.done(), build.result()
        assert other.communicate(timeout=HANG_S)[0] == ""
        assert build.result(timeout=HANG_S)["status"] == "built"


def test_fp16_on_the_cpu_provider_is_never_a_proof(models: dict[str, Path], tmp_path: Path) -> None:
    report = build_engine(
        models["fp16"],
        tmp_path / "out",
        profiles=PROFILES,
        declared="fp16",
        backend="onnxruntime",
        provider="cpu",
        latency=FEW,
    )
    assert report["status"] == "built" and "compiled" not in report
    assert report["parity"]["reason"] == NO_EVIDENCE and not report["gates"]


def test_a_model_of_fixed_shapes_needs_no_profile(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    options = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW}
    report = build_engine(tmp_path / "model.onnx", tmp_path / "out", profiles=[], declared="fp32", **options)
    (row,) = report["latency"]
    assert report["status"] == "built" and row["samples"] == 2 and row["points"] == ["min", "opt", "max"]


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


def test_a_defect_of_truehalf_is_no_verdict(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*_: Any) -> None:
        raise KeyError("ours")

    options = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW, "profiles": PROFILES, "declared": "fp32"}
    for step in ("run", "nodes_by_provider", "prepared"):
        with monkeypatch.context() as patched, pytest.raises(KeyError):
            patched.setattr(f"truehalf.runtime.ort.Session.{step}", stops)
            build_engine(models["fp32"], tmp_path / "out", **options)


def test_a_profile_from_no_sample_on_is_first_run_with_samples(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran where is read from the first run, in which an empty batch runs nothing."""
    batches: list[int] = []
    run = Session.run

    def counted(self: Session, feeds: Any) -> Any:
        batches.append(len(feeds["images"]))
        return run(self, feeds)

    monkeypatch.setattr(Session, "run", counted)
    profiles = [{"images": {"min": [0, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}}]
    options = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW, "declared": "fp32"}
    report = build_engine(models["fp32"], tmp_path / "out", profiles=profiles, **options)
    assert report["status"] == "built" and batches == [2]
    profiles[0]["images"]["opt"] = [0, 3, 8, 8]
    build_engine(models["fp32"], tmp_path / "out", profiles=profiles, **options)
    assert batches == [2, 4]


@pytest.mark.parametrize(
    ("gpus", "loads", "facts"),
    [(None, [CPU], ["nvidia-smi", CUDA, "cuDNN"]), ([GPU], [CPU], [CUDA, "onnxruntime-gpu"])],
)
def test_a_provider_that_cannot_run_says_why(
    gpus: Any, loads: list[str], facts: list[str], models: dict[str, Path], tmp_path: Path
) -> None:
    machine = NO_GPU | {"gpus": gpus, "onnxruntime_providers": loads}
    options = {"backend": "onnxruntime", "declared": "fp16", "profiles": PROFILES, "probe": machine}
    report = build_engine(models["fp16"], tmp_path / "out", **options)
    assert report["status"] == "planned" and ("nvidia-smi" in report["reason"]) == (gpus is None)
    expect(report["reason"], None, *facts)


def test_nodes_that_fall_to_the_cpu_are_named(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [*(f"/n{i} (Mul)" for i in range(11)), "/sample (1) (GridSample)"]
    monkeypatch.setattr(Session, "cpu_nodes", property(lambda _: nodes, lambda *_: None))
    monkeypatch.setattr(Session, "nodes_by_provider", lambda _: {CPU: 12, CUDA: 1})
    options = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW, "declared": "fp32", "profiles": PROFILES}
    report = build_engine(models["fp32"], tmp_path / "out", **options)
    (said,) = (each for each in report["not_verified"] if "op_block_list" in each)
    expect(said, None, 12, "CPU", "FP16", "FP32", ", ".join(nodes[:10]), 2, "precision.op_block_list=[GridSample,Mul]")
    assert "/n10" not in said and report["nodes_by_provider"] == {CPU: 12, CUDA: 1}


def test_a_reference_that_is_missing_is_said_before_the_build(models: dict[str, Path], tmp_path: Path) -> None:
    def missing() -> str:
        raise StageError("file-missing", "there is no reference")

    options = {"backend": "onnxruntime", "provider": "cpu", "evidence": missing}
    with raises("file-missing"):
        build_engine(models["fp32"], tmp_path / "out", profiles=PROFILES, declared="fp32", **options)


@pytest.mark.gpu
def test_an_fp16_file_becomes_an_engine_of_half_layers(models: dict[str, Path], tmp_path: Path) -> None:
    machine = probe()
    assert machine["tensorrt"], "there is a GPU and TensorRT cannot be imported: pip install 'truehalf[tensorrt]'"
    report = build_engine(models["fp16"], tmp_path / "out", profiles=PROFILES, declared="fp16", probe=machine)
    assert report["status"] == "built", report
    assert report["compiled"]["half_arithmetic"] == 1 and (tmp_path / "out/model.engine").stat().st_size > 0
    assert len(report["latency"]) == 3


@pytest.mark.gpu
def test_on_cuda_the_kernels_are_half(models: dict[str, Path], tmp_path: Path) -> None:
    machine = probe()
    assert "CUDAExecutionProvider" in machine["onnxruntime_providers"], "there is a GPU and the provider does not load"
    options = {"backend": "onnxruntime", "provider": "cuda", "latency": FEW}
    out = tmp_path / "out"
    report = build_engine(models["fp16"], out, profiles=PROFILES, declared="fp16", probe=machine, **options)
    assert report["status"] == "built" and report["provider"] == "CUDAExecutionProvider", report
    assert report["cpu_nodes"] == [] and len(report["latency"]) == 3
