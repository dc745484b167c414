"""Every emulated operator against onnx.reference: how far from the FP16 number that one rounding gives.

The bounds are those of benchmarks/emulation_nodes.py, whose table is committed; here they are measured anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.measuring.emulated_operators import (
    FUNCTIONS,
    RESULTS,
    SEVERAL,
    Table,
    as_rows,
    distances,
    exhaustive,
    measured,
    of_largest,
)
from tests.onnx_backend import SAMPLE_AND_WHOLE

# fmt: off
# FP16 defines these to the bit, and numpy.float16 has the same bits.
TO_THE_BIT = frozenset({
    "Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "Neg", "Abs", "Max", "Min", "Relu", "Ceil", "Floor", "Round",
    "Sign", "Clip", "Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "Reshape", "ScatterElements", "ScatterND", "Slice", "Split", "Squeeze", "Tile", "TopK", "Transpose",
    "Unsqueeze", "Where", "MaxPool", "ReduceMax", "ReduceMin",
})
# ONNX Runtime's FP32 kernels are approximations here, off by more than FP32's last place near 0 or far out.
WIDER = {"Gelu": 3, "Sigmoid": 2}
# fmt: on
UNITS = 1  # everything else: an FP32 result just beyond the middle of two FP16 numbers


def check(operators: Mapping[str, Mapping[str, Any]], all_numbers: Mapping[str, Mapping[str, Any]]) -> None:
    for operator, row in operators.items():
        if operator == SEVERAL:  # nodes that numpy rounds inside; emulation rounds once for each
            assert row["steps"]["of_largest"] <= 4
            assert row["steps"]["apart"] == 0
            continue
        if "once" in row:
            assert row["once"]["apart"] == 0, operator
            assert row["once"]["max_ulp"] <= (0 if operator in TO_THE_BIT else UNITS), operator
            assert row["once"]["equal"] >= 0.92 * row["once"]["elements"], operator
        if operator in TO_THE_BIT:
            assert row["steps"]["max_ulp"] == row["steps"]["apart"] == 0, operator
    for operator, row in all_numbers.items():
        assert row["once"]["apart"] == 0, operator
        assert row["once"]["max_ulp"] <= (0 if operator in TO_THE_BIT else WIDER.get(operator, UNITS)), operator
        assert row["once"]["equal"] >= 0.99 * row["once"]["elements"], operator


def test_the_committed_table_keeps_the_bounds() -> None:
    table = json.loads(RESULTS.read_text())
    check(table["operators"], table["all_numbers"])
    assert set(table["all_numbers"]) == set(FUNCTIONS)
    assert set(table["operators"]) >= TO_THE_BIT - {"Min"}
    assert sum(table["left_out"].values()) + _compared(table) >= table["cases"]


def _compared(table: Mapping[str, Any]) -> int:
    return sum(max(part["cases"] for part in row.values()) for row in table["operators"].values())


@pytest.mark.parametrize("whole", SAMPLE_AND_WHOLE)
def test_backend_tests_keep_the_bounds(whole: bool) -> None:
    rows = as_rows(measured(whole=whole), {})
    check(rows["operators"], {})
    assert _compared(rows) > (850 if whole else 106)  # the losses, and others that no backend runs in FP16, stay FP32


def test_functions_of_every_number_keep_the_bounds() -> None:
    check({}, as_rows(Table(), exhaustive())["all_numbers"])


def test_distances() -> None:
    a = np.float16([1, -0.0, 65504, np.inf, np.nan, np.nan, 1, 2**-24])
    b = np.float16([1 + 2**-10, 0, np.inf, -np.inf, np.nan, 1, np.nan, -(2**-24)])
    found, apart = distances(a, b)
    assert found.tolist() == [1, 0, 1, 2 * 0x7C00, 0, 2]
    assert apart == 2
    assert of_largest(np.float16([1, 3, np.inf]), np.float16([1, 2, 5])) == 2**10 / 2
