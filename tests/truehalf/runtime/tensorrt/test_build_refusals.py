"""Builds that end in an error: what the parser, the builder or an older release of TensorRT refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.messages import expect, raises
from tests.truehalf.conftest import Planner
from tests.truehalf.runtime.tensorrt.recording import VERSIONS, World, module, names
from truehalf.errors import StageError
from truehalf.runtime.tensorrt import build as builder
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.proof import NO_LAYERS
from truehalf.runtime.tensorrt.versions import BuildError

HALF = [{"Name": "a", "Inputs": [{"Format/Datatype": "Half"}], "Outputs": [{"Format/Datatype": "Half"}]}]

# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_error_ends_its_first_line_with_its_code() -> None:
    """As those of the project."""
    error = BuildError("no-engine", "model.onnx:\n  log")
    assert (error.code, str(error)) == ("no-engine", "model.onnx: [no-engine]\n  log")
    assert str(error) == str(StageError(error.code, "model.onnx:\n  log")) == str(StageError("not-run", str(error)))


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


# --- older releases ---------------------------------------------------------------------------------------------------

OLDER = frozenset(("HardwareCompatibilityLevel", "IBuilderConfig.hardware_compatibility_level"))
OLDEST = OLDER | {"ICudaEngine.device_memory_size_v2"}  # 10.0


def older(world: World, monkeypatch: pytest.MonkeyPatch, lacks: frozenset[str], release: str = "10.0.1") -> None:
    world.lacks, world.release = lacks, release
    monkeypatch.setitem(sys.modules, "tensorrt", module(world))


def test_an_option_that_an_older_release_lacks_is_refused_by_name(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(world, monkeypatch, OLDER, "10.7.0")
    facts = ("engine.hardware_compatibility", "10.7.0", "HardwareCompatibilityLevel")
    with raises("not-supported", *facts, error=BuildError):
        build(plan(hardware_compatibility="ampere_plus"), tmp_path)
    build(plan(), tmp_path)
    older(world, monkeypatch, frozenset(("IBuilderConfig.hardware_compatibility_level",)), "10.7.0")
    with raises("not-supported", "10.7.0", "'hardware_compatibility_level'", error=BuildError):
        build(plan(hardware_compatibility="ampere_plus"), tmp_path)


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
    change: dict[str, Any],
    facts: list[str],
) -> None:
    world.__dict__.update(change)
    older(world, monkeypatch, world.lacks or OLDEST)
    written = build(plan(), tmp_path)
    assert (tmp_path / "model.engine").read_bytes() == b"an engine" and written["engine_mb"] == 9e-6
    assert written["layers"] is None
    expect(str(written["inspection_fault"]), None, *facts)


def test_without_a_context_the_inspector_is_asked_all_the_same(
    world: World, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(world, monkeypatch, OLDEST | {"ExecutionContextAllocationStrategy"})
    world.layers = HALF
    facts = build(plan(), tmp_path)
    assert facts["half_layers"] == 1
    expect(str(facts["inspection_fault"]), None, "AttributeError", "'tensorrt'", "'ExecutionContextAllocationStrategy'")


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
