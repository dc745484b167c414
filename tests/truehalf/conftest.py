"""A World in place of TensorRT, and plans to build in it; what the library does without is blocked from import."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.truehalf.runtime.tensorrt.recording import World, module
from truehalf.engines.plan import make_plan
from truehalf.runtime import cuda_driver
from truehalf.runtime.tensorrt import build as builder
from truehalf.runtime.tensorrt import plugins

OPTIONS: dict[str, Any] = {
    "memory_pools_gb": {"workspace": 4.0},
    "builder_optimization_level": None,
    "max_aux_streams": None,
    "tiling_optimization_level": "none",
    "tf32": False,
    "timing_cache": None,
    "editable_timing_cache": False,
    "version_compatible": False,
    "hardware_compatibility": "none",
    "refit": False,
    "strip_weights": False,
    "profiling_verbosity": "detailed",
    "plugins": [],
    "backend": "tensorrt",
    "provider": None,
}
PROFILE = {"images": {"min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}}
MODEL = "g (float[N,3,8,8] images) => (float[N,3,8,8] scores) { scores = Relu(images) }"


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


BLOCKED = ("stages", "pipeline", "hydra", "dvc", "mlflow")


@pytest.fixture(autouse=True)
def _library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports made while a test runs; tests/test_imports.py reads those at the top of modules."""
    loaded = [name for name in sys.modules if name.partition(".")[0] in BLOCKED]
    for name in {*BLOCKED, *loaded}:
        monkeypatch.setitem(sys.modules, name, None)  # import raises ModuleNotFoundError


@pytest.fixture(autouse=True)
def _in_the_foreground() -> Iterator[None]:
    """Ctrl-C as in a terminal: of a job in the background a shell lets it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["10.16", "11.4"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """TensorRT 10 and then 11, as a stand-in that answers for one dynamic input and records what is called."""
    world = World(version=request.param)
    monkeypatch.setitem(sys.modules, "tensorrt", module(world))
    monkeypatch.setattr(plugins, "_LOADED_PLUGINS", set())
    for module_ in (builder, cuda_driver):
        monkeypatch.setattr(module_, "gpu_name", lambda: "NVIDIA L4")
    return world


Planner = Callable[..., dict[str, Any]]


@pytest.fixture
def plan(tmp_path: Path) -> Planner:
    """A plan of a small model, with options that differ from OPTIONS."""
    path = tmp_path / "model.onnx"
    onnx.save(parsed(MODEL), path)

    def planned(profiles: Any = (PROFILE,), **options: Any) -> dict[str, Any]:
        wanted = OPTIONS | options
        return make_plan(path, names=(str(path), "model.engine"), options=wanted, profiles=profiles, declared="fp16")

    return planned


def typed(text: str | None, count: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"Name": f"{text}_{i}", "Outputs": [{"Format/Datatype": text, "Name": "t"}], **more} for i in range(count)]
