"""What a plan makes TensorRT do, in which order, on both versions, and what is said when it refuses."""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.messages import expect, raises
from tests.truehalf.conftest import PROFILE, Planner, typed
from tests.truehalf.runtime.tensorrt.recording import NO_NUMBERS, VERSIONS, Tensor, World, module, names
from truehalf.engines.plan_files import script
from truehalf.errors import StageError
from truehalf.runtime.tensorrt import build as builder
from truehalf.runtime.tensorrt import plan_content, plugins, versions
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.plan_content import find_file
from truehalf.runtime.tensorrt.plugins import load_plugins, registered_ops
from truehalf.runtime.tensorrt.proof import NO_LAYERS, precision_doubt, precision_fault, precision_unknown
from truehalf.runtime.tensorrt.versions import BuildError, unavailable_reason, version_of


def flags(world: World) -> tuple[set[str], set[str]]:
    """Names of the builder flags that were set and cleared."""
    calls = [world.arguments(f"IBuilderConfig.{kind}_flag") for kind in ("set", "clear")]
    was_set, was_cleared = ({flag.name for (flag,) in arguments} for arguments in calls)
    return was_set, was_cleared


def in_order(world: World, *names: str) -> bool:
    places = [world.called().index(name) for name in names]
    return places == sorted(places)


def test_everything_happens_in_the_order_that_tensorrt_needs(world: World, plan: Planner, tmp_path: Path) -> None:
    library = tmp_path / "libmine.so"
    library.write_bytes(b"a library")
    world.libraries = {"libmine.so"}
    planned = plan(timing_cache=str(tmp_path / "caches"), plugins=[str(library)])
    facts = build(planned, tmp_path)
    assert in_order(
        world,
        "init_libnvinfer_plugins",
        "IPluginRegistry.load_library",
        "Builder",
        "Builder.create_network",
        "OnnxParser",
        "OnnxParser.parse_from_file",
        "Builder.create_builder_config",
        "IBuilderConfig.set_memory_pool_limit",
        "IOptimizationProfile.set_shape",
        "IBuilderConfig.add_optimization_profile",
        "IBuilderConfig.create_timing_cache",
        "IBuilderConfig.set_timing_cache",
        "Builder.build_serialized_network",
        "ITimingCache.serialize",
        "Runtime.deserialize_cuda_engine",
        "EngineInspector.get_engine_information",
    )
    assert world.arguments("IPluginRegistry.load_library") == [(str(library),)]
    assert world.arguments("OnnxParser.parse_from_file") == [(planned["onnx"],)]
    assert (tmp_path / "model.engine").read_bytes() == b"an engine"
    assert facts["engine_mb"] == 9e-6 and facts["device_memory_mb"] == 3 and facts["gpu"] == "NVIDIA L4"
    assert facts["tensorrt"].startswith(world.version)
    assert json.loads(json.dumps(facts)) == facts, "facts are plain data"


def test_a_network_is_strongly_typed_on_both(world: World, plan: Planner, tmp_path: Path) -> None:
    build(plan(), tmp_path)
    strongly_typed = 1 << int(module(world).NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    assert world.arguments("Builder.create_network") == [(strongly_typed if world.version == "10.16" else 0,)]


def test_the_default_options_only_clear_tf32(world: World, plan: Planner, tmp_path: Path) -> None:
    build(plan(), tmp_path)
    assert flags(world) == (set(), {"TF32"})
    workspace = [(pool.name, size) for pool, size in world.arguments("IBuilderConfig.set_memory_pool_limit")]
    assert workspace == [("WORKSPACE", 4 * 2**30)]
    assert [name for name in world.called() if name.startswith("set ")] == [
        "set IBuilderConfig.profiling_verbosity",
        "set IBuilderConfig.progress_monitor",
        "set Runtime.engine_host_code_allowed",
        "set EngineInspector.execution_context",
    ]
    assert "IBuilderConfig.set_timing_cache" not in world.called()


@pytest.mark.parametrize(
    ("option", "flag"),
    [
        ("editable_timing_cache", "EDITABLE_TIMING_CACHE"),
        ("version_compatible", "VERSION_COMPATIBLE"),
        ("refit", "REFIT"),
        ("strip_weights", "STRIP_PLAN"),
    ],
)
def test_an_option_sets_its_flag(world: World, plan: Planner, tmp_path: Path, option: str, flag: str) -> None:
    build(plan(**{option: True}), tmp_path)
    assert flags(world) == ({flag}, {"TF32"})


def test_tf32_is_left_on_when_asked_for(world: World, plan: Planner, tmp_path: Path) -> None:
    build(plan(tf32=True), tmp_path)
    assert flags(world) == ({"TF32"}, set())


@pytest.mark.parametrize(
    ("option", "value", "attribute", "expected"),
    [
        ("builder_optimization_level", 5, "builder_optimization_level", 5),
        ("builder_optimization_level", 0, "builder_optimization_level", 0),
        ("max_aux_streams", 0, "max_aux_streams", 0),
        ("tiling_optimization_level", "full", "tiling_optimization_level", "FULL"),
        ("hardware_compatibility", "ampere_plus", "hardware_compatibility_level", "AMPERE_PLUS"),
        (
            "hardware_compatibility",
            "same_compute_capability",
            "hardware_compatibility_level",
            "SAME_COMPUTE_CAPABILITY",
        ),
        ("profiling_verbosity", "layer_names_only", "profiling_verbosity", "LAYER_NAMES_ONLY"),
        ("profiling_verbosity", "none", "profiling_verbosity", "NONE"),
    ],
)
def test_an_option_sets_its_attribute(
    world: World, plan: Planner, tmp_path: Path, option: str, value: Any, attribute: str, expected: Any
) -> None:
    build(plan(**{option: value}), tmp_path)
    ((given,),) = world.arguments(f"set IBuilderConfig.{attribute}")
    assert getattr(given, "name", given) == expected


def test_every_memory_pool_can_be_limited(world: World, plan: Planner, tmp_path: Path) -> None:
    pools = {name.lower(): 0.5 for name in module(world).MemoryPoolType.__members__}
    assert len(pools) == 6
    build(plan(memory_pools_gb=pools), tmp_path)
    given = world.arguments("IBuilderConfig.set_memory_pool_limit")
    assert {pool.name.lower(): size for pool, size in given} == dict.fromkeys(pools, 2**29)


@pytest.mark.parametrize(
    ("option", "value", "unknown", "known"),
    [
        ("memory_pools_gb", {"heap": 1}, "'heap'", "workspace"),
        ("tiling_optimization_level", "most", "'most'", "moderate"),
        ("hardware_compatibility", "all", "'all'", "ampere_plus"),
    ],
)
def test_an_unknown_member_is_refused_with_the_known_ones(
    world: World, plan: Planner, tmp_path: Path, option: str, value: Any, unknown: str, known: str
) -> None:
    planned = plan()
    planned["builder"][option] = value  # a plan edited by hand
    with raises("unknown-choice", f"engine.{option}", unknown, known, error=BuildError):
        build(planned, tmp_path)
    assert "Builder.build_serialized_network" not in world.called()


def test_a_version_compatible_engine_carries_the_parser_s_plugins(world: World, plan: Planner, tmp_path: Path) -> None:
    world.vc_libraries = ["libnvinfer_vc_plugin.so"]
    build(plan(version_compatible=True), tmp_path)
    assert world.arguments("set IBuilderConfig.plugins_to_serialize") == [(["libnvinfer_vc_plugin.so"],)]
    assert world.arguments("set Runtime.engine_host_code_allowed") == [(True,)]
    world.calls.clear()
    build(plan(), tmp_path)
    assert "set IBuilderConfig.plugins_to_serialize" not in world.called()
    assert world.arguments("set Runtime.engine_host_code_allowed") == [(False,)]


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_every_profile_is_added(world: World, plan: Planner, tmp_path: Path) -> None:
    large = {"images": {"min": [8, 3, 8, 8], "opt": [16, 3, 8, 8], "max": [32, 3, 8, 8]}}
    build(plan(profiles=[PROFILE, large]), tmp_path)
    assert len(world.arguments("IBuilderConfig.add_optimization_profile")) == 2
    assert world.arguments("IOptimizationProfile.set_shape") == [
        ("images", [1, 3, 8, 8], [2, 3, 8, 8], [4, 3, 8, 8]),
        ("images", [8, 3, 8, 8], [16, 3, 8, 8], [32, 3, 8, 8]),
    ]


def test_an_engine_is_never_written_over_its_model(world: World, plan: Planner, tmp_path: Path) -> None:
    planned = plan()
    model = find_file(planned["onnx"], tmp_path, "the model")
    before = model.read_bytes()
    with raises("would-overwrite", model, error=BuildError):
        build(planned | {"engine": model.name}, model.parent)
    assert model.read_bytes() == before


def test_numbers_of_a_shape_tensor_are_its_values(world: World, plan: Planner, tmp_path: Path) -> None:
    world.inputs = [Tensor("images", values=((1,), (2,), (4,)), dtype="INT64", shape=(1,))]
    planned = plan() | {"profiles": [{"images": {"min": [1], "opt": [2], "max": [4]}}]}
    build(planned, tmp_path)
    assert world.arguments("IOptimizationProfile.set_shape_input") == [("images", [1], [2], [4])]
    assert "IOptimizationProfile.set_shape" not in world.called()
    assert len(world.arguments("IExecutionContext.set_tensor_address")) == 1, "the inspector's context reads its value"


def test_what_the_parser_knows_better_than_the_plan_is_said_at_once(
    world: World, plan: Planner, tmp_path: Path
) -> None:
    world.inputs += [Tensor("size", shape=(2,), values=((1, 1), (2, 2), (3, 3))), Tensor("mask", shape=(-1, 8))]
    planned = plan() | {"profiles": [PROFILE | {"other": PROFILE["images"]}]}
    with raises("wrong-plan", error=BuildError) as error:
        build(planned, tmp_path)
    other, size, mask = str(error.value).splitlines()
    expect(other, "wrong-plan", "engine.profiles[0].other", "images", "size", "mask")
    expect(size, None, "engine.profiles[0]", "'size'", "values")
    expect(mask, None, "engine.profiles[0]", "'mask'", "shapes")


def test_numbers_that_tensorrt_refuses_are_named(world: World, plan: Planner, tmp_path: Path) -> None:
    """The plan takes the input for a tensor of rank 4, and the parser finds values of a shape, or the reverse."""
    values = {"images": {"min": [1, 1], "opt": [2, 2], "max": [4, 4]}}
    where = "engine.profiles[0].images"
    with raises("wrong-plan", where, values["images"], "(-1, 3, 8, 8)", NO_NUMBERS, error=BuildError):
        build(plan() | {"profiles": [values]}, tmp_path)
    world.inputs = [Tensor("images", "INT64", (2,), values=((1, 1), (2, 2), (4, 4)))]
    with raises("wrong-plan", where, PROFILE["images"], "values", NO_NUMBERS, error=BuildError) as error:
        build(plan(), tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_what_the_bindings_raise_elsewhere_ends_the_script_with_a_line(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("driver-gone")

    monkeypatch.setattr(sys.modules["tensorrt"].OnnxParser, "parse_from_file", refuses)
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 1
    expect(capsys.readouterr().err, None, "build_engine", "RuntimeError", "driver-gone")


def test_a_profile_that_tensorrt_calls_invalid_is_named(world: World, plan: Planner, tmp_path: Path) -> None:
    world.refuses_profiles = True
    with raises("wrong-plan", "engine.profiles[0]", PROFILE, error=BuildError):
        build(plan(), tmp_path)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_error_ends_its_first_line_with_its_code() -> None:
    """As those of the project, which the script is carried without."""
    error = BuildError("no-engine", "model.onnx:\n  log")
    assert (error.code, str(error)) == ("no-engine", "model.onnx: [no-engine]\n  log")
    assert str(error) == str(StageError(error.code, "model.onnx:\n  log")) == str(StageError("not-run", str(error)))


def test_parser_errors_name_node_and_operator(world: World, plan: Planner, tmp_path: Path) -> None:
    world.parser_errors = [
        {"node": "/a/Unique", "op_type": "Unique", "message": "no importer", "code": "UNSUPPORTED_NODE"},
        {"node": "/b/If", "op_type": "If", "message": "branches differ", "code": "INVALID_GRAPH"},
    ]
    with raises("not-supported", tmp_path / "model.onnx", module(world).__version__, error=BuildError) as error:
        build(plan(), tmp_path)
    _, *lines = str(error.value).splitlines()
    for line, fault in zip(lines, world.parser_errors, strict=True):
        expect(line, None, *fault.values())
    assert isinstance(error.value, BuildError) and error.value.faults == world.parser_errors
    assert "Builder.create_builder_config" not in world.called()


def test_when_nothing_is_built_tensorrt_s_errors_are_quoted(
    world: World, plan: Planner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.builds = False
    world.messages = [
        ("VERBOSE", "timing"),
        ("WARNING", "int64"),
        ("ERROR", "out of memory"),
        ("ERROR", "no tactic"),
    ]
    facts = (tmp_path / "model.onnx", module(world).__version__, "engine.memory_pools_gb.workspace", "engine.profiles")
    with raises("no-engine", *facts, error=BuildError) as error:
        build(plan(timing_cache=str(tmp_path / "caches")), tmp_path)
    assert [line.strip() for line in str(error.value).splitlines()[1:3]] == ["out of memory", "no tactic"]
    assert "int64" not in str(error.value) and "timing" not in capsys.readouterr().err.split()
    assert not (tmp_path / "model.engine").exists() and not (tmp_path / "caches").exists()


def test_warnings_are_kept_once(world: World, plan: Planner, tmp_path: Path) -> None:
    world.messages = [("WARNING", "int64 weights"), ("INFO", "chatter"), ("WARNING", "int64 weights")]
    assert build(plan(), tmp_path)["warnings"] == ["int64 weights"]


def test_a_library_that_does_not_start_is_named(world: World, plan: Planner, tmp_path: Path) -> None:
    world.starts = False
    with raises("no-device", module(world).__version__, "NVIDIA", error=BuildError):
        build(plan(), tmp_path)


def test_an_engine_that_cannot_be_read_back_is_an_error(world: World, plan: Planner, tmp_path: Path) -> None:
    world.reads = False
    with raises("file-unreadable", module(world).__version__, tmp_path / "model.engine", error=BuildError) as error:
        build(plan(), tmp_path)
    assert isinstance(error.value, BuildError)
    assert error.value.facts and error.value.facts["engine_mb"] == 9e-6 and (tmp_path / "model.engine").exists()
    assert error.value.facts["layers"] is None and set(error.value.facts) >= set(NO_LAYERS)


def test_another_file_than_the_plan_s_is_refused(world: World, plan: Planner, tmp_path: Path) -> None:
    planned = plan()
    Path(planned["onnx"]).write_bytes(b"another")
    model, got = Path(planned["onnx"]), plan_content.sha256(Path(planned["onnx"]))
    with raises("wrong-file", model, planned["onnx_sha256"], got, error=BuildError):
        build(planned, tmp_path)
    Path(planned["onnx"]).unlink()
    elsewhere = tmp_path / "elsewhere"
    with raises("file-missing", model, elsewhere / model.name, error=BuildError):
        build(planned, tmp_path, beside=elsewhere)


def test_the_model_beside_the_plan_is_taken_where_the_folder_s_own_is_another(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace has a model of the same name, and a plan is carried out that came from elsewhere."""
    planned = plan()
    workspace, came = tmp_path / "workspace", tmp_path / "came"
    for folder in (workspace / "artifacts", came):
        folder.mkdir(parents=True)
    shutil.move(planned["onnx"], came / "model.onnx")
    (workspace / "artifacts" / "model.onnx").write_bytes(b"the workspace's")
    monkeypatch.chdir(workspace)
    planned |= {"onnx": "artifacts/model.onnx"}
    build(planned, workspace, beside=Path("../came"))
    assert world.arguments("OnnxParser.parse_from_file") == [("../came/model.onnx",)]
    (came / "model.onnx").write_bytes(b"a third")
    with raises("wrong-file", planned["onnx_sha256"], error=BuildError) as error:
        build(planned, workspace, beside=came)
    lines = str(error.value).splitlines()[1:3]
    for line, found in zip(lines, ("artifacts/model.onnx", f"{came}/model.onnx"), strict=True):
        expect(line, None, found, plan_content.sha256(Path(found)))


def test_a_file_is_looked_up_with_what_belongs_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "m.onnx").write_bytes(b"model")
    (there / "m.bin").write_bytes(b"weights")
    monkeypatch.chdir(here)
    assert find_file("m.onnx", there) == Path("m.onnx")
    expected = plan_content.sha256(there / "m.onnx", there / "m.bin")
    assert find_file("m.onnx", there, expected=expected, data=["m.bin"]) == there / "m.onnx"
    (there / "m.bin").unlink()
    with raises("wrong-file", expected, error=BuildError) as error:
        find_file("m.onnx", there, expected=expected, data=["m.bin"])
    first, second = str(error.value).splitlines()[1:3]
    expect(first, None, "m.onnx", "m.bin")
    expect(second, None, there / "m.onnx", there / "m.bin")


def test_another_format_and_another_tensorrt_are_refused(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises("wrong-plan", "format", 1, 2, error=BuildError):
        build(plan() | {"format": 2}, tmp_path)
    with raises("wrong-plan", error=BuildError) as error:
        build({key: value for key, value in plan().items() if key != "plugins"} | {"profiles": {}}, tmp_path)
    plugins, profiles = str(error.value).splitlines()[1:]
    expect(plugins, None, "plugins")
    expect(profiles, None, "profiles", "list", "dict")
    with raises("wrong-plan", error=BuildError) as error:
        build(plan() | {"declared": "fp64", "builder": {}, "graph": {}, "plugins": [{}]}, tmp_path)
    lines = {line.split(":")[0].strip(): line for line in str(error.value).splitlines()[1:]}
    assert set(lines) == {"declared", "graph", "plugins", *(f"builder.{name}" for name in versions.BUILDER_OPTIONS)}
    expect(lines["declared"], None, "fp16", "fp32", "'fp64'")
    expect(lines["graph"], None, "float_nodes", "fp16_nodes")
    expect(lines["plugins"], None, "path", "sha256")
    with raises("wrong-plan", "graph.fp16_node_names", "'/a'", error=BuildError):
        build(plan() | {"graph": {"float_nodes": 1, "fp16_nodes": 1, "fp16_node_names": "/a"}}, tmp_path)
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", "8.6.1")
    with raises("package-missing", "8.6.1", "10.x", "11.x", error=BuildError):
        build(plan(), tmp_path)


# --- older releases ---------------------------------------------------------------------------------------------------

OLDER = frozenset(("TilingOptimizationLevel", "IBuilderConfig.tiling_optimization_level"))
OLDEST = OLDER | {"ICudaEngine.device_memory_size_v2"}  # 10.0


def older(world: World, monkeypatch: pytest.MonkeyPatch, lacks: frozenset[str], release: str = "10.0.1") -> None:
    world.lacks, world.release = lacks, release
    monkeypatch.setitem(sys.modules, "tensorrt", module(world))


def test_an_option_that_an_older_release_lacks_is_refused_by_name(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(world, monkeypatch, OLDER, "10.7.0")
    facts = ("engine.tiling_optimization_level", "10.7.0", "TilingOptimizationLevel")
    with raises("not-supported", *facts, error=BuildError):
        build(plan(tiling_optimization_level="full"), tmp_path)
    build(plan(), tmp_path)
    older(world, monkeypatch, frozenset(("IBuilderConfig.tiling_optimization_level",)), "10.7.0")
    with raises("not-supported", "10.7.0", "'tiling_optimization_level'", error=BuildError):
        build(plan(tiling_optimization_level="full"), tmp_path)


def test_an_engine_of_the_oldest_release_is_known_all_the_same(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(world, monkeypatch, OLDEST | {"IProgressMonitor", "IBuilderConfig.progress_monitor"})
    world.layers = HALF
    facts = build(plan(), tmp_path)
    assert facts["half_layers"] == 1 and facts["inspection_fault"] is None
    assert facts["device_memory_mb"] == (0.0 if world.version == "10.16" else None), "11 lacks the old name, too"


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"inspects": False}, ["RuntimeError", "10.0.1"]),
        ({"information": "Layer 0: /stem/Conv"}, ["JSONDecodeError"]),
        ({"information": "[]"}, ["AttributeError", "'list'", "'get'"]),
        ({"lacks": OLDEST | {"LayerInformationFormat"}}, ["AttributeError", "'LayerInformationFormat'"]),
        (
            {"lacks": OLDEST | {"ICudaEngine.create_engine_inspector"}},
            ["AttributeError", "'create_engine_inspector'"],
        ),
        ({"lacks": OLDEST | {"ICudaEngine.get_tensor_mode"}}, ["AttributeError", "'get_tensor_mode'"]),
    ],
)
def test_an_engine_that_cannot_be_inspected_is_kept_and_not_verified(
    world: World,
    plan: Planner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    facts: list[str],
) -> None:
    world.__dict__.update(change)
    older(world, monkeypatch, world.lacks or OLDEST)
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 3
    expect(capsys.readouterr().err, None, "not verified", "fp16", *facts)
    written = json.loads((tmp_path / "engine.json").read_text())
    assert (tmp_path / "model.engine").read_bytes() == b"an engine" and written["engine_mb"] == 9e-6
    assert written["layers"] is None
    expect(written["inspection_fault"], None, *facts)


def test_without_a_context_the_inspector_is_asked_all_the_same(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(world, monkeypatch, OLDEST | {"ExecutionContextAllocationStrategy"})
    world.layers = HALF
    facts = build(plan(), tmp_path)
    assert facts["half_layers"] == 1 and precision_unknown(facts, "detailed") is None
    world.layers = typed("N/A due to dynamic shapes")
    said = precision_unknown(build(plan(), tmp_path), "detailed")
    expect(str(said), None, "AttributeError", "'tensorrt'", "'ExecutionContextAllocationStrategy'")


@pytest.mark.parametrize(
    "lacks", ["OnnxParser", "Builder.create_builder_config", "BuilderFlag.TF32", "get_plugin_registry"]
)
def test_the_script_names_what_tensorrt_lacks(
    world: World,
    plan: Planner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lacks: str,
) -> None:
    older(world, monkeypatch, OLDEST | {lacks})
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 1
    expect(capsys.readouterr().err, "not-supported", "build_engine", "10.0.1", lacks.rpartition(".")[2])
    assert not (tmp_path / "model.engine").exists()


def test_a_call_that_tensorrt_does_not_take_ends_the_script_with_a_line(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: Any) -> None:
        raise TypeError("set_memory_pool_limit()")

    monkeypatch.setattr(sys.modules["tensorrt"].IBuilderConfig, "set_memory_pool_limit", refuses)
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 1
    facts = ("build_engine", module(world).__version__, "TypeError", "set_memory_pool_limit()")
    expect(capsys.readouterr().err, "runtime-refuses", *facts)


def test_an_engine_that_cannot_be_read_has_its_facts_written(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.reads = False
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 1
    assert json.loads((tmp_path / "engine.json").read_text())["engine_mb"] == 9e-6


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_looked_up_by_name_is_a_name(version: str) -> None:
    known = names(version)
    assert {"IProgressMonitor", "ICudaEngine.device_memory_size_v2"} <= set(known)
    assert ("ICudaEngine.device_memory_size" in known) == (version == "10.16")
    for method in ("phase_start", "phase_finish", "step_complete"):
        given = getattr(_StepsOf(version).monitor, method).__code__
        assert given.co_varnames[1 : given.co_argcount] == known[f"IProgressMonitor.{method}"].overloads[0].arguments


class _StepsOf:
    """The monitor that a build of a version sets."""

    def __init__(self, version: str) -> None:
        world = World(version=version)
        config = module(world).Builder(None).create_builder_config()
        with builder._stopped_by_ctrl_c(module(world), config):
            self.monitor = config.progress_monitor


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_builder_at_its_next_step(world: World, plan: Planner, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    world.interrupts = 2
    with pytest.raises(KeyboardInterrupt):
        build(plan(timing_cache=str(tmp_path / "caches")), tmp_path)
    assert world.steps == 3, "of 10"
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before
    assert not (tmp_path / "model.engine").exists() and not (tmp_path / "caches").exists()
    world.interrupts = 0
    build(plan(), tmp_path)
    assert world.steps == 10 and (tmp_path / "model.engine").exists()


def test_the_script_ends_as_ctrl_c_asks(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.interrupts = 1
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 130
    assert not (tmp_path / "engine.json").exists()


def test_a_caller_s_own_handler_gets_the_signal_when_the_builder_has_stopped(
    world: World, plan: Planner, tmp_path: Path
) -> None:
    given: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: given.append(number))
    world.interrupts = 1
    try:
        with raises("no-engine", error=BuildError):
            build(plan(), tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert given == [signal.SIGINT]


def test_signals_are_left_alone_outside_the_main_thread(world: World, plan: Planner, tmp_path: Path) -> None:
    planned, built = plan(), []
    thread = threading.Thread(target=lambda: built.append(build(planned, tmp_path)))
    thread.start()
    thread.join()
    assert built and "set IBuilderConfig.progress_monitor" not in world.called()


# --- plugins ----------------------------------------------------------------------------------------------------------


def test_a_library_is_loaded_once_in_a_process(world: World, tmp_path: Path) -> None:
    world.libraries = {"libmine.so"}
    trt = module(world)
    for _ in range(2):
        assert load_plugins(trt, object(), [tmp_path / "libmine.so"]) == [["Twist0"]], "the operators that it brings"
    assert len(world.arguments("IPluginRegistry.load_library")) == 1


def test_what_libraries_register_is_known_where_tensorrt_is(world: World, tmp_path: Path) -> None:
    world.libraries = {"libmine.so", "libother.so"}
    assert registered_ops([tmp_path / "libmine.so", tmp_path / "libother.so"]) == [["Twist0"], ["Twist1"]]
    assert registered_ops([tmp_path / "libother.so"]) == [["Twist1"]], "once in a process, and known all the same"
    assert registered_ops([tmp_path / "libgone.so"]) is None


def test_plugins_and_builders_are_given_one_logger(world: World, plan: Planner, tmp_path: Path) -> None:
    """TensorRT keeps the first that it gets, for good."""
    assert registered_ops([]) == []
    world.messages = [("ERROR", "the-first")]
    build(plan(), tmp_path)
    world.messages, world.builds = [("ERROR", "the-second")], False
    with raises("no-engine", "the-second", error=BuildError) as error:
        build(plan(), tmp_path)
    assert "the-first" not in str(error.value), "each quotes its own"
    (first, _), *others = world.arguments("init_libnvinfer_plugins")
    given = [logger for logger, _ in others] + [logger for (logger,) in world.arguments("Builder")]
    assert len(given) == 4 and all(one is first for one in given)


def test_a_library_that_is_none_is_refused(world: World, plan: Planner, tmp_path: Path) -> None:
    library = tmp_path / "libmine.so"
    library.write_text("no library")
    with raises("file-unreadable", library, error=BuildError):
        build(plan(plugins=[str(library)]), tmp_path)


def test_a_library_without_plugins_is_refused(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda path, mode: None)
    with raises("wrong-file", tmp_path / "libmine.so", "getCreators()", error=BuildError):
        load_plugins(module(world), plugins.message_log(module(world)), [tmp_path / "libmine.so"])


def test_a_library_that_registers_itself_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def opened(path: str, mode: int) -> None:
        world.loaded += 1

    monkeypatch.setattr(ctypes, "CDLL", opened)
    load_plugins(module(world), object(), [tmp_path / "libmine.so"])
    assert str(tmp_path / "libmine.so") in plugins._LOADED_PLUGINS


def test_another_plugin_than_the_plan_s_is_refused(world: World, plan: Planner, tmp_path: Path) -> None:
    library = tmp_path / "libmine.so"
    library.write_bytes(b"one")
    planned = plan(plugins=[str(library)])
    library.write_bytes(b"two")
    with raises("wrong-file", library, planned["plugins"][0]["sha256"], plan_content.sha256(library), error=BuildError):
        build(planned, tmp_path)


# --- the timing cache -------------------------------------------------------------------------------------------------


def test_a_timing_cache_is_kept_per_gpu_and_version(world: World, plan: Planner, tmp_path: Path) -> None:
    planned = plan(timing_cache=str(tmp_path / "caches"))
    first, second = build(planned, tmp_path)["timing_cache"], build(planned, tmp_path)["timing_cache"]
    file = tmp_path / "caches" / f"nvidia-l4-tensorrt-{module(world).__version__}.cache"
    assert first == {"file": str(file), "loaded": False, "saved": True}
    assert second == {"file": str(file), "loaded": True, "saved": True}
    assert [path.name for path in file.parent.iterdir()] == [file.name], "nothing half written is left"
    assert file.read_bytes() == b"+timed+" + b"+timed+timed", "the second build's, with the file's entries"
    assert [ignored for _, ignored in world.arguments("IBuilderConfig.set_timing_cache")] == [False, False]


def test_two_builds_that_end_together_lose_no_timings(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a build reads, combines and writes, no other process gets the folder."""
    fcntl = pytest.importorskip("fcntl")
    held: list[bool] = []
    combine = type.__getattribute__(sys.modules["tensorrt"].ITimingCache, "combine")

    def watched(*arguments: Any) -> Any:
        with _opened(caches) as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(False)
            except BlockingIOError:
                held.append(True)
        return combine(*arguments)

    caches = tmp_path / "caches"
    planned = plan(timing_cache=str(caches))
    build(planned, tmp_path)
    monkeypatch.setattr(sys.modules["tensorrt"].ITimingCache, "combine", watched)
    build(planned, tmp_path)
    assert held == [True]
    with _opened(caches) as after:
        fcntl.flock(after, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def test_an_editable_cache_is_a_file_of_its_own(world: World, plan: Planner, tmp_path: Path) -> None:
    facts = build(plan(timing_cache=str(tmp_path / "caches"), editable_timing_cache=True), tmp_path)
    assert facts["timing_cache"]["file"].endswith("-editable.cache")


def test_a_cache_that_tensorrt_refuses_gives_way_to_an_empty_one(world: World, plan: Planner, tmp_path: Path) -> None:
    planned = plan(timing_cache=str(tmp_path))
    Path(build(planned, tmp_path)["timing_cache"]["file"]).write_bytes(b"of another driver")
    world.takes_cache = lambda data: data == b""
    world.calls.clear()
    facts = build(planned, tmp_path)
    assert facts["timing_cache"]["loaded"] is False and facts["timing_cache"]["saved"] is True
    assert [data for (data,) in world.arguments("IBuilderConfig.create_timing_cache")][:2] == [
        b"of another driver",
        b"",
    ]
    assert Path(facts["timing_cache"]["file"]).read_bytes() == b"+timed"


def test_a_cache_that_cannot_be_kept_is_no_fault(world: World, plan: Planner, tmp_path: Path) -> None:
    (tmp_path / "caches").write_text("a file where the folder should be")
    facts = build(plan(timing_cache=str(tmp_path / "caches")), tmp_path)
    assert facts["timing_cache"]["saved"] is False and (tmp_path / "model.engine").exists()


# --- small ones -------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named() -> None:
    assert unavailable_reason(True, "11.4") is None
    for gpus, tensorrt in ((None, None), (None, "11.4"), ([{}], None)):
        reason = str(unavailable_reason(bool(gpus), tensorrt))
        assert ("nvidia-smi" in reason, "truehalf[tensorrt]" in reason) == (gpus is None, tensorrt is None)


def test_versions_are_told_by_their_first_number() -> None:
    assert version_of("10.0.1") is versions.VERSIONS[10] and version_of("11.4.0.106") is versions.VERSIONS[11]


def test_there_is_no_gpu_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert versions.gpu_name() is None


@pytest.mark.parametrize(("status", "expected"), [(0, "NVIDIA L4"), (100, None)])
def test_the_driver_names_the_gpu(monkeypatch: pytest.MonkeyPatch, status: int, expected: str | None) -> None:
    class Driver:
        def __init__(self, name: str) -> None: ...

        def cuInit(self, number: int) -> int:
            return status

        def cuDeviceGet(self, device: Any, number: int) -> int:
            return status

        def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
            name.value = b"NVIDIA L4"
            return status

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert versions.gpu_name() == expected


# --- the script alone -------------------------------------------------------------------------------------------------


def alone(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """`python build_engine.py ...` in this process, where the stand-in is; returns the exit code."""
    (folder / "build_engine.py").write_text(script())
    monkeypatch.setattr(sys, "argv", ["build_engine.py", *arguments])
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: (_ for _ in ()).throw(OSError("no driver here")))
    try:
        runpy.run_path(str(folder / "build_engine.py"), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    return 0


def test_a_thousand_float_layers_and_a_reformat_to_half_are_not_fp16(
    world: World, plan: Planner, tmp_path: Path
) -> None:
    reformat = typed("Half", LayerType="Reformat")
    kernel = [{"Name": "__myl_CastReshTran_myl0_3", "LayerType": "kgen", "Outputs": [{"Format/Datatype": "Half"}]}]
    world.layers = [*typed("Float", 999), *reformat, *kernel]
    facts = build(planned := plan(), tmp_path)
    assert (facts["half_layers"], facts["half_layers_fraction"], facts["half_io_fraction"]) == (0, 0.0, 2 / 1001)
    assert planned["graph"]["float_nodes"] == 1 and planned["graph"]["fp16_nodes"] == 0
    expect(str(precision_fault(facts, "fp16", planned["graph"])), None, "fp16", 1001, "Half")
    world.layers = [*typed("Float", 999), *typed("Half")]
    facts = build(planned, tmp_path)
    doubt = precision_doubt(facts, "fp16", {"float_nodes": 10, "fp16_nodes": 10})
    expect(str(doubt), None, "0.1%", "100.0%", "Half")


@pytest.mark.parametrize(
    ("verbosity", "layers", "expected"),
    [
        ("none", ["a", "b"], ["engine.profiling_verbosity=none", "detailed"]),
        ("detailed", [{"Name": "a", "Outputs": [{"Name": "t", "Kind": "?"}]}], ["JSON", "Kind", "Name"]),
        ("detailed", ["a"], ["JSON", "none"]),
        ("detailed", [*typed("Half"), *typed("?", 3)], [1, 4]),
        ("detailed", typed("Half", 2), None),
    ],
)
def test_what_hides_the_types_is_said(
    world: World, plan: Planner, tmp_path: Path, verbosity: str, layers: list[Any], expected: list[object] | None
) -> None:
    world.layers = layers
    said = precision_unknown(build(plan(profiling_verbosity=verbosity), tmp_path), verbosity)
    assert (said is None) == (expected is None)
    expect(str(said), None, *expected or ())


HALF = [{"Name": "a", "Inputs": [{"Format/Datatype": "Half"}], "Outputs": [{"Format/Datatype": "Half"}]}]
FLOAT = [{"Name": "a", "Inputs": [{"Format/Datatype": "Float"}], "Outputs": [{"Format/Datatype": "Float"}]}]


def test_the_script_builds_from_the_files_alone(
    world: World,
    plan: Planner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    carried, planned = tmp_path / "carried", plan()
    carried.mkdir()
    shutil.move(planned["onnx"], carried / "model.onnx")
    (carried / "plan.json").write_text(json.dumps(planned | {"onnx": "artifacts/cast_cleanup/model.onnx"}))
    world.layers = HALF
    assert alone(carried, monkeypatch, str(carried / "plan.json")) == 0
    assert json.loads((carried / "engine.json").read_text())["half_layers"] == 1
    expect(capsys.readouterr().out, None, carried / "model.engine", "100.0%", "Half", "not verified")
    world.layers = FLOAT
    assert alone(carried, monkeypatch, str(carried / "plan.json"), "--out", str(tmp_path / "out")) == 1
    expect(capsys.readouterr().err, None, "build_engine", "fp16", 1, "Half")
    assert (tmp_path / "out" / "model.engine").exists(), "kept for inspection"
    world.layers = [{"Name": "a", "Outputs": [{"Kind": "half"}]}]
    assert alone(carried, monkeypatch, str(carried / "plan.json")) == 3
    expect(capsys.readouterr().err, None, "build_engine", "not verified", "fp16", "Kind")


def test_the_script_says_what_is_missing(
    plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert alone(tmp_path, monkeypatch, str(tmp_path / "plan.json")) == 1
    expect(capsys.readouterr().err, "package-missing", "build_engine", "tensorrt")
    assert alone(tmp_path, monkeypatch, str(tmp_path / "other.json")) == 1
    assert "other.json" in capsys.readouterr().err
