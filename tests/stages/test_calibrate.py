"""The stage calibrate warns of samples that are noise."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SPEC
from tests.in_process import report, run_stages
from tests.truehalf.calibration.test_report import write
from truehalf.data.fitting import WARNING
from truehalf.files import write_json


def test_calibration_on_noise_says_so(tmp_path: Path) -> None:
    """And only then: real samples are no reason to warn."""
    (tmp_path / "artifacts/slim").mkdir(parents=True)
    write(tmp_path / "artifacts/slim/model.onnx", "g (float[N,3,128,128] images) => (float[M] y) { y = Abs(images) }")
    write_json(tmp_path / "artifacts/trace/io_spec.json", SPEC.to_json())
    said = {}
    for source in ("random", "digits"):
        told = (f"data={source}", "data.calibration_samples=2", "model.checkpoint=null")
        run_stages(tmp_path, *told, stages=("inputs", "calibrate"))
        said[source] = report(tmp_path, "calibrate")["warnings"]
    assert said == {"random": [WARNING], "digits": []}
