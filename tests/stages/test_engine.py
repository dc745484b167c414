"""The stage engine, in a workspace as verify leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests import in_process
from tests.configurations import composed
from tests.conftest import ROOT, SPEC
from tests.messages import expect
from truehalf.runtime.machine import probe
from truehalf.verification.chain.reference import freeze

PROFILE = "{min: [1, 3, 128, 128], opt: [1, 3, 128, 128], max: [4, 3, 128, 128]}"
OVERRIDES = (
    *("precision=fp32", "data.verification_samples=6", "engine=onnxruntime", "engine.provider=cpu"),
    *(f"engine.profiles=[{{images: {PROFILE}}}]", "engine.latency={warm_up: 1, runs: 10, rounds: 2}"),
)


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace as verify leaves it, of the embedded FP32 detector, with six samples."""
    from tests.embedded import embedded
    from truehalf.data.fitting import adversarial_samples
    from truehalf.data.run_samples import run_samples
    from truehalf.models.configuration import validated
    from truehalf.models.source import open_model, spec_of
    from truehalf.verification.chain.reference import write_reference

    root = tmp_path_factory.mktemp("detector")
    config = validated(composed(*OVERRIDES))
    for folder in (
        "artifacts/cast_cleanup",
        "artifacts/trace",
        "artifacts/reference",
        "artifacts/verify",
        "artifacts/inputs",
    ):
        (root / folder).mkdir(parents=True)
    embedded(root / "artifacts/cast_cleanup/model.onnx")
    model = open_model(config, ROOT)
    example = {"images": np.zeros((2, 3, 128, 128), np.float32)}
    spec, network = spec_of(model, example, config.trace.dynamic_axes), model.module
    (root / "artifacts/trace/io_spec.json").write_text(json.dumps(spec.to_json()))
    samples, adversarial = run_samples("verification", config, ROOT, SPEC), adversarial_samples(config, SPEC)
    reference = freeze(network, samples, spec, 6)
    write_reference(root / "artifacts/reference", reference, freeze(network, adversarial, spec, 3), 6)
    (root / "artifacts/verify/verdict.json").write_text('{"verdict": "passed"}')
    (root / "artifacts/inputs/machine.json").write_text(json.dumps(probe()))
    return root


def stage(root: Path) -> dict[str, Any]:
    in_process.run_stages(root, *OVERRIDES, stages=("engine",))
    return in_process.report(root, "engine")


@pytest.mark.slow
def test_the_stage_proves_the_embedded_detector_as_onnx_runtime_serves_it(detector: Path) -> None:
    report = stage(detector)
    assert report["status"] == "built" and report["not_verified"] == [], report.get("reason")
    parity = report["parity"]
    assert (parity["state"], parity["evaluation"], parity["samples"]) == ("verified", "onnxruntime-cpu", 6)
    assert [(row["batch"], row["state"]) for row in parity["batches"]["sizes"]] == [(1, "verified"), (4, "verified")]
    assert parity["matched_fraction"] == 1.0 and parity["adversarial"]["state"] == "verified"
    assert max(parity["max_abs_error"].values()) < 1e-3
    assert len(report["latency"]) == 2 and "engine" not in report
    assert report["nodes_by_provider"].keys() == {"CPUExecutionProvider"}
    assert str(detector) not in json.dumps(report), "a report holds no path of the machine"


@pytest.mark.slow
def test_an_engine_of_other_outputs_fails(detector: Path) -> None:
    """The reference of other weights: the engine finds what they do not."""
    with np.load(detector / "artifacts/reference/reference.npz") as stored:
        kept = dict(stored)
    wrong = kept | {"boxes": kept["boxes"] * np.float32(0.5)}
    file = detector / "artifacts/reference/reference.npz"
    try:
        np.savez(file, **wrong)
        report = stage(detector)
        assert report["status"] == "failed" and report["parity"]["state"] == "failed"
        expect(report["reasons"][0], "beyond-gate", "matched_fraction")
    finally:
        np.savez(file, **kept)


def test_a_model_that_failed_verify_gets_no_engine(tmp_path: Path) -> None:
    for folder in ("cast_cleanup", "verify"):
        (tmp_path / "artifacts" / folder).mkdir(parents=True)
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] images) => (float[N,3,8,8] y) { y = Relu(images) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "artifacts/cast_cleanup/model.onnx")
    (tmp_path / "artifacts/verify/verdict.json").write_text('{"verdict": "failed"}')
    report = stage(tmp_path)
    assert report["status"] == "refused" and "engine.build_unverified=true" in report["reason"]
    assert [file.name for file in (tmp_path / "artifacts/engine").iterdir()] == ["REFUSED"]
