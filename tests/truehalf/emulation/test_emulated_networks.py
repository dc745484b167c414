"""Whole networks: the emulation of a half module's ONNX file beside the module itself, which torch runs on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measuring.half_networks import NETWORKS, OPERATIONS, compared


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_torch_rounds_where_emulation_does(name: str, tmp_path: Path) -> None:
    """All but a few numbers are equal: FP32 sums in another order, functions approximated otherwise."""
    (row,) = compared(name, tmp_path).values()
    assert row["equal"] >= 0.99
    assert row["units_p99"] == 0
    assert row["rms"] <= 0.1 * row["half_rms"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "detector" in name else []) for name in NETWORKS]
)
def test_emulation_is_as_near_to_torch_as_addition_order_allows(name: str, tmp_path: Path) -> None:
    """Two FP16 programs that differ in the order of additions differ from each other about as from FP32."""
    for row in compared(name, tmp_path).values():
        assert row["units_p50"] <= 1
        assert row["rms"] <= 2 * row["half_rms"]
        assert 0.5 * row["half_rms"] <= row["emulated_rms"] <= 2 * row["half_rms"]
