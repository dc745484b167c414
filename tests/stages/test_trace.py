"""trace: the file says what the spec says and computes what torch computes, or the stage ends with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from conf.schema import REPAIR_PASSES
from stages.graph.lint import RULES
from stages.io import Stage, StageError
from stages.models.source import SPEC_KEY
from stages.onnx_files import load_model
from stages.ort.session import Session
from stages.trace import MENDED_BY, run, trace
from tests.conftest import write_params
from tests.stages.models import detectors

SPEC: dict[str, Any] = {
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 3]}],
    "trained": True,
}


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


class Branch(Head):
    """Tracing keeps the branch that the example takes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) if x.sum() > 0 else -self.fc(x)


def feeds(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array([[value, 1, 2, 3] for value in values], np.float32)}


def traced(module: torch.nn.Module, path: Path, spec: dict[str, Any] = SPEC, **options: Any) -> dict[str, Any]:
    checks = options.pop("check_feeds", [feeds(5, 6, 7), feeds(8)])
    return trace(module, feeds(1, 2), path, spec=spec, check_feeds=checks, **options)


def test_report_says_what_was_compared(tmp_path: Path) -> None:
    report = traced(Head(), tmp_path / "m.onnx")
    parity = report["parity"]
    assert (report["exporter"], report["opset"]) == ("torchscript", 17)
    assert report["parameters"] == 15
    assert parity["status"] == "verified"
    assert (parity["samples"], parity["batch_sizes"], parity["share"]) == (4, [1, 3], 1.0)
    assert parity["provider"] == "CPUExecutionProvider"
    assert 0 <= parity["max_abs"]["y"] < 1e-5
    assert report["model"]["ops"] == {"Gemm": 1, "Relu": 1}
    assert report["model"]["untyped_nodes"] == 0


def test_file_carries_the_spec_and_all_types(tmp_path: Path) -> None:
    traced(Head(), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    assert json.loads(model.metadata_props[SPEC_KEY]) == SPEC
    assert (tmp_path / "io_spec.json").read_text().strip() == model.metadata_props[SPEC_KEY]
    assert [str(model.graph.inputs[0].shape), str(model.graph.outputs[0].shape)] == ["[n,4]", "[n,3]"]
    assert all(value.dtype is not None for node in model.graph for value in node.outputs)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["io_spec.json", "m.onnx"]


def test_same_module_gives_the_same_bytes(tmp_path: Path) -> None:
    module = Head()
    for name in ("a.onnx", "b.onnx"):
        traced(module, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_trace_that_lost_a_branch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"the last good file")
    with pytest.raises(StageError, match=r"torch and ONNX Runtime agree on 75\.00% of the values, expected 99\.9%"):
        traced(Branch(), tmp_path / "m.onnx", check_feeds=[feeds(5, 6, 7), feeds(-8)])
    assert (tmp_path / "m.onnx").read_bytes() == b"the last good file"
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_untrained_trace_that_differs_is_not_verified(tmp_path: Path) -> None:
    report = traced(Branch(), tmp_path / "m.onnx", SPEC | {"trained": False}, check_feeds=[feeds(-8)])
    assert report["parity"]["status"] == "not verified"
    assert "agree on 0.00% of the values" in report["parity"]["reason"]


def test_without_samples_nothing_is_verified(tmp_path: Path) -> None:
    parity = traced(Head(), tmp_path / "m.onnx", check_feeds=[])["parity"]
    assert parity == {"status": "not verified", "reason": "no samples were given to compare on"}


@pytest.mark.parametrize("trained", [True, False])
def test_outputs_that_are_not_finite_are_refused(trained: bool, tmp_path: Path) -> None:
    module = Head()
    torch.nn.init.constant_(module.fc.weight, float("inf"))
    with pytest.raises(StageError, match="NaN or Inf values from torch"):
        traced(module, tmp_path / "m.onnx", SPEC | {"trained": trained})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "z", "shape": ["n", 2]}, r"'z': expected shape \['n', 2\], the exported file has \['\?', 3\]"),
        ({"dtype": "float16"}, "'y': expected float16, the exported file has float32"),
    ],
)
def test_file_that_contradicts_the_spec_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    spec = SPEC | {"outputs": [SPEC["outputs"][0] | changes]}
    with pytest.raises(StageError, match=message):
        traced(Head(), tmp_path / "m.onnx", spec)
    assert not (tmp_path / "m.onnx").exists()


def test_outputs_that_the_spec_does_not_know_are_refused(tmp_path: Path) -> None:
    class Two(Head):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x), x  # type: ignore[return-value]

    with pytest.raises(StageError, match="expected outputs y, the exported file has y, "):
        traced(Two(), tmp_path / "m.onnx")


def test_samples_of_other_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="the spec has inputs x, the samples have pixels"):
        trace(Head(), {"pixels": feeds(1)["x"]}, tmp_path / "m.onnx", spec=SPEC)


@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_detector_keeps_scopes_and_dynamic_batch(decoder: str, tmp_path: Path) -> None:
    report = trace(
        detectors.detector(decoder),
        detectors.pictures(0, 1),
        tmp_path / "m.onnx",
        spec=detectors.spec(),
        check_feeds=[detectors.pictures(2, 3, 4), detectors.pictures(5)],
    )
    assert report["parity"]["matched_queries"] == 1.0
    assert report["model"]["untyped_nodes"] == 0
    assert report["model"]["ops"]["LayerNormalization"] > 10
    names = {node.name for node in load_model(tmp_path / "m.onnx").graph}
    assert any(name.startswith("/network/model/decoder/layers.1/encoder_attn/") for name in names)
    logits = Session(tmp_path / "m.onnx").run(detectors.pictures(6, 7, 8, 9, 10))["logits"]
    assert logits.shape == (5, detectors.QUERIES, 10)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_detector_by_dynamo_computes_the_same(decoder: str, tmp_path: Path) -> None:
    module = detectors.detector(decoder)
    report = trace(
        module,
        detectors.pictures(0, 1),
        tmp_path / "m.onnx",
        spec=detectors.spec(),
        exporter="dynamo",
        opset=18,
        check_feeds=[detectors.pictures(2, 3, 4), detectors.pictures(5)],
    )
    assert report["parity"]["matched_queries"] == 1.0
    assert report["model"]["untyped_nodes"] == 0
    names = {node.name for node in load_model(tmp_path / "m.onnx").graph}
    assert any(name.startswith("/network/model/decoder/layers.1/encoder_attn/") for name in names)
    with torch.no_grad():
        module(torch.from_numpy(detectors.pictures(6)["images"]))  # torch.export left nothing of itself behind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "batches"),
    [([], [1, 3]), (["trace.input_shape=[3,3,128,128]", "experiment=overflow"], [1, 2])],
    ids=["default", "overflow"],
)
def test_stage_traces_the_configured_model(overrides: list[str], batches: list[int], tmp_path: Path) -> None:
    write_params(tmp_path, "model.checkpoint=null", *overrides)
    stage = Stage("trace", tmp_path)
    report = run(stage)
    assert report["parity"]["batch_sizes"] == batches
    assert report["parity"]["matched_queries"] == 1.0
    assert sorted(file.name for file in stage.out().iterdir()) == ["io_spec.json", "model.onnx"]
    spec = json.loads((stage.out() / "io_spec.json").read_text())
    assert spec["trained"] is False


class Sampled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = x[:, None, :2, None].expand(-1, 2, 2, 2)
        picture = x[:, None, None, :].expand(-1, 1, 3, 4)
        sampled = torch.nn.functional.grid_sample(picture, grid * 0.1, align_corners=False)
        return sampled.flatten(1)[:, :3]


def test_report_says_what_lint_found(tmp_path: Path) -> None:
    assert traced(Head(), tmp_path / "m.onnx")["lint"]["counts"] == {"error": 0, "warning": 0, "info": 0}
    found = traced(Sampled(), tmp_path / "m.onnx", lint_ignore=["float64"])["lint"]
    assert found["rules"] == {"grid-sample": 1} and found["first"][0]["node"] == "/GridSample"
    assert found["ignored"] == {"float64": 0}


def test_lint_ends_the_stage_where_it_is_told_to(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"lint\.fail_on is warning") as caught:
        traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning")
    assert "warning grid-sample (1): " in str(caught.value) and "First at /GridSample" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning", lint_ignore=["grid-sample"])
    traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="error")


def test_what_repair_is_there_to_mend_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    report = traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning", repair=["grid_sample_gather"])
    assert report["lint"]["rules"] == {"grid-sample": 1}
    with pytest.raises(StageError, match=r"lint\.fail_on is warning"):
        traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning", repair=["allowzero"])


def test_rules_are_mended_by_passes_that_there_are() -> None:
    assert set(MENDED_BY) <= set(RULES) and set(MENDED_BY.values()) <= set(REPAIR_PASSES)


class Baked(Head):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * scale.item()


def test_an_input_that_python_read_is_explained(tmp_path: Path) -> None:
    spec = SPEC | {"inputs": [*SPEC["inputs"], {"name": "scale", "dtype": "float32", "shape": [1]}]}
    example = feeds(1, 2) | {"scale": np.ones(1, np.float32)}
    with pytest.raises(StageError, match="baked-item"):
        trace(Baked(), example, tmp_path / "m.onnx", spec=spec)
