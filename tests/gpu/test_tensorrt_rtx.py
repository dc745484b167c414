"""TensorRT for RTX on any GPU, also on one that it runs nothing on, as Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.test_tensorrt import convolution, plan_of
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.versions import RTX

pytest.importorskip(RTX, reason="TensorRT for RTX is not installed")
pytestmark = pytest.mark.gpu


def test_it_compiles_by_the_facts_that_it_gives_without_one(tmp_path: Path) -> None:
    facts = build(plan_of(convolution(tmp_path, "fp16")), tmp_path, module=RTX, compiled=True)
    assert facts["half_layers"] and facts["gpu"] and (tmp_path / "model.engine").stat().st_size > 0
