"""What stands around a build: Ctrl-C, plugins, the timing cache, the driver."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.truehalf.conftest import Planner, typed
from tests.truehalf.runtime.tensorrt.recording import World, module
from truehalf.runtime import cuda_driver
from truehalf.runtime.tensorrt import plugins, versions
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.plugins import load_plugins
from truehalf.runtime.tensorrt.versions import unavailable_reason, version_of

# --- what is TensorRT 10's and 11's own -----------------------------------------------------------------------------


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


def test_a_version_compatible_engine_carries_the_parser_s_plugins(world: World, plan: Planner, tmp_path: Path) -> None:
    world.vc_libraries = ["libnvinfer_vc_plugin.so"]
    build(plan(version_compatible=True), tmp_path)
    assert world.arguments("set IBuilderConfig.plugins_to_serialize") == [(["libnvinfer_vc_plugin.so"],)]
    assert world.arguments("set Runtime.engine_host_code_allowed") == [(True,)]
    world.calls.clear()
    build(plan(), tmp_path)
    assert "set IBuilderConfig.plugins_to_serialize" not in world.called()
    assert world.arguments("set Runtime.engine_host_code_allowed") == [(False,)]


# --- plugins ----------------------------------------------------------------------------------------------------------


def test_a_library_is_loaded_once_in_a_process(world: World, tmp_path: Path) -> None:
    world.libraries = {"libmine.so"}
    trt = module(world)
    for _ in range(2):
        load_plugins(trt, object(), [tmp_path / "libmine.so"])
    assert len(world.arguments("IPluginRegistry.load_library")) == 1


def test_a_library_that_registers_itself_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def opened(path: str, mode: int) -> None:
        world.loaded += 1

    monkeypatch.setattr(ctypes, "CDLL", opened)
    load_plugins(module(world), object(), [tmp_path / "libmine.so"])
    assert str(tmp_path / "libmine.so") in plugins._LOADED_PLUGINS


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
    for name, extra in (("tensorrt", "truehalf[tensorrt]"), ("tensorrt_rtx", "truehalf[rtx]")):
        assert unavailable_reason("8.6", name, "11.4") is None
        for capability, version in ((None, None), (None, "11.4"), ("8.6", None)):
            reason = str(unavailable_reason(capability, name, version))
            assert ("nvidia-smi" in reason, extra in reason) == (capability is None, version is None)


def test_tensorrt_for_rtx_runs_on_no_gpu_of_a_data_centre_but_ampere() -> None:
    for capability, runs in (
        ("7.5", True),
        ("8.0", True),
        ("8.7", False),
        ("9.0", False),
        ("10.0", False),
        ("12.1", True),
    ):
        assert (unavailable_reason(capability, "tensorrt_rtx", "1.7") is None) == runs
        assert unavailable_reason(capability, "tensorrt", "11.4") is None


def test_versions_are_told_by_their_first_number() -> None:
    assert version_of("10.0.1") is versions.VERSIONS[10] and version_of("11.4.0.106") is versions.VERSIONS[11]


def test_there_is_no_gpu_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert cuda_driver.gpu_name() is None


# --- layers -----------------------------------------------------------------------------------------------------------


def test_a_thousand_float_layers_and_a_reformat_to_half_are_not_fp16(
    world: World, plan: Planner, tmp_path: Path
) -> None:
    reformat = typed("Half", LayerType="Reformat")
    kernel = [{"Name": "__myl_CastReshTran_myl0_3", "LayerType": "kgen", "Outputs": [{"Format/Datatype": "Half"}]}]
    world.layers = [*typed("Float", 999), *reformat, *kernel]
    facts = build(plan(), tmp_path)
    assert (facts["half_layers"], facts["half_layers_fraction"], facts["half_io_fraction"]) == (0, 0.0, 2 / 1001)
