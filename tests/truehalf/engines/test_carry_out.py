"""An engine of TensorRT's, by a stand-in for the module: what the report says of it, and why none was built."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import expect, raises
from tests.truehalf.engines.building import build_engine
from tests.truehalf.runtime.tensorrt.recording import Tensor, World, module
from tests.truehalf.verification.held import Rows, evidence, outputs_of
from truehalf.config.engine import LatencyConfig
from truehalf.engines import ort_provider
from truehalf.engines.carry_out import explained
from truehalf.engines.parity import EngineReference
from truehalf.errors import StageError
from truehalf.linting import Finding
from truehalf.runtime.tensorrt.versions import RTX, BuildError

MACHINE = {"gpus": [{"name": "NVIDIA T4", "compute_capability": "7.5"}], "tensorrt": "11.4.0.106", "plugins": {}}
PROFILES = [{"x": {"min": [1, 1], "opt": [2, 1], "max": [4, 1]}}]
LATENCY = {"warm_up": 1, "runs": 10, "rounds": 2}
HALF = {"Name": "a", "LayerType": "x", "Inputs": [{"DataType": "Half"}], "Outputs": [{"DataType": "Half"}]}
HALF |= {"Metadata": "[ONNX Layer: /head/act/Relu]"}
LOST = {"Name": "c", "LayerType": "x", "Inputs": [{"DataType": "Float"}], "Outputs": [{"DataType": "Float"}]}
LOST |= {"Metadata": "[ONNX Layer: /head/act/Relu]"}
FLOAT = {"Name": "b", "LayerType": "x", "Inputs": [{"DataType": "Half"}], "Outputs": [{"DataType": "Float"}]}


@dataclass
class Bench:
    """A machine whose TensorRT answers as `world` says, and whose engine answers `answer`."""

    folder: Path
    world: World
    answer: Callable[[np.ndarray], Rows] = outputs_of
    times: Callable[..., dict[str, Any]] = lambda engine, feeds, **options: {
        "p50_ms": 1.0,
        "samples": options["samples"],
    }

    def built(self, evidence: EngineReference | str = "none was given", **options: Any) -> dict[str, Any]:
        return build_engine(
            model(self.folder),
            self.folder / "out",
            profiles=PROFILES,
            declared="fp16",
            evidence=evidence,
            probe=MACHINE,
            **({"latency": LATENCY, "timing_cache": None} | options),
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    tensors = [Tensor("x", shape=(-1, 1), profile=((1, 1), (2, 1), (4, 1)))]
    bench = Bench(
        tmp_path, World(inputs=tensors, outputs=[Tensor("logits", "HALF"), Tensor("boxes")], layers=[HALF, FLOAT])
    )

    class Engine:
        def __init__(self, path: Path, plugins: Any, **options: Any) -> None:
            assert Path(path).read_bytes() == b"an engine"
            bench.world.__dict__["opened"] = options

        def run(self, feeds: Rows, profile: int) -> Rows:
            return bench.answer(feeds["x"])

    monkeypatch.setitem(sys.modules, "tensorrt", module(bench.world))
    monkeypatch.setattr("truehalf.runtime.tensorrt.run.Engine", Engine)
    monkeypatch.setattr(
        "truehalf.runtime.tensorrt.latency.measure",
        lambda engine, feeds, **options: bench.times(engine, feeds, **options),
    )
    return bench


def model(folder: Path) -> Path:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float["n",1] x) => (float["n",1] y)
        { a = Cast<to = 10>(x)  b = Relu(a)  y = Cast<to = 1>(b) }"""
    proto = onnx.parser.parse_model(text)
    for node, name in zip(proto.graph.node, ["/in/Cast", "/head/act/Relu", "/out/Cast"], strict=True):
        node.name = name
    onnx.save(proto, folder / "model.onnx")
    return folder / "model.onnx"


def test_an_engine_that_is_half_and_finds_the_same_is_built_and_verified(bench: Bench) -> None:
    report = bench.built(evidence())
    assert report["status"] == "built" and report["not_verified"] == [] and "reason" not in report
    assert (report["half_layers"], report["half_layers_fraction"], report["layers"]) == (1, 0.5, 2)
    assert report["parity"]["state"] == "verified" and report["parity"]["evaluation"] == "tensorrt"
    assert [(row["points"], row["samples"]) for row in report["latency"]] == [(["min"], 1), (["opt"], 2), (["max"], 4)]
    assert report["tensorrt"].startswith("11.4") and report["provider"] == "tensorrt" and report["layer_table"]
    assert report["engine"] == report["plan"]["engine"]


def test_an_fp32_engine_of_a_declared_fp16_file_is_failed(bench: Bench) -> None:
    bench.world.layers = [LOST, FLOAT]
    report = bench.built(evidence())
    (gate,) = report["gates"]
    assert report["status"] == "failed" and gate["state"] == "failed"
    expect(report["reason"], "beyond-gate", "engine.gates.half_share_less", "/head/act/Relu", "Half")
    assert report["parity"]["state"] == "verified", "what was measured stays in the report"
    assert (bench.folder / "out/model.engine").exists()
    report = bench.built(evidence(), gates={"half_share_less": None, "fused_attention": False})
    assert report["status"] == "built" and report["gates"] == []


def test_an_engine_that_finds_something_else_is_failed_with_each_reason(bench: Bench) -> None:
    bench.world.layers = [LOST]
    bench.answer = lambda x: {name: value * np.nan for name, value in outputs_of(x).items()}
    report = bench.built(evidence())
    assert report["status"] == "failed" and len(report["reasons"]) == 2
    expect(report["reasons"][0], "beyond-gate", "engine.gates.half_share_less")
    expect(report["reasons"][1], None, "nonfinite")
    assert report["reason"] == "; ".join(report["reasons"])


@pytest.mark.parametrize(
    ("layers", "verbosity", "said"),
    [
        (["a", "b"], "none", ["engine.profiling_verbosity=none", "detailed"]),
        ([{"Name": "a", "Outputs": [{"Kind": "half"}]}], "detailed", []),
        ([FLOAT], "detailed", []),
    ],
)
def test_layers_that_tell_no_types_or_nodes_are_not_verified(
    layers: list[Any], verbosity: str, said: list[str], bench: Bench
) -> None:
    bench.world.layers = layers
    report = bench.built(evidence(), profiling_verbosity=verbosity)
    assert report["status"] == "built" and report["parity"]["state"] == "verified"
    (item,) = report["not_verified"]
    expect(item, None, "engine.gates.half_share_less", *said)


def test_a_file_of_few_fp16_nodes_is_not_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float["n",1] x) => (float["n",1] y)
        { a = Relu(x)  b = Relu(a)  c = Cast<to = 10>(b)  ["/head/act/Relu"] d = Relu(c)  y = Cast<to = 1>(d) }"""
    mixed = bench.folder / "mixed.onnx"
    onnx.save(onnx.parser.parse_model(text), mixed)
    monkeypatch.setattr("tests.truehalf.engines.test_carry_out.model", lambda folder: mixed)
    bench.world.layers = [HALF, FLOAT, FLOAT]
    report = bench.built(evidence())
    assert report["status"] == "built" and report["gates"][0]["state"] == "verified"
    assert (report["precision"]["fp16_nodes"], report["precision"]["float_nodes"]) == (1, 3)


def test_a_point_that_cannot_be_timed_loses_neither_engine_nor_the_other_points(bench: Bench) -> None:
    def times(engine: Any, feeds: Rows, **options: Any) -> dict[str, Any]:
        assert options == {"options": LatencyConfig(**LATENCY), "profile": 0, "samples": len(feeds["x"])}
        if len(feeds["x"]) == 4:
            raise RuntimeError("out of memory")
        return {"p50_ms": 1.0}

    bench.times = times
    report = bench.built(evidence())
    assert report["status"] == "built" and len(report["latency"]) == 2
    (item,) = report["not_verified"]
    expect(item, None, "latency", "profile 0", "max", "RuntimeError: out of memory")


def test_a_profile_from_no_sample_on_is_timed_and_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = [{"x": {"min": [0, 1], "opt": [2, 1], "max": [4, 1]}}]
    monkeypatch.setattr("tests.truehalf.engines.test_carry_out.PROFILES", profiles)
    bench.world.inputs[0].profile = ((0, 1), (2, 1), (4, 1))
    report = bench.built(evidence())
    assert report["status"] == "built" and [row["samples"] for row in report["latency"]] == [0, 2, 4]
    (said,) = report["not_verified"]
    expect(said, "nothing-compared", 0)


def test_samples_are_what_is_timed_where_they_fit(bench: Bench) -> None:
    seen: list[list[float]] = []

    def times(engine: Any, feeds: Rows, **options: Any) -> dict[str, Any]:
        seen.append(feeds["x"].ravel().tolist())
        return {}

    bench.times = times
    bench.built(evidence())
    assert seen == [[0.0], [0.0, 1.0], [0.0, 1.0, 2.0, 3.0]]
    bench.built("none was given")
    assert [len(row) for row in seen[3:]] == [1, 2, 4] and all(0 < value < 1 for row in seen[3:] for value in row)


def test_a_stripped_engine_gets_its_weights_back_to_be_proven(bench: Bench) -> None:
    bench.built(strip_weights=True, version_compatible=True)
    opened = bench.world.__dict__["opened"]
    assert opened == {"weights": bench.folder / "model.onnx", "version_compatible": True, "module": "tensorrt"}
    bench.built()
    assert bench.world.__dict__["opened"]["weights"] is None


@pytest.mark.parametrize(("gpu", "status", "state"), [(True, "failed", "failed"), (False, "built", "not verified")])
def test_an_engine_that_does_not_load_is_kept(
    gpu: bool, status: str, state: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a GPU that is the engine's fault; where torch is built without CUDA it is nobody's."""

    def refuses(*arguments: Any, **options: Any) -> None:
        raise StageError("no-device", "torch sees no CUDA device")

    monkeypatch.setattr("truehalf.runtime.tensorrt.run.Engine", refuses)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    report = bench.built(evidence())
    assert (report["status"], report["parity"]["state"], report["latency"]) == (status, state, [])
    (said,) = report["reasons" if gpu else "not_verified"]
    expect(said, "no-device", report["parity"]["reason"])
    assert (bench.folder / "out/model.engine").exists()


def test_an_engine_that_tensorrt_cannot_read_back_is_kept(bench: Bench) -> None:
    bench.world.reads = False
    report = bench.built(evidence())
    assert report["status"] == "failed"
    expect(report["reason"], "file-unreadable", "TensorRT 11.4", bench.folder / "out/model.engine")
    assert (bench.folder / "out/model.engine").exists() and report["latency"] == [] and report["engine_mb"] > 0
    assert report["gates"][0]["state"] == "not verified" and "layers" not in report, "it was not read"


def test_what_the_bindings_raise_on_loading_keeps_the_engine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no execution context")

    monkeypatch.setattr("truehalf.runtime.tensorrt.run.Engine", refuses)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    report = bench.built(evidence())
    assert report["status"] == "failed" and report["parity"]["state"] == "failed"
    expect(report["reason"], None, "no execution context")
    assert (bench.folder / "out/model.engine").exists()


def test_what_the_parser_refuses_is_named_with_its_module(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real parser, that of TensorRT for RTX."""
    compiler = pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float["n",1] x) => (int64[2,"m"] y)
        { a = Cast<to = 10>(x)  b = Relu(a)  y = NonZero(b) }"""
    refused = bench.folder / "model.onnx"
    proto = onnx.parser.parse_model(text)
    proto.graph.node[2].name = "/head/act/NonZero"
    onnx.save(proto, refused)
    monkeypatch.setattr("tests.truehalf.engines.test_carry_out.model", lambda folder: refused)
    monkeypatch.setitem(sys.modules, "tensorrt", compiler)
    with raises("not-supported", refused) as caught:
        bench.built()
    _, node, module_of, *of_lint = str(caught.value).splitlines()
    expect(node, None, "'/head/act/NonZero' (NonZero)", "[UNSUPPORTED_NODE]")
    expect(module_of, None, "/head/act/NonZero:", "head.act")
    expect(of_lint[0], None, "data-dependent-size:")


def test_findings_stand_beside_the_node_that_they_are_of(tmp_path: Path) -> None:
    graph = ir.load(model(tmp_path))
    finding = Finding(
        "some-rule", "error", "/head/act/Relu", "Relu", "head.act", "It is bad.", "Write Clip.", "docs/x#y"
    )
    nodes = ("/head/act/Relu", "/in/Cast", "absent", "/in/Cast")
    error = BuildError("not-supported", "refused", [{"node": name} for name in nodes])
    first, relu, beside, cast = explained(error, graph, [finding]).splitlines()
    assert first == str(error)
    expect(relu, None, "/head/act/Relu:", "head.act")
    expect(beside, None, "some-rule:", finding.message, finding.remedy, finding.link)
    expect(cast, None, "/in/Cast:", "in")


# --- ONNX Runtime's providers on a GPU, by a stand-in


def served(bench: Bench, monkeypatch: pytest.MonkeyPatch, provider: str, **given: Any) -> dict[str, Any]:
    """A report of a provider that answers as the bench says; `given` are facts of what it loaded."""

    class Served:
        cpu_nodes = given.get("cpu_nodes", [])

        def __init__(self, plan: Any, file: Any) -> None: ...

        def run(self, feeds: Rows) -> Rows:
            return bench.answer(feeds["x"])

        def facts(self) -> dict[str, Any]:
            return (
                {"provider": ort_provider.PROVIDERS[provider], "layers": 2, "layer_table": []}
                | {
                    "half_layers": 1,
                    "half_layers_fraction": 0.5,
                }
                | given
            )

        def latency(self, feeds: Rows, **options: int) -> dict[str, Any]:
            return {"p50_ms": 1.0}

    monkeypatch.setattr("truehalf.engines.ort_provider.Served", Served)
    machine = MACHINE | {"onnxruntime_providers": list(ort_provider.PROVIDERS.values())}
    return build_engine(
        model(bench.folder),
        bench.folder / "out",
        profiles=PROFILES,
        declared="fp16",
        evidence=evidence(),
        probe=machine,
        backend="onnxruntime",
        provider=provider,
    )


def test_cuda_is_verified_by_what_it_puts_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    report = served(bench, monkeypatch, "cuda")
    assert report["status"] == "built" and report["not_verified"] == [] and report["parity"]["state"] == "verified"
    assert report["parity"]["evaluation"] == "onnxruntime-cuda" and report["lint"] == []


def test_nodes_that_fall_to_the_cpu_are_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [*(f"/n{i} (Mul)" for i in range(11)), "/sample (1) (GridSample)"]
    report = served(bench, monkeypatch, "cuda", cpu_nodes=nodes)
    (said,) = report["not_verified"]
    expect(said, None, 12, "CPU", "FP16", "FP32", ", ".join(nodes[:10]), 2, "precision.op_block_list=[GridSample,Mul]")
    assert "/n10" not in said


def test_tensorrts_provider_does_not_show_its_layers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    report = served(bench, monkeypatch, "tensorrt", half_layers=None)
    assert report["status"] == "built" and report["parity"]["state"] == "verified"
    precision, tf32 = report["not_verified"]
    expect(precision, None, "engine.gates.half_share_less", "trt_fp16_enable", "engine=tensorrt")
    expect(tf32, None, "TF32:", "NVIDIA_TF32_OVERRIDE=0")
