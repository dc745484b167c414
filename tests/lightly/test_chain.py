"""LT-DETR from its registered name to an FP16 file, through the whole chain, with either decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from examples.digits.scenes import scene
from tests.conftest import in_workspace, make_workspace
from truehalf.data.run_samples import TRACE_SAMPLES

# The smallest that lightly-train has, and the smallest size that is a multiple of its strides and of its decoder's.
SMALLEST = ("model.options.name=dinov2/_vittest14-ltdetr", "model.options.random=true", "model.image_size=[224,224]")
COUNTS = ("data.calibration_samples=2", "data.verification_samples=2")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_workspace(tmp_path_factory.mktemp("lightly") / "workspace")
    (folder / "pictures").mkdir()
    for index in range(TRACE_SAMPLES + 6):
        Image.fromarray(scene(index, "val").image).save(folder / "pictures" / f"{index}.png")
    return folder


@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_random_weights_through_the_whole_chain(workspace: Path, decoder: str) -> None:
    command = ["python", "-m", "pipeline", "model=lightly_train", f"decoder={decoder}", "data.folder=pictures"]
    done = in_workspace(workspace, *command, *SMALLEST, *COUNTS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def report(stage: str) -> dict[str, Any]:
        return json.loads((workspace / "reports" / f"{stage}.json").read_text())  # type: ignore[no-any-return]

    trace, final, verify = report("trace"), report("cast_cleanup")["model"], report("verify")
    assert trace["parity"]["status"] == "verified" and report("slim")["parity"]["status"] == "verified"
    assert trace["lint"]["counts"]["error"] == 0
    assert any("AGPL-3.0" in note for note in trace["notes"]) and any("random" in note for note in trace["notes"])
    assert report("fp16")["fp16_arithmetic"] > 0.8 and final["untyped_nodes"] == 0
    assert verify["nan"] == 0 and verify["inf"] == 0
    # Detections of random weights mean nothing, so of them nothing is verified, and the report says why.
    assert verify["verdict"] == "not verified" and "weights-random" in verify["not_verified"][0]
    spec = json.loads((workspace / "artifacts/trace/io_spec.json").read_text())
    assert [each["kind"] for each in spec["outputs"]] == ["logits", "boxes"] and spec["trained"] is False
