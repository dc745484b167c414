"""Engines that run, by a stand-in for execution alone: what a wrong, crashing or misshapen one is said to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.measuring.attention_graphs import NO_GPU
from tests.messages import expect
from tests.tiers import compiled
from tests.truehalf.engines.building import build_engine
from tests.truehalf.verification.held import COUNT, Rows, evidence, outputs_of
from truehalf.config.engine import KINDS
from truehalf.engines.outputs import compare_engine, feeds_at, points_of
from truehalf.errors import StageError
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime import tensorrt
from truehalf.runtime.tensorrt import RTX
from truehalf.verification.chain.stage import Judge

PROFILES = [{"x": {"min": [1, 1], "opt": [2, 1], "max": [4, 1]}}]
MACHINE: Any = NO_GPU | {"gpus": [{"name": "NVIDIA T4", "compute_capability": "7.5"}]}
LATENCY = {"warm_up": 1, "runs": 10, "rounds": 2}


def model(folder: Path, text: str = "") -> Path:
    text = (
        text
        or """g (float16["n",1] x) => (float16["n",2,2] logits, float16["n",2,4] boxes)
        <float16[2,2] a = {1, 1, 1, 1}, float16[2,4] b = {1, 1, 1, 1, 1, 1, 1, 1}, int64[1] one = {1}> {
        ["/act/Relu"] r = Relu(x)  ["u"] u = Unsqueeze(r, one)  ["l"] logits = Mul(u, a)  ["k"] boxes = Mul(u, b) }"""
    )
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'), folder / "model.onnx")
    return folder / "model.onnx"


@dataclass
class Answering:
    """An engine that answers `answer` of its input; notes the samples of each run."""

    answer: Callable[[np.ndarray], Rows] = outputs_of
    runs: list[int] = field(default_factory=list)
    provider: str = RTX
    cpu_nodes: None = None
    not_split: dict[str, str] = field(default_factory=dict)
    device_memory_mb: float | None = None
    timed: list[Any] = field(default_factory=list)
    fails_at: int = 0

    def run(self, feeds: Any) -> Rows:
        self.runs.append(len(feeds["x"]))
        return self.answer(feeds["x"])

    def prepared(self, feeds: Any) -> Callable[[], object]:
        if len(feeds["x"]) == self.fails_at:
            raise StageError("runtime-refuses", "out of memory")
        self.timed.append(feeds["x"].ravel().tolist())
        return lambda: None

    def close(self) -> None: ...


def held(folder: Path, answer: Callable[[np.ndarray], Rows] = outputs_of, **options: Any) -> Any:
    file = ModelFile(model(folder))
    return compare_engine(Answering(answer), file, PROFILES, evidence(**options), "tensorrt")


def test_an_engine_that_finds_the_same_is_verified_on_all_samples_and_at_every_batch(tmp_path: Path) -> None:
    engine = Answering()
    parity = compare_engine(engine, ModelFile(model(tmp_path)), PROFILES, evidence(), "tensorrt")
    assert (parity["state"], parity["reason"]) == ("verified", "")
    rows: Any = parity["batches"]["sizes"]
    assert [(row["batch"], row["state"]) for row in rows] == [(size, "verified") for size in (1, 2, 4)]
    assert parity["samples"] == COUNT and parity["matched_fraction"] == 1.0
    assert {gate["gate"] for gate in parity["gates"]} >= {"matched_fraction_min", "nonfinite_max"}
    assert parity["adversarial"]["state"] == "verified" and engine.runs[:3] == [2, 2, 1], "all samples at opt"


def test_an_engine_of_other_classes_at_one_batch_fails_there(tmp_path: Path) -> None:
    def wrong_at_four(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        if len(x) == 4:
            outputs["logits"] = outputs["logits"][:, :, ::-1].copy()
        return outputs

    parity = held(tmp_path, wrong_at_four)
    assert parity["state"] == "failed"
    assert [row["state"] for row in parity["batches"]["sizes"]] == ["verified", "verified", "failed"]
    expect(parity["reason"], None, "batch 4", "matched_fraction")
    assert parity["matched_fraction"] == 1.0, "the headline is that of opt"


def test_an_engine_that_ignores_its_input_is_said_to(tmp_path: Path) -> None:
    parity = held(tmp_path, lambda x: outputs_of(np.ones_like(x)))
    assert parity["state"] == "failed"
    expect(parity["reason"], "input-ignored", "'boxes'", "'logits'")


def test_nan_fails(tmp_path: Path) -> None:
    def broken(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["boxes"][-1, 1, 3] = np.nan
        return outputs

    parity = held(tmp_path, broken)
    assert parity["state"] == "failed" and parity["nonfinite"] > 0
    expect(parity["reason"], None, "nonfinite", parity["nonfinite"])


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (lambda x: {"logits": outputs_of(x)["logits"]}, ["boxes"]),
        (lambda x: {n: v[:, :1] for n, v in outputs_of(x).items()}, ["[2, 2, 2]", "[2, 1, 2]"]),
    ],
)
def test_outputs_of_other_names_and_shapes_fail(
    answer: Callable[[np.ndarray], Rows], facts: list[str], tmp_path: Path
) -> None:
    parity = held(tmp_path, answer)
    assert parity["state"] == "failed"
    expect(parity["reason"], None, *facts)


def test_an_engine_that_stops_is_failed_and_a_defect_of_truehalf_is_not(tmp_path: Path) -> None:
    def stops(error: Exception) -> Callable[[np.ndarray], Rows]:
        def answer(x: np.ndarray) -> Rows:
            raise error

        return answer

    parity = held(tmp_path, stops(StageError("too-large", "no memory on the GPU")))
    assert parity["state"] == "failed"
    expect(parity["reason"], "too-large", "no memory on the GPU")
    with pytest.raises(KeyError):
        held(tmp_path, stops(KeyError("ours")))
    parity = held(tmp_path, stops(StageError("out-of-range", "in no optimization profile")))
    assert parity["state"] == "not verified", "samples that no profile takes say nothing of the engine"


def test_feeds_are_of_the_inputs_types_and_shapes(tmp_path: Path) -> None:
    text = """g (float16["N",1] x, float["N",3] other, int32["N"] kind) => (float16["N",1] y) { y = Relu(x) }"""
    graph = ModelFile(model(tmp_path, text)).model
    shapes = {"x": [2, 1], "other": [2, 3], "kind": [2]}
    feeds = feeds_at(graph, shapes, evidence().reference.samples[:2])
    assert feeds["x"].dtype == np.float16 and feeds["x"].ravel().tolist() == [0, 1]
    assert feeds["kind"].tolist() == [0, 0] and feeds["other"].shape == (2, 3)
    assert 0 <= feeds["other"].min() < feeds["other"].max() <= 1
    assert np.array_equal(feeds_at(graph, shapes)["x"], feeds_at(graph, shapes)["x"])


# --- from the build on ------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """A machine with a GPU: TensorRT for RTX builds as it does without one, and `engine` answers for its engine."""

    folder: Path
    engine: Answering = field(default_factory=Answering)

    def built(self, reference: Judge | str = "none was given", **options: Any) -> dict[str, Any]:
        return build_engine(
            model(self.folder),
            self.folder / "out",
            profiles=PROFILES,
            declared="fp16",
            evidence=lambda: reference,
            probe=MACHINE,
            **({"latency": LATENCY, "timing_cache": None, "backend": RTX} | options),
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)

    def opened(path: Path, module: str, options: Any, profiles: Any) -> Answering:
        assert path.stat().st_size > 0 and profiles == PROFILES
        return bench.engine

    monkeypatch.setattr(tensorrt, "EngineRunner", opened)
    return bench


@compiled
def test_an_engine_that_is_half_and_finds_the_same_is_built_and_verified(bench: Bench) -> None:
    report = bench.built(evidence())
    assert report["status"] == "built" and report["not_verified"] == [] and "reason" not in report, report
    assert report["compiled"]["half_arithmetic"] == 1 and report["layer_table"] and report["gpu"] == "NVIDIA T4"
    assert report["parity"]["state"] == "verified" and report["parity"]["evaluation"] == RTX
    assert [(row["points"], row["samples"]) for row in report["latency"]] == [(["min"], 1), (["opt"], 2), (["max"], 4)]
    assert [gate["state"] for gate in report["gates"]] == ["verified"] and report["engine"] == report["plan"]["engine"]
    assert bench.engine.timed == [[0.0], [0.0, 1.0], [0.0, 1.0, 2.0, 3.0]], "samples are timed where they fit"


@compiled
def test_an_engine_that_finds_something_else_is_failed_and_kept(bench: Bench) -> None:
    bench.engine.answer = lambda x: {name: value * np.nan for name, value in outputs_of(x).items()}
    report = bench.built(evidence())
    assert report["status"] == "failed" and (bench.folder / "out/model.engine").exists()
    (reason,) = report["reasons"]
    expect(reason, None, "nonfinite")


@compiled
def test_without_a_reference_nothing_is_verified(bench: Bench) -> None:
    report = bench.built()
    assert report["status"] == "built" and report["parity"]["state"] == "not verified"
    (said,) = report["not_verified"]
    expect(said, None, "none was given")
    assert [len(row) for row in bench.engine.timed] == [1, 2, 4]


@compiled
def test_a_point_that_cannot_be_timed_loses_neither_engine_nor_the_other_points(bench: Bench) -> None:
    bench.engine.fails_at = 4
    report = bench.built(evidence())
    assert report["status"] == "built" and len(report["latency"]) == 2
    (item,) = report["not_verified"]
    expect(item, "runtime-refuses", "latency", "profile 0", "max", "out of memory")


@compiled
def test_an_engine_that_does_not_load_is_failed_and_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise StageError("runtime-refuses", "no execution context")

    monkeypatch.setattr(tensorrt, "EngineRunner", refuses)
    report = bench.built(evidence())
    assert (report["status"], report["parity"]["state"]) == ("failed", "failed") and not report["latency"]
    expect(report["reason"], "runtime-refuses", "no execution context")
    assert (bench.folder / "out/model.engine").exists()


@compiled
def test_a_file_that_is_refused_where_it_is_built_fails(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (float["n",1] x) => (int64[2,"m"] y) { ["/a"] h = Cast<to = 10>(x) ["/head/r"] r = Relu(h)
        ["/head/act/NonZero"] y = NonZero(r) }"""
    monkeypatch.setattr("tests.truehalf.engines.test_outputs.model", lambda folder, kept=model: kept(folder, text))
    report = bench.built(evidence())
    assert report["status"] == "failed"
    expect(report["reason"], "not-supported", "/head/act/NonZero: of the module head.act", "data-dependent-size:")


def test_each_point_is_there_once_in_the_order_of_the_profiles() -> None:
    profiles: list[Any] = [
        {"x": {"min": [1, 3], "opt": [1, 3], "max": [8, 3]}},
        {"x": {kind: [2, 3] for kind in KINDS}},
    ]
    assert [(point["profile"], point["points"], point["shapes"]["x"]) for point in points_of(profiles)] == [
        (0, ["min", "opt"], [1, 3]),
        (0, ["max"], [8, 3]),
        (1, ["min", "opt", "max"], [2, 3]),
    ]
    assert [point["points"] for point in points_of([])] == [["min", "opt", "max"]]
