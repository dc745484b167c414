"""The stand-in has what a version has and nothing else: or a test on it would prove nothing."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from tests.messages import raises
from tests.truehalf.runtime.tensorrt import recording
from tests.truehalf.runtime.tensorrt.recording import VERSIONS, World, module, names


def everything(thing: Any, prefix: str = "") -> set[str]:
    """Qualified public names of a module or class."""
    found = set()
    for name in vars(thing):
        if name.startswith("_"):
            continue
        found.add(prefix + name)
        value = vars(thing)[name]
        if isinstance(value, type) and issubclass(value, enum.Enum):
            found |= {f"{prefix}{name}.{member}" for member in value.__members__}
        elif isinstance(value, type):
            found |= everything(value, f"{prefix}{name}.")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_its_names_are_the_version_s(version: str) -> None:
    assert everything(module(World(version=version))) == set(names(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_of_members_are_the_version_s(version: str) -> None:
    trt = module(World(version=version))
    assert int(trt.BuilderFlag.EDITABLE_TIMING_CACHE) == {"10.16": 27, "11.4": 26}[version]
    assert int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == {"10.16": 1, "11.4": 0}[version]


def test_a_name_that_only_10_has_is_missing_on_11() -> None:
    assert module(World(version="10.16")).BuilderFlag.FP16.name == "FP16"
    with pytest.raises(AttributeError):
        _ = module(World(version="11.4")).BuilderFlag.FP16


def test_what_no_object_of_tensorrt_takes_is_refused() -> None:
    trt = module(World())
    builder = trt.Builder(object())
    with raises(None, "tensorrt.tensorrt.Builder", "'workspace'", error=AttributeError):
        builder.workspace = 1
    with pytest.raises(AttributeError):
        builder.num_DLA_cores = 1  # read only
    with raises(None, "Builder.create_network", 2, error=TypeError):
        builder.create_network(0, 1)
    with raises(None, "tensorrt.ICudaEngine", error=TypeError):
        trt.ICudaEngine()
    with pytest.raises(TypeError):
        trt.Builder()


def test_it_behaves_only_where_there_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(recording.BEHAVIOURS, "Builder.build_cuda_engine", lambda *_: None)
    with raises(None, "['Builder.build_cuda_engine']", error=AssertionError):
        module(World())


def test_calls_are_recorded_with_their_arguments() -> None:
    world = World()
    config = module(world).Builder(None).create_builder_config()
    config.builder_optimization_level = 3
    assert world.calls == [
        ("Builder", (None,)),
        ("Builder.create_builder_config", ()),
        ("set IBuilderConfig.builder_optimization_level", (3,)),
    ]
    assert config.builder_optimization_level == 3
