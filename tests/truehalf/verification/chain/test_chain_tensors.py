"""A chain of tensors whose reference masks values with -inf."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.truehalf.verification.small_detector import OPTIONS
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec, OutputSpec
from truehalf.verification.chain import chain
from truehalf.verification.chain.compare import compare
from truehalf.verification.chain.reference import freeze
from truehalf.verification.chain.stage import Judge

SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["batch", 3]}],
        "outputs": [{"name": "y"}],
        "class_names": [],
        "trained": True,
    }
)
MADE = chain.Making(batch_sizes=(1, 4))
X = np.random.default_rng(1).uniform(0, 1, (12, 3)).astype(np.float32)


def states(report: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["state"] for check in report["checks"]}


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.where(x > 0.3, x, -torch.inf),)


@pytest.mark.parametrize(("limit", "verdict"), [(0.3, "passed"), (0.5, "failed")])
def test_masked_values_of_the_reference_are_values(limit: float, verdict: str, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
    masked (float[N,3] x) => (float[N,3] y) <float limit = {LIMIT}, float never = {-inf}> {
        above = Greater (x, limit)  y = Where (above, x, never)
    }"""
    for name, value in (("fp32", 0.3), ("final", limit)):
        onnx.save(onnx.parser.parse_model(text.replace("LIMIT", str(value))), tmp_path / f"{name}.onnx")
    samples = [Sample(str(number), {"x": row}, None, None) for number, row in enumerate(X)]
    spec = replace(SPEC, outputs=(OutputSpec("y"),))
    reference = freeze(Masked(), samples, spec, 5)
    assert np.isinf(reference.outputs["y"]).any()
    files = {"slim": tmp_path / "fp32.onnx", "cast_cleanup": tmp_path / "final.onnx"}
    report = chain.verify(Judge(reference, reference, OPTIONS), files, tmp_path / "out", MADE).to_json()
    assert report["verdict"] == verdict, report["reasons"]
    held = {check: states(report)[check] for check in ("tensors", "batch", "adversarial")}
    of_outputs = "verified" if verdict == "passed" else "failed"
    assert held == {"tensors": of_outputs, "batch": "verified", "adversarial": of_outputs}
    assert compare(*files.values(), {"x": X}, locate=False).verdict == verdict
