"""The stage slim: what the configuration switches off is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxslim
import pytest

from tests.conftest import SPEC
from tests.in_process import report, run_stages
from tests.messages import expect
from tests.tracing import trace_json
from tests.truehalf.models import detectors
from tests.truehalf.slimming.test_slim import sampled_feeds, write, write_sampled
from truehalf.ir.model_file import load_model


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """artifacts/trace of a workspace."""
    folder = tmp_path / "artifacts" / "trace"
    folder.mkdir(parents=True)
    return folder


def test_stage_passes_the_file_on_without_simplify_and_repair(traced: Path, tmp_path: Path) -> None:
    source = write(traced / "model.onnx")
    (traced / "model.onnx.data").write_bytes(b"weights")
    run_stages(tmp_path, "precision=fp32", "simplify=false", "repair=none", stages=("slim",))
    found, out = report(tmp_path, "slim"), tmp_path / "artifacts/slim"
    assert found["status"] == "skipped" and found["model"]["nodes"] == 7
    expect(found["reason"], None, "simplify=false", "repair=none")
    assert (out / "model.onnx").read_bytes() == source.read_bytes()
    assert (out / "model.onnx.data").read_bytes() == b"weights"


def test_stage_repairs_without_simplify(traced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxslim, "slim", None)  # not called
    monkeypatch.setattr("stages.slim.run_samples", lambda *_: [])
    monkeypatch.setattr("stages.slim.check_feeds_of", lambda *_: sampled_feeds())
    write_sampled(traced / "model.onnx")
    (traced / "io_spec.json").write_text('{"inputs": []}')
    run_stages(tmp_path, "precision=fp32", "simplify=false", stages=("slim",))
    found = report(tmp_path, "slim")
    assert (found["simplified"], found["status"]) == (False, "done")
    assert found["repair"]["counts"]["grid_sample_gather"] == 1
    assert (found["ops_before"]["GridSample"], found["ops_after"]["GridSample"]) == (2, 1)
    assert found["parity"]["status"] == "verified"
    names = [node.name for node in load_model(tmp_path / "artifacts/slim/model.onnx").graph]
    assert {"/net/block.0/GridSample_other", "/net/block.0/Add_y"} <= {*names}


@pytest.mark.slow
def test_stage_slims_what_trace_wrote(traced: Path, tmp_path: Path) -> None:
    pictures = {"images": np.repeat(np.repeat(detectors.pictures(0, 1)["images"], 2, axis=2), 2, axis=3)}
    trace_json(
        detectors.detector("dfine"),
        pictures,
        traced / "model.onnx",
        spec=SPEC.to_json() | {"outputs": detectors.spec()["outputs"]},
    )
    run_stages(tmp_path, "model.checkpoint=null", "data.calibration_samples=2", stages=("slim",))
    parity = report(tmp_path, "slim")["parity"]
    assert parity["status"] == "verified" and parity["batch_sizes"] == [1, 3]
