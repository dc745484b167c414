"""The stage cast_cleanup: what the configuration says of it, and fp32, which passes the file on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.in_process import report, run_stages
from tests.truehalf.conversion.test_casts_of_file import saved


def cleaned(folder: Path, *overrides: str) -> dict[str, Any]:
    (folder / "artifacts/fp16").mkdir(parents=True)
    saved(folder).rename(folder / "artifacts/fp16/model.onnx")
    run_stages(folder, *overrides, stages=("cast_cleanup",))
    return report(folder, "cast_cleanup")


@pytest.mark.parametrize(("precision", "status", "after"), [("fp16", "done", 0), ("fp32", "skipped", 2)])
def test_the_stage(tmp_path: Path, precision: str, status: str, after: int) -> None:
    found = cleaned(tmp_path, f"precision={precision}")
    assert (found["stage"], found["status"], found["casts_after"]) == ("cast_cleanup", status, after)
    files = [(tmp_path / "artifacts" / stage / "model.onnx").read_bytes() for stage in ("fp16", "cast_cleanup")]
    assert (files[0] == files[1]) is (precision == "fp32")


def test_strict_clean_up_of_the_configuration_keeps_roundings(tmp_path: Path) -> None:
    found = cleaned(tmp_path, "precision.strict_clean_up=true")
    assert (found["strict"], found["casts_after"]) == (True, 2)
