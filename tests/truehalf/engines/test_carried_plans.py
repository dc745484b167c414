"""Plans that are carried out elsewhere: whole, or refused wherever they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.conftest import in_workspace
from tests.messages import expect, raises
from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import FEW, NO_GPU, PROFILES
from truehalf.engines.build import execute_plan
from truehalf.engines.plan import check_keys


def carried(models: dict[str, Path], folder: Path, **options: Any) -> Path:
    """A plan for the CPU provider beside its model, in a folder of their own."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(models["fp32"].read_bytes())
    options = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW} | options
    names = ("artifacts/cast_cleanup/model.onnx", "artifacts/engine/model.optimized.onnx")
    build_engine(models["fp32"], folder, profiles=PROFILES, declared="fp32", probe=NO_GPU, plan_names=names, **options)
    (folder / "model.optimized.onnx").unlink(missing_ok=True)
    return folder / "plan.json"


def test_a_plan_is_carried_out_beside_its_model(models: dict[str, Path], tmp_path: Path) -> None:
    plan = carried(models, tmp_path / "carried")
    done = in_workspace(tmp_path, "python", "-m", "truehalf", "engine", str(plan), "--out", "built")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "built/engine.json").read_text())
    assert done.stdout.startswith("built: ") and written["status"] == "built" and written["layer_table"]
    expect(
        done.stdout, None, "built/engine.json", "precision", "outputs", "latency", "p50", written["parity"]["reason"]
    )
    assert written["stage"] == "engine" and written["plan"]["onnx"] == "artifacts/cast_cleanup/model.onnx"
    assert (tmp_path / "built/model.optimized.onnx").exists()
    assert written["parity"]["state"] == "not verified"
    assert any(item.endswith(written["parity"]["reason"]) for item in written["not_verified"])


def test_a_plan_that_cannot_be_carried_out_here_either_stays_a_plan(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truehalf.engines.build.probe_machine", lambda plugins: NO_GPU)
    report = execute_plan(carried(models, tmp_path / "carried", provider="cuda"))
    assert report["status"] == "planned" and (tmp_path / "carried/engine.json").exists()
    demanded = execute_plan(carried(models, tmp_path / "demanded", provider="cuda", when_unavailable="fail"))
    assert demanded["status"] == "failed"
    expect(demanded["reason"], None, "engine.when_unavailable=fail", "NVIDIA")


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"format": 99}, "wrong-plan", ["format:", 1, 99]),
        ({"declared": "fp64"}, "wrong-plan", ["declared:", "fp16", "fp32", "'fp64'"]),
        ({"backend": "foo"}, "wrong-plan", ["tensorrt", "onnxruntime", "'foo'"]),
        ({"provider": "foo"}, "unknown-choice", ["provider:", "cuda", "tensorrt", "cpu", "'foo'"]),
        ({"plugins": None}, "wrong-plan", ["plugins:"]),
        ({"shape_inputs": None}, "wrong-plan", ["shape_inputs:"]),
        ({"shape_inputs": ["images"]}, "wrong-plan", ["shape_inputs:", [], ["images"]]),
        ({"profiles": []}, "needs-value", ["engine.profiles:", "images"]),
        ({"profiles": ["x"]}, "wrong-type", ["profiles[0]:", "'x'"]),
        (
            {"profiles": [{"images": {"min": [9, 3], "opt": [1, 3], "max": [1, 3]}}]},
            "wrong-shape",
            ["engine.profiles[0].images.min:", 4, "[N, 3, 8, 8]", [9, 3]],
        ),
        ({"latency": {"warm_up": 0, "runs": 0, "rounds": 2}}, "out-of-range", ["latency.runs:", 10, 0]),
        ({"lint": {"ignore": ["no such"], "fail_on": "never"}}, "bad-syntax", ["lint.ignore", "'no such'"]),
        (
            {"lint": {"ignore": [], "fail_on": "always"}},
            "unknown-choice",
            ["lint.fail_on:", "never", "error", "warning", "'always'"],
        ),
        ({"when_unavailable": "cry"}, "unknown-choice", ["when_unavailable:", "plan, fail", "'cry'"]),
        ({"engine": ".."}, "bad-syntax", ["engine:", "'..'"]),
    ],
)
def test_a_wrong_plan_is_refused_wherever_it_is(
    changes: dict[str, Any], code: str, facts: list[object], models: dict[str, Path], tmp_path: Path
) -> None:
    """None: left out. No machine is looked at: a plan must not be carried to a GPU to be found wrong."""
    plan = carried(models, tmp_path / "carried", provider="cuda")
    content = json.loads(plan.read_text()) | changes
    plan.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    with raises("wrong-plan") as caught:
        execute_plan(plan)
    assert str(caught.value).startswith(f"{plan}: ")
    expect(str(caught.value).removeprefix(f"{plan}: "), code, *facts)


@pytest.mark.parametrize(
    ("changes", "key", "code", "facts"),
    [
        ({"builder": {"memory_pools_gb": [1]}}, "builder.memory_pools_gb", "wrong-type", [[1]]),
        ({"builder": {"memory_pools_gb": {"foo": "x"}}}, "builder.memory_pools_gb.foo", "wrong-type", ["'x'"]),
        ({"builder": {"memory_pools_gb": {"foo": 1}}}, "builder.memory_pools_gb.foo", "unknown-key", ["workspace"]),
        ({"builder": {"profiling_verbosity": 5}}, "builder.profiling_verbosity", "unknown-choice", ["detailed", 5]),
        ({"builder": {"tf32": "yes"}}, "builder.tf32", "wrong-type", ["'yes'"]),
        (
            {"builder": {"builder_optimization_level": 99}},
            "builder.builder_optimization_level",
            "out-of-range",
            [0, 5, 99],
        ),
        (
            {"builder": {"hardware_compatibility": "foo"}},
            "builder.hardware_compatibility",
            "unknown-choice",
            ["none", "'foo'"],
        ),
        (
            {"builder": {"tiling_optimization_level": "x"}},
            "builder.tiling_optimization_level",
            "unknown-choice",
            ["none", "'x'"],
        ),
        ({"builder": {"fp16": True}}, "builder.fp16", "unknown-key", ["tf32"]),
        ({"onnx_data": [5]}, "onnx_data[0]", "bad-syntax", [5]),
        ({"onnx_data": ["../secret"]}, "onnx_data[0]", "bad-syntax", ["'../secret'"]),
        ({"plugin_ops": [5]}, "plugin_ops[0]", "wrong-type", [5]),
        ({"latency": {"runs": 1}}, "latency.runs", "out-of-range", [10, 1]),
        ({"latency": {"rounds": 1}}, "latency.rounds", "out-of-range", [2, 1]),
        ({"engine": ""}, "engine", "bad-syntax", ["''"]),
        ({"engine": "../out.engine"}, "engine", "bad-syntax", ["'../out.engine'"]),
        ({"engine": "/abs/model.engine"}, "engine", "bad-syntax", ["'/abs/model.engine'"]),
        ({"engine": "C:\\model.engine"}, "engine", "bad-syntax", [repr("C:\\model.engine")]),
        ({"engine": "artifacts/engine/"}, "engine", "bad-syntax", ["'artifacts/engine/'"]),
        ({"engine": "plan.json"}, "engine", "would-overwrite", ["'plan.json'"]),
    ],
    ids=str,
)
def test_values_of_a_plan_for_tensorrt_are_checked_without_a_gpu(
    changes: dict[str, Any],
    key: str,
    code: str | None,
    facts: list[object],
    models: dict[str, Path],
    tmp_path: Path,
) -> None:
    build_engine(models["fp16"], tmp_path, profiles=PROFILES, declared="fp16", probe=NO_GPU)
    content = json.loads((tmp_path / "plan.json").read_text())
    for name, change in changes.items():
        content[name] = content[name] | change if isinstance(change, dict) else change
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with raises("wrong-plan", tmp_path / "plan.json") as caught:
        execute_plan(tmp_path / "plan.json")
    (fault,) = str(caught.value).splitlines()[1:]
    assert fault.startswith(f"  - {key}: ")
    expect(fault, code, *facts)


def test_every_fault_of_a_plan_is_said_at_once(models: dict[str, Path], tmp_path: Path) -> None:
    build_engine(models["fp16"], tmp_path, profiles=PROFILES, declared="fp16", probe=NO_GPU)
    content = json.loads((tmp_path / "plan.json").read_text()) | {"declared": "fp64", "engine": "..", "onnx_data": [5]}
    content["builder"] |= {"tf32": "yes", "profiling_verbosity": 5}
    del content["builder"]["refit"]
    content["latency"]["runs"] = 1
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with raises("wrong-plan") as caught:
        execute_plan(tmp_path / "plan.json")
    named = [line.removeprefix("  - ").split(":")[0] for line in str(caught.value).splitlines()[1:]]
    assert sorted(named) == sorted(
        ["declared", "builder.refit", "engine", "onnx_data[0]", "builder.tf32", "builder.profiling_verbosity"]
    ), "bounds are looked at when the types are right"


def test_a_plan_of_before_the_names_of_its_fp16_nodes_is_still_one(models: dict[str, Path], tmp_path: Path) -> None:
    build_engine(models["fp16"], tmp_path, profiles=PROFILES, declared="fp16", probe=NO_GPU)
    content = json.loads((tmp_path / "plan.json").read_text())
    del content["graph"]["fp16_node_names"]
    check_keys(content)


def test_weights_beside_the_model_are_part_of_the_plan(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float["n",4] x) => (float["n",4] y) { y = MatMul(x, w) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    for folder in ("here", "there"):
        (tmp_path / folder / "weights").mkdir(parents=True)
    where = {"save_as_external_data": True, "location": "weights/w.bin", "size_threshold": 0}
    onnx.save(onnx.ModelProto.FromString(proto.SerializeToString()), tmp_path / "here/model.onnx", **where)
    shutil.copytree(tmp_path / "here", tmp_path / "there", dirs_exist_ok=True)
    profiles = [{"x": {"min": [1, 4], "opt": [1, 4], "max": [2, 4]}}]
    options = {"backend": "onnxruntime", "provider": "cpu", "latency": FEW}
    here, there = tmp_path / "here/model.onnx", tmp_path / "there"
    names = ("artifacts/model.onnx", "model.optimized.onnx")
    build_engine(here, there, declared="fp32", profiles=profiles, probe=NO_GPU, plan_names=names, **options)
    assert json.loads((there / "plan.json").read_text())["onnx_data"] == ["weights/w.bin"]
    assert execute_plan(there / "plan.json")["status"] == "built"
    (there / "weights/w.bin").write_bytes(np.zeros(16, np.float32).tobytes())
    with raises("wrong-file", there / "model.onnx"):
        execute_plan(there / "plan.json")


def test_another_model_or_no_plan_is_refused(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the project itself has artifacts once it has run
    plan = carried(models, tmp_path / "carried")
    (plan.parent / "model.onnx").write_bytes(models["fp16"].read_bytes())
    with raises("wrong-file", plan.parent / "model.onnx"):
        execute_plan(plan)
    (plan.parent / "model.onnx").unlink()
    with raises("file-missing", "artifacts/cast_cleanup/model.onnx", plan.parent / "model.onnx"):
        execute_plan(plan)
    plan.write_text("{}")
    with raises("wrong-plan", plan, "tensorrt", "onnxruntime"):
        execute_plan(plan)
    done = in_workspace(tmp_path, "python", "-m", "truehalf", "engine", "absent.json")
    assert done.returncode == 2 and done.stderr.startswith("truehalf engine: ")
    expect(done.stderr, "file-missing", "absent.json")
