"""TensorRT for RTX on any GPU, also on one that it runs nothing on, as Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.test_tensorrt import convolution
from tests.measuring.attention_graphs import compiled as engine_of
from tests.tiers import compiled

pytestmark = [pytest.mark.gpu, compiled]


def test_it_compiles_by_the_facts_that_it_gives_without_one(tmp_path: Path) -> None:
    shapes = {"images": {kind: [n, 3, 16, 16] for kind, n in (("min", 1), ("opt", 2), ("max", 8))}}
    report = engine_of(convolution(tmp_path, "fp16"), tmp_path, [shapes])
    assert report.compiled is not None and report.compiled["half_arithmetic"] == 1
    assert (tmp_path / "engine/model.rtx.engine").stat().st_size > 0
