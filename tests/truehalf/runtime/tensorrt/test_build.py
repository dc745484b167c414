"""What a plan makes TensorRT do, in which order, on both versions, and what is said when it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.messages import expect, raises
from tests.truehalf.conftest import PROFILE, Planner
from tests.truehalf.runtime.tensorrt.alone import alone
from tests.truehalf.runtime.tensorrt.recording import NO_NUMBERS, Tensor, World, module
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.plan_content import find_file
from truehalf.runtime.tensorrt.versions import BuildError


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
