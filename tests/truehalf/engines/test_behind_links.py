"""Engines of models that are reached through links, with files of external data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.truehalf.engines.building import build_engine
from tests.truehalf.engines.conftest import NO_GPU
from tests.truehalf.linked_models import LAYOUTS, linked
from truehalf.runtime.tensorrt import RTX


def built(model: Path, out: Path, **options: Any) -> Any:
    return build_engine(model, out, declared="fp32", profiles=[], **({"probe": NO_GPU} | options))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_compiled_one_holds_them(layout: str, tmp_path: Path) -> None:
    pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")
    probe = NO_GPU | {RTX: "1.7", "polygraphy": "0.53"}
    assert built(linked(tmp_path, layout), tmp_path / "out", backend=RTX, probe=probe)["status"] == "compiled"
