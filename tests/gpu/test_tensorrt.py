"""What holds with real TensorRT, 10 or 11, and TensorRT for RTX on a GPU: engines that are executed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import raises
from tests.truehalf.engines.building import build_engine
from truehalf.config.engine import EngineConfig, LatencyConfig
from truehalf.config.typed import plain
from truehalf.emulation.sessions import EmulatedSession
from truehalf.runtime.machine import probe
from truehalf.runtime.tensorrt import RTX, TENSORRT, EngineRunner, unavailable_reason
from truehalf.runtime.timing import timed

pytestmark = pytest.mark.gpu
RTOL = 0.01  # ten units in the last place of a half: kernels add 27 products and 256 means in any order
FEW = {"warm_up": 5, "runs": 50, "rounds": 2}
CONVOLUTION = """g ({t}[N,3,16,16] images) => ({t}[N,8] scores) {{
    features = Conv <pads = [1, 1, 1, 1]> (images, w)
    positive = Relu(features)
    pooled = GlobalAveragePool(positive)
    scores = Flatten(pooled)
}}"""
MACHINE: Any = probe()
_RUNS = [name for name in (TENSORRT, RTX) if not unavailable_reason(name, MACHINE)]


@pytest.fixture(autouse=True, scope="module", params=_RUNS or [TENSORRT])
def backend(request: pytest.FixtureRequest) -> str:
    """Asked for on a GPU, these tests run or fail: a missing package is no reason to skip them."""
    name = str(request.param)
    reason = unavailable_reason(name, MACHINE)
    assert reason is None, reason
    return name


def saved(folder: Path, text: str, name: str = "model", **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for number, node in enumerate(model.graph.node):
        node.name = f"/{node.op_type}_{number}"
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, key) for key, value in weights.items())
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def convolution(folder: Path, dtype: str) -> Path:
    element, kind = ("float16", np.float16) if dtype == "fp16" else ("float", np.float32)
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(kind)
    return saved(folder, CONVOLUTION.format(t=element), dtype, w=weights)


def images(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).random((batch, 3, 16, 16), np.float32).astype(np.float16)


def profile(low: int, opt: int, high: int) -> Any:
    return {"images": {kind: [n, 3, 16, 16] for kind, n in (("min", low), ("opt", opt), ("max", high))}}


def built(backend: str, path: Path, profiles: Any = None, declared: str = "fp16", **options: Any) -> Any:
    """The report, and the engine opened again."""
    profiles = [profile(1, 2, 8)] if profiles is None else profiles
    chosen: Any = {"timing_cache": None, "workspace_gb": 1.0, "backend": backend} | options
    out = path.parent / "out"
    report = build_engine(path, out, profiles=profiles, declared=declared, latency=FEW, **chosen)
    assert report["status"] == "built", report
    return report, EngineRunner(out / "model.engine", backend, plain(EngineConfig(**chosen)), profiles)


def test_an_fp16_file_gives_an_fp16_engine(backend: str, tmp_path: Path) -> None:
    path = convolution(tmp_path, "fp16")
    report, engine = built(backend, path)
    assert report["compiled"]["half_arithmetic"] > 0.5 and report["device_memory_mb"] >= 0
    assert report["gates"][0]["state"] == "verified" and len(report["latency"]) == 3
    assert any("/Conv_0" in row["onnx_nodes"] for row in report["layer_table"]), report["layer_table"]
    expected = EmulatedSession(path).run({"images": images(2)})["scores"]
    np.testing.assert_allclose(engine.run({"images": images(2)})["scores"], expected, rtol=RTOL)


def test_an_fp32_file_gives_an_fp32_engine(backend: str, tmp_path: Path) -> None:
    report, _ = built(backend, convolution(tmp_path, "fp32"), declared="fp32")
    assert report["compiled"]["half_arithmetic"] == 0
    assert {dtype for layer in report["layer_table"] for dtype in layer["types"]} >= {"Float"}


def test_every_batch_of_every_profile_runs(backend: str, tmp_path: Path) -> None:
    _, engine = built(backend, convolution(tmp_path, "fp16"), [profile(1, 2, 8), profile(9, 16, 32)])
    alone = engine.run({"images": images(32)[:1]})["scores"]
    for batch in (1, 9, 8, 32, 2):
        scores = engine.run({"images": images(32)[:batch]})["scores"]
        assert scores.shape == (batch, 8)
        np.testing.assert_allclose(scores[:1], alone, rtol=RTOL)  # other kernels, other order of sums
    with raises("out-of-range", [33, 3, 16, 16]):
        engine.run({"images": images(33)})


def test_a_timing_cache_is_kept(backend: str, tmp_path: Path) -> None:
    for _ in range(2):
        built(backend, convolution(tmp_path, "fp16"), timing_cache=str(tmp_path / "caches"))
    (cache,) = (tmp_path / "caches").glob("*.cache")
    assert cache.stat().st_size > 0


@pytest.mark.parametrize(
    "options",
    [
        {"builder_optimization_level": 0, "tf32": True},
    ],
    ids=str,
)
def test_every_option_gives_an_engine_that_computes_the_same(
    backend: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = convolution(tmp_path, "fp16")
    expected = EmulatedSession(path).run({"images": images(2)})["scores"]
    _, engine = built(backend, path, **options)
    np.testing.assert_allclose(engine.run({"images": images(2)})["scores"], expected, rtol=RTOL)


def test_values_of_a_shape_tensor_and_sizes_that_depend_on_data(backend: str, tmp_path: Path) -> None:
    text = """g (float16[1,1,4,4] x, int64[2] size) => (float16[1,1,H,W] y) <int64[2] head = {1, 1}> {
        whole = Concat <axis = 0> (head, size)
        y = Resize <mode = "nearest"> (x, , , whole)
    }"""
    sizes = {"size": {"min": [4, 4], "opt": [8, 8], "max": [16, 16]}}
    _, engine = built(backend, saved(tmp_path, text), [sizes])
    x = np.arange(16, dtype=np.float16).reshape(1, 1, 4, 4)
    y = engine.run({"x": x, "size": np.array([8, 12])})["y"]
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(3, 3))


def test_latency_is_measured_with_clocks(backend: str, tmp_path: Path) -> None:
    _, engine = built(backend, convolution(tmp_path, "fp16"))
    row = timed(engine.prepared({"images": images(8)}), 8, LatencyConfig(5, 50, 2), on_gpu=True)
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] and len(row["rounds"]) == 2
    assert row["throughput_per_s"] > 0 and row["samples"] == 8


@pytest.mark.skipif(not shutil.which("trtexec"), reason="there is no trtexec on this machine's PATH")
@pytest.mark.parametrize("count", [1, 2])
def test_trtexec_takes_its_line(backend: str, count: int, tmp_path: Path) -> None:
    profiles = [profile(1, 2, 8), profile(9, 16, 32)][:count]
    report, _ = built(backend, convolution(tmp_path, "fp16"), profiles, builder_optimization_level=1)
    (tmp_path / "carried").mkdir()
    shutil.copy(tmp_path / "fp16.onnx", tmp_path / "carried")
    line = report["plan"]["trtexec_10" if MACHINE["tensorrt"].startswith("10") else "trtexec"]
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, cwd=tmp_path / "carried", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "carried" / "model.engine").stat().st_size > 0


def test_a_model_of_fixed_shapes_is_built_and_run(backend: str, tmp_path: Path) -> None:
    _, engine = built(backend, saved(tmp_path, "g (float16[2,4] x) => (float16[2,4] y) { y = Relu(x) }"), [])
    x = np.linspace(-1, 1, 8, dtype=np.float16).reshape(2, 4)
    np.testing.assert_array_equal(engine.run({"x": x})["y"], np.maximum(x, 0))
