"""ONNX Runtime as an engine, on the CPU provider; kernels and reasons of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect, raises
from truehalf.config.engine import EngineConfig, LatencyConfig
from truehalf.engines.provider import Served, cpu_nodes_sentence, unavailable_reason
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort import CPU, CUDA, Session
from truehalf.runtime.timing import timed

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def saved(folder: Path, dtype: str = "float", op: str = "Relu") -> Path:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g ({dtype}["n",4] x) => ({dtype}["n",4] z)
        {{ y = {op}(x)  z = Softmax(y) }}"""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def served(model: Path, provider: str = "cpu") -> Served:
    return Served(ModelFile(model), EngineConfig(backend="onnxruntime", provider=provider))


def test_the_file_runs_with_graph_optimisations(tmp_path: Path) -> None:
    model = saved(tmp_path)
    engine = served(model)
    np.testing.assert_allclose(engine.run({"x": X})["z"], Session(model).run({"x": X})["z"], rtol=1e-6)
    assert engine.provider == CPU and engine.nodes_by_provider() == {CPU: 2} and engine.cpu_nodes is None


def test_what_ran_is_known_after_a_run(tmp_path: Path) -> None:
    model = saved(tmp_path)
    with raises("not-run"):
        served(model).nodes_by_provider()


def test_a_provider_that_takes_no_node_is_an_error(tmp_path: Path) -> None:
    model = saved(tmp_path)
    engine = served(model)
    engine.run({"x": X})
    for row in engine._session.kernels or []:
        row["provider"] = CUDA
    with raises("no-device", CPU, 2):
        engine.nodes_by_provider()


def test_a_silent_fall_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime opens the session on the CPU where CUDA does not load; it says so in its log alone."""
    import onnxruntime as ort

    real, model = ort.InferenceSession, saved(tmp_path)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(ort, "InferenceSession", lambda path, settings, providers: real(path, settings, [CPU]))
    with raises("no-device", CPU, CUDA):
        served(model, "cuda")


def test_latency_is_that_of_rounds_with_their_noise(tmp_path: Path) -> None:
    model = saved(tmp_path)
    row = timed(served(model).prepared({"x": X}), 2, LatencyConfig(1, 12, 3), on_gpu=False)
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] and len(row["rounds"]) == 3
    assert min(row["rounds"]) <= row["p50_ms"] <= max(row["rounds"])
    assert row["spread"] == (max(row["rounds"]) - min(row["rounds"])) / min(row["rounds"])
    assert row["samples"] == 2 and row["throughput_per_s"] > 0 and row["clocks"] is None


@pytest.mark.parametrize(
    ("gpus", "built", "loads", "provider", "expected"),
    [
        (None, [CPU], [CPU], "cpu", set()),
        (None, [CUDA, CPU], [CPU], "cuda", {"nvidia-smi"}),
        ([{}], [CUDA, CPU], [CUDA, CPU], "cuda", set()),
        ([{}], [CUDA, CPU], [CPU], "cuda", {CUDA, "cuDNN"}),
        ([{}], [CPU], [CPU], "cuda", {CUDA, "onnxruntime-gpu"}),
        (None, [CPU], [CPU], "cuda", {"nvidia-smi", CUDA, "onnxruntime-gpu"}),
    ],
)
def test_a_provider_that_cannot_run_says_why(
    gpus: Any, built: list[str], loads: list[str], provider: str, expected: set[str]
) -> None:
    """What is missing (the GPU, the provider's libraries, the package), and nothing that is there."""
    machine = {"gpus": gpus, "onnxruntime_providers_built": built, "onnxruntime_providers": loads}
    reason = unavailable_reason(machine, provider)
    known = {"nvidia-smi", CUDA, "cuDNN", "onnxruntime-gpu"}
    assert {fact for fact in known if fact in str(reason)} == expected and (reason is None) == (not expected)


def test_nodes_that_fall_to_the_cpu_are_named() -> None:
    nodes = [*(f"/n{i} (Mul)" for i in range(11)), "/sample (1) (GridSample)"]
    said = cpu_nodes_sentence(nodes)
    expect(said, None, 12, "CPU", "FP16", "FP32", ", ".join(nodes[:10]), 2, "precision.op_block_list=[GridSample,Mul]")
    assert "/n10" not in said
