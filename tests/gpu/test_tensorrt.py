"""What holds with real TensorRT, 10 or 11, and TensorRT for RTX on a GPU, which the stand-in can only assume."""

from __future__ import annotations

import importlib
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.measuring.shipped import shipped
from tests.messages import raises
from tests.truehalf.runtime.tensorrt.recording import VERSIONS, names
from tests.truehalf.runtime.tensorrt.resolving import uses
from truehalf.config.engine import LatencyConfig
from truehalf.emulation.sessions import EmulatedSession
from truehalf.engines.plan import make_plan
from truehalf.runtime.machine import probe
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.latency import measure
from truehalf.runtime.tensorrt.proof import changed_nodes
from truehalf.runtime.tensorrt.run import Engine
from truehalf.runtime.tensorrt.versions import (
    RTX,
    TENSORRT,
    BuildError,
    tensorrt_version,
    unavailable_reason,
    version_of,
)

pytestmark = pytest.mark.gpu
FILE = {"float_nodes": 4, "fp16_nodes": 4}  # of the file, where it is FP16
ROOT = Path(__file__).resolve().parents[2]
RTOL = 0.01  # ten units in the last place of a half: kernels add 27 products and 256 means in any order
CONVOLUTION = """g ({t}[N,3,16,16] images) => ({t}[N,8] scores) {{
    features = Conv <pads = [1, 1, 1, 1]> (images, w)
    positive = Relu(features)
    pooled = GlobalAveragePool(positive)
    scores = Flatten(pooled)
}}"""


CAPABILITY = next((gpu["compute_capability"] for gpu in probe()["gpus"] or []), None)
MODULES = [name for name in (TENSORRT, RTX) if not unavailable_reason(CAPABILITY, name, tensorrt_version(name))]


@pytest.fixture(autouse=True, scope="module", params=MODULES or [TENSORRT])
def trt(request: pytest.FixtureRequest) -> Any:
    """Asked for on a GPU, these tests run or fail: what they need and is missing is no reason to skip them."""
    import torch

    assert torch.cuda.is_available(), "there is a GPU and torch sees no CUDA device: install torch's CUDA build"
    try:
        return importlib.import_module(request.param)
    except ImportError as error:
        pytest.fail(f"there is a GPU and no TensorRT ({error}): pip install 'truehalf[tensorrt]' or 'truehalf[rtx]'")


def saved(folder: Path, text: str, name: str = "model", **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> {text}')
    for number, node in enumerate(model.graph.node):
        node.name = f"/{node.op_type}_{number}"
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, key) for key, value in weights.items())
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def convolution(folder: Path, dtype: str) -> Path:
    element, kind = ("float16", np.float16) if dtype == "fp16" else ("float", np.float32)
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(kind)
    return saved(folder, CONVOLUTION.format(t=element), dtype, w=weights)


def images(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).random((batch, 3, 16, 16), np.float32)


def profile(low: int, opt: int, high: int) -> dict[str, Any]:
    return {"images": {kind: [n, 3, 16, 16] for kind, n in (("min", low), ("opt", opt), ("max", high))}}


def plan_of(path: Path, declared: str = "fp16", profiles: Any = None, **options: Any) -> dict[str, Any]:
    wanted = shipped("engine/tensorrt") | {"timing_cache": None, "memory_pools_gb": {"workspace": 1.0}} | options
    profiles = [profile(1, 2, 8)] if profiles is None else profiles
    return make_plan(path, names=(str(path), "model.engine"), options=wanted, profiles=profiles, declared=declared)


def built(trt: Any, path: Path, folder: Path, **options: Any) -> tuple[dict[str, Any], Engine]:
    plan = plan_of(path, **options)
    facts = build(plan, folder, module=trt.__name__)
    builder = plan["builder"]
    weights = path if builder["strip_weights"] else None
    engine = folder / "model.engine"
    opened = Engine(engine, weights=weights, version_compatible=builder["version_compatible"], module=trt.__name__)
    return facts, opened


def test_the_names_that_we_use_are_there(trt: Any) -> None:
    """Whatever the version: also one for which there is no names file."""
    version_of(trt.__version__)
    files = sorted((ROOT / "truehalf" / "runtime" / "tensorrt").glob("*.py"))
    for version in VERSIONS:
        used = set().union(*(uses(file.read_text(), names(version)).names for file in files))
        assert len(used) > 70
        assert [name for name in sorted(used) if not _has(trt, name)] == []


def _has(thing: Any, name: str) -> bool:
    first, _, rest = name.partition(".")
    return hasattr(thing, first) and (not rest or _has(getattr(thing, first), rest))


def test_an_fp16_file_gives_an_fp16_engine(trt: Any, tmp_path: Path) -> None:
    path = convolution(tmp_path, "fp16")
    facts, engine = built(trt, path, tmp_path)
    graph = plan_of(path)["graph"]
    assert graph == FILE | {"fp16_node_names": ["/Conv_0", "/Relu_1", "/GlobalAveragePool_2"]}
    assert changed_nodes(facts, graph) == []
    # Every tensor of the file is Half. Not every tensor of the engine need be: the builder may cut the pooling's 256
    # sums in two layers with a Float between them. The convolution with its Relu and the last layer remain.
    assert facts["half_layers"] > 0 and facts["half_layers_fraction"] > 0.5 and facts["half_io_fraction"] > 0.5
    assert {one["dtype"] for one in facts["io"]} == {"HALF"}
    assert facts["engine_mb"] > 0 and facts["build_seconds"] > 0 and facts["device_memory_mb"] >= 0 and facts["gpu"]
    assert any("/Conv_0" in row["onnx_nodes"] for row in facts["layer_table"]), facts["layer_table"]
    expected = EmulatedSession(path).run({"images": images(2).astype(np.float16)})["scores"]
    np.testing.assert_allclose(engine.run({"images": images(2)})["scores"], expected, rtol=RTOL)


def test_an_fp32_file_gives_an_fp32_engine(trt: Any, tmp_path: Path) -> None:
    facts, engine = built(trt, convolution(tmp_path, "fp32"), tmp_path, declared="fp32")
    assert facts["half_layers"] == 0 and facts["half_io_fraction"] == 0
    assert {one["dtype"] for one in engine.io} == {"FLOAT"}


def test_every_batch_of_every_profile_runs(trt: Any, tmp_path: Path) -> None:
    _, engine = built(trt, convolution(tmp_path, "fp16"), tmp_path, profiles=[profile(1, 2, 8), profile(9, 16, 32)])
    assert [one["images"]["max"][0] for one in engine.profiles] == [8, 32]
    alone = engine.run({"images": images(32)[:1]})["scores"]
    for number, batch in ((0, 1), (1, 9), (0, 8), (1, 32), (0, 2)):
        scores = engine.run({"images": images(32)[:batch]}, number)["scores"]
        assert scores.shape == (batch, 8)
        np.testing.assert_allclose(scores[:1], alone, rtol=RTOL)  # other kernels, other order of sums
    with raises("out-of-range", "'images'", [9, 3, 16, 16], "profile 0", [1, 3, 16, 16], [8, 3, 16, 16]):
        engine.run({"images": images(9)}, 0)


@pytest.mark.parametrize("editable", [False, True])
def test_a_timing_cache_is_written_and_read(trt: Any, tmp_path: Path, editable: bool) -> None:
    path = convolution(tmp_path, "fp16")
    plan = plan_of(path, timing_cache=str(tmp_path / "caches"), editable_timing_cache=editable)
    first, second = (build(plan, tmp_path, module=trt.__name__) for _ in range(2))
    assert (first["timing_cache"]["loaded"], second["timing_cache"]["loaded"]) == (False, True)
    assert Path(first["timing_cache"]["file"]).stat().st_size > 0
    if editable:
        assert [row["name"] for row in first["layer_table"]] == [row["name"] for row in second["layer_table"]]


@pytest.mark.parametrize(
    "options",
    [
        {"strip_weights": True},
        {"refit": True},
        {"version_compatible": True},
        {"hardware_compatibility": "same_compute_capability"},
        {"builder_optimization_level": 0, "max_aux_streams": 0},
        {"tiling_optimization_level": "fast"},
        {"tf32": True},
        {"profiling_verbosity": "layer_names_only"},
        {"profiling_verbosity": "none"},
    ],
    ids=str,
)
def test_every_option_gives_an_engine_that_computes_the_same(trt: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    path = convolution(tmp_path, "fp16")
    expected = EmulatedSession(path).run({"images": images(2).astype(np.float16)})["scores"]
    facts, engine = built(trt, path, tmp_path, **options)
    np.testing.assert_allclose(engine.run({"images": images(2)})["scores"], expected, rtol=RTOL)
    if options.get("profiling_verbosity"):
        assert facts["half_layers"] is None, "not known is not 0"
        assert facts["engine_mb"] > 0 and facts["io"]


def test_what_the_parser_refuses_is_named(trt: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float16[N,3,16,16] images) => (float16[N,3,16,16] y) { y = mine.Twist(images) }")
    with pytest.raises(BuildError) as error:
        build(plan_of(path), tmp_path, module=trt.__name__)
    assert [(each["node"], each["op_type"]) for each in error.value.errors] == [("/Twist_0", "Twist")]


def test_values_of_a_shape_tensor_come_from_the_host(trt: Any, tmp_path: Path) -> None:
    text = """g (float16[1,1,4,4] x, int64[2] size) => (float16[1,1,H,W] y) <int64[2] head = {1, 1}> {
        whole = Concat <axis = 0> (head, size)
        y = Resize <mode = "nearest"> (x, , , whole)
    }"""
    sizes = {"min": [4, 4], "opt": [8, 8], "max": [16, 16]}
    _, engine = built(trt, saved(tmp_path, text), tmp_path, profiles=[{"size": sizes}])
    x = np.arange(16, dtype=np.float16).reshape(1, 1, 4, 4)
    y = engine.run({"x": x, "size": np.array([8, 12])})["y"]
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(3, 3))
    with raises("out-of-range", "'size'", [8, 32], "profile 0", [4, 4], [16, 16]):
        engine.run({"x": x, "size": np.array([8, 32])})


def test_an_output_of_a_size_that_depends_on_data(trt: Any, tmp_path: Path) -> None:
    text = "g (float16[N,8] x) => (int64[2,K] places) { places = NonZero(x) }"
    ranges = {"x": {"min": [1, 8], "opt": [2, 8], "max": [4, 8]}}
    _, engine = built(trt, saved(tmp_path, text), tmp_path, profiles=[ranges])
    x = np.zeros((2, 8), np.float16)
    assert engine.run({"x": x})["places"].shape == (2, 0)
    x[0, 3] = x[1, 7] = 1
    np.testing.assert_array_equal(engine.run({"x": x})["places"], [[0, 1], [3, 7]])


def test_latency_is_measured_twice(trt: Any, tmp_path: Path) -> None:
    _, engine = built(trt, convolution(tmp_path, "fp16"), tmp_path)
    report = measure(engine, {"images": images(8)}, samples=8, options=LatencyConfig(5, 50, 2))
    assert 0 < report["p50_ms"] <= report["p95_ms"] <= report["p99_ms"] and len(report["rounds"]) == 2
    assert report["throughput_per_s"] > 0 and report["samples"] == 8
    assert set(report["clocks"]) == {"before", "after"}
    for clocks in report["clocks"].values():  # None without nvidia-smi, and each None where it says [N/A]
        assert clocks is None or clocks["sm_mhz"] is None or clocks["sm_mhz"] > 0


needs_trtexec = pytest.mark.skipif(not shutil.which("trtexec"), reason="there is no trtexec on this machine's PATH")


def by_trtexec(trt: Any, path: Path, folder: Path, **options: Any) -> Engine:
    """The engine of the plan's line for this TensorRT, run in a folder that holds the model alone."""
    folder.mkdir()
    shutil.copy(path, folder)
    line = plan_of(path, **options)["trtexec_10" if trt.__version__.startswith("10") else "trtexec"]
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return Engine(folder / "model.engine")


@needs_trtexec
def test_trtexec_takes_its_line(trt: Any, tmp_path: Path) -> None:
    options = {"builder_optimization_level": 1, "max_aux_streams": 0, "tiling_optimization_level": "fast"}
    options |= {"timing_cache": ".timing_cache", "refit": True}
    engine = by_trtexec(trt, convolution(tmp_path, "fp16"), tmp_path / "carried", **options)
    assert {one["dtype"] for one in engine.io} == {"HALF"}, "strongly typed, with either version's line"
    assert engine.run({"images": images(1)})["scores"].shape == (1, 8)
    assert list((tmp_path / "carried").glob("trtexec-tensorrt-*.cache"))


@needs_trtexec
def test_trtexec_takes_several_profiles(trt: Any, tmp_path: Path) -> None:
    profiles = [profile(1, 2, 8), profile(9, 16, 32)]
    engine = by_trtexec(trt, convolution(tmp_path, "fp16"), tmp_path / "carried", profiles=profiles)
    assert [one["images"]["max"][0] for one in engine.profiles] == [8, 32]
    assert engine.run({"images": images(32)}, 1)["scores"].shape == (32, 8)


FIXED = {"x": {"min": [2, 4], "opt": [2, 4], "max": [2, 4]}}


@needs_trtexec
@pytest.mark.parametrize("profiles", [[], [FIXED]], ids=["no profile", "its own shapes"])
def test_trtexec_takes_a_model_of_fixed_shapes(trt: Any, tmp_path: Path, profiles: Any) -> None:
    """For which it refuses shapes."""
    path = saved(tmp_path, "g (float16[2,4] x) => (float16[2,4] y) { y = Relu(x) }")
    engine = by_trtexec(trt, path, tmp_path / "carried", profiles=profiles)
    x = np.linspace(-1, 1, 8, dtype=np.float16).reshape(2, 4)
    np.testing.assert_array_equal(engine.run({"x": x})["y"], np.maximum(x, 0))


@pytest.mark.parametrize("profiles", [[], [FIXED]], ids=["no profile", "its own shapes"])
def test_a_model_of_fixed_shapes_is_built_and_run(trt: Any, tmp_path: Path, profiles: Any) -> None:
    path = saved(tmp_path, "g (float16[2,4] x) => (float16[2,4] y) { y = Relu(x) }")
    _, engine = built(trt, path, tmp_path, profiles=profiles)
    x = np.linspace(-1, 1, 8, dtype=np.float16).reshape(2, 4)
    np.testing.assert_array_equal(engine.run({"x": x})["y"], np.maximum(x, 0))
