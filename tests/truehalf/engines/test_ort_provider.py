"""ONNX Runtime as an engine, on the CPU provider; what a GPU's providers would be told."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.configurations import composed
from tests.messages import expect, raises
from truehalf.config.engine import LatencyConfig
from truehalf.engines import ort_provider
from truehalf.engines.ort_provider import Served, kernel_facts, provider_options, unavailable_reason
from truehalf.engines.plan import make_plan
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort.installed import CPU
from truehalf.runtime.ort.session import CUDA, TENSORRT, Session

PROFILES = [{"x": {"min": [1, 4], "opt": [2, 4], "max": [8, 4]}}]
OPTIONS = composed("engine=onnxruntime")["engine"]
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def saved(folder: Path, dtype: str = "float", op: str = "Relu") -> Path:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g ({dtype}["n",4] x) => ({dtype}["n",4] z)
        {{ y = {op}(x)  z = Softmax(y) }}"""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def planned(model: Path, declared: str = "fp32", **options: Any) -> dict[str, Any]:
    return make_plan(
        model,
        names=(str(model), ""),
        options=OPTIONS | {"provider": "cpu"} | options,
        profiles=PROFILES,
        declared=declared,
    )


def test_the_file_runs_with_graph_optimisations(tmp_path: Path) -> None:
    model = saved(tmp_path)
    served = Served(planned(model), ModelFile(model))
    np.testing.assert_allclose(served.run({"x": X})["z"], Session(model).run({"x": X})["z"], rtol=1e-6)
    facts = served.facts()
    assert facts["provider"] == CPU and facts["nodes_by_provider"] == {CPU: facts["layers"]}
    assert facts["half_layers"] == 0 and facts["half_layers_fraction"] == 0.0
    assert [row["type"] for row in facts["layer_table"]] == ["Relu", "Softmax"]
    assert facts["io"] == [
        {"name": "x", "mode": "INPUT", "dtype": "FLOAT", "shape": [-1, 4]},
        {"name": "z", "mode": "OUTPUT", "dtype": "FLOAT", "shape": [-1, 4]},
    ]


def test_of_fp16_on_the_cpu_no_share_of_half_is_claimed(tmp_path: Path) -> None:
    model = saved(tmp_path, "float16")
    served = Served(planned(model, "fp16"), ModelFile(model))
    served.run({"x": X.astype(np.float16)})
    facts = served.facts()
    assert (facts["half_layers"], facts["half_layers_fraction"], facts["half_io_fraction"]) == (None, None, None)


def test_what_ran_is_known_after_a_run(tmp_path: Path) -> None:
    model = saved(tmp_path)
    with raises("not-run"):
        Served(planned(model), ModelFile(model)).facts()


def test_a_provider_that_takes_no_node_is_an_error(tmp_path: Path) -> None:
    model = saved(tmp_path)
    served = Served(planned(model), ModelFile(model))
    served.run({"x": X})
    for row in served._observed.kernels or []:
        row["provider"] = CUDA
    with raises("no-device", CPU, 2):
        served.facts()


def test_a_silent_fall_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime opens the session on the CPU where CUDA does not load; it says so in its log alone."""
    import onnxruntime as ort

    real, model = ort.InferenceSession, saved(tmp_path)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(ort, "InferenceSession", lambda path, settings, providers: real(path, settings, [CPU]))
    with raises("no-device", CPU, CUDA):
        Served(planned(model, provider="cuda"), ModelFile(model))


def test_latency_is_that_of_rounds_with_their_noise(tmp_path: Path) -> None:
    model = saved(tmp_path)
    served, options = Served(planned(model), ModelFile(model)), LatencyConfig(1, 12, 3)
    row = served.latency({"x": X}, samples=2, options=options)
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] and len(row["rounds"]) == 3
    assert min(row["rounds"]) <= row["p50_ms"] <= max(row["rounds"])
    assert row["spread"] == (max(row["rounds"]) - min(row["rounds"])) / min(row["rounds"])
    assert row["samples"] == 2 and row["throughput_per_s"] > 0 and row["clocks"] is None


def test_profiles_and_plugins_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    wrong = [{"x": {"min": [1, 5], "opt": [1, 5], "max": [1, 5]}, "y": PROFILES[0]["x"]}]
    options = OPTIONS | {"provider": "tensorrt", "plugins": ["libgone.so"]}
    with raises("wrong-plan", "model.onnx") as caught:
        make_plan(saved(tmp_path), names=("a", "b"), options=options, profiles=wrong, declared="fp32")
    first, second, third = str(caught.value).splitlines()[1:]
    expect(first, None, "engine.profiles[0].x", 1, 4)
    expect(second, None, "engine.profiles[0].y", "x")
    expect(third, None, "engine.plugins", "libgone.so")


def test_tensorrts_provider_is_told_what_it_has_an_option_for() -> None:
    options = OPTIONS | {
        "provider": "tensorrt",
        "builder_optimization_level": 4,
        "max_aux_streams": 2,
        "plugins": ["a.so", "b.so"],
        "hardware_compatibility": "ampere_plus",
    }
    assert provider_options(options, [*PROFILES, *PROFILES], "fp16") == {
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": str(4 * 2**30),
        "trt_builder_optimization_level": "4",
        "trt_auxiliary_streams": "2",
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": ".timing_cache",
        "trt_engine_hw_compatible": "1",
        "trt_extra_plugin_lib_paths": "a.so;b.so",
        "trt_profile_min_shapes": "x:1x4,x:1x4",
        "trt_profile_opt_shapes": "x:2x4,x:2x4",
        "trt_profile_max_shapes": "x:8x4,x:8x4",
    }
    assert provider_options(options, PROFILES, "fp32")["trt_fp16_enable"] == "0"
    assert provider_options(options | {"provider": "cpu"}, PROFILES, "fp16") == {}


def test_what_a_provider_has_no_option_for_is_a_variable_in_the_plan(tmp_path: Path) -> None:
    plan = planned(saved(tmp_path, "float16"), "fp16", provider="tensorrt")
    assert plan["environment"] == {"NVIDIA_TF32_OVERRIDE": "0"}, "TensorRT's own default is on"
    assert planned(saved(tmp_path), provider="tensorrt", tf32=True)["environment"] == {}
    assert planned(saved(tmp_path), provider="cpu")["environment"] == {}


def test_timings_of_other_machines_lie_in_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not relative to where the command happens to run."""
    monkeypatch.chdir(tmp_path)
    folders = []
    for gpu, version in (("NVIDIA L4", "10.16.1"), ("NVIDIA T4", "10.16.1"), ("NVIDIA T4", None)):
        monkeypatch.setattr("truehalf.runtime.cuda_driver.gpu_name", lambda gpu=gpu: gpu)
        monkeypatch.setattr(ort_provider, "tensorrt_version", lambda version=version: version)
        folders.append(ort_provider.cache_folder(".timing_cache"))
    assert len(set(folders)) == 3 and all(folder.is_dir() and folder.is_absolute() for folder in folders)
    assert folders[0].parent == tmp_path / ".timing_cache"
    assert folders[0].name.startswith("nvidia-l4-onnxruntime-") and folders[0].name.endswith("-tensorrt-10.16.1")


def test_no_other_compatibility_is_handed_over_as_ampere_plus() -> None:
    told = provider_options(
        OPTIONS | {"provider": "tensorrt", "hardware_compatibility": "same_compute_capability"}, PROFILES, "fp16"
    )
    assert "trt_engine_hw_compatible" not in told


@pytest.mark.parametrize("name", ["trt_fp16_enable", "trt_max_workspace_size", "trt_profile_min_shapes"])
def test_the_installed_provider_knows_the_options(name: str) -> None:
    import onnxruntime as ort

    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("elsewhere ONNX Runtime is installed without TensorRT's provider")
    content = (Path(ort.__file__).parent / "capi/libonnxruntime_providers_tensorrt.so").read_bytes()
    told = provider_options(OPTIONS | {"provider": "tensorrt", "plugins": ["a.so"]}, PROFILES, "fp16")
    assert name in told and all(option.encode() in content for option in told)


@pytest.mark.parametrize(
    ("gpus", "built", "loads", "provider", "expected"),
    [
        (None, [CPU], [CPU], "cpu", set()),
        (None, [CUDA, CPU], [CPU], "cuda", {"nvidia-smi"}),
        ([{}], [CUDA, CPU], [CUDA, CPU], "cuda", set()),
        ([{}], [CUDA, CPU], [CPU], "cuda", {CUDA, "cuDNN"}),
        ([{}], [CPU], [CPU], "tensorrt", {TENSORRT, "onnxruntime-gpu"}),
        (None, [CPU], [CPU], "cuda", {"nvidia-smi", CUDA, "onnxruntime-gpu"}),
    ],
)
def test_a_provider_that_cannot_run_says_why(
    gpus: Any, built: list[str], loads: list[str], provider: str, expected: set[str]
) -> None:
    """What is missing (the GPU, the provider's libraries, the package), and nothing that is there."""
    machine = {"gpus": gpus, "onnxruntime_providers_built": built, "onnxruntime_providers": loads}
    reason = unavailable_reason(machine, provider)
    known = {"nvidia-smi", CUDA, TENSORRT, "cuDNN", "onnxruntime-gpu"}
    assert {fact for fact in known if fact in str(reason)} == expected and (reason is None) == (not expected)


def test_shares_are_of_kernels_that_put_out_floats_and_are_no_casts() -> None:
    table = [
        {"name": "a", "type": "MatMul", "provider": CUDA, "inputs": ["float16", "float16"], "outputs": ["float16"]},
        {"name": "b", "type": "Cast", "provider": CUDA, "inputs": ["float16"], "outputs": ["float"]},
        {"name": "c", "type": "Softmax", "provider": CUDA, "inputs": ["float"], "outputs": ["float"]},
        {"name": "d", "type": "Shape", "provider": CPU, "inputs": ["float"], "outputs": ["int64"]},
    ]
    facts = kernel_facts(table)
    assert (facts["layers"], facts["half_layers"]) == (4, 1)
    assert facts["half_layers_fraction"] == 1 / 2 and facts["half_io_fraction"] == 3 / 5
    assert facts["layer_table"][0]["outputs"] == ["Half"] and facts["layer_table"][3]["outputs"] == ["int64"]
    assert kernel_facts(table, known=False)["half_layers"] is None
