"""Which types hold which values, and what a Cast of a Cast comes to: checked against numpy, value by value."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx_ir as ir
import pytest

from truehalf.conversion.element_types import KNOWN, cast_tensor, chain_rule, has_cast, holds

NATIVE = sorted((dtype for dtype in KNOWN if dtype != ir.DataType.BFLOAT16), key=lambda dtype: dtype.value)
FLOATS = [ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE]


@pytest.mark.parametrize(
    ("wide", "narrow", "answer"),
    [
        ("FLOAT", "FLOAT16", True),
        ("FLOAT16", "FLOAT", False),
        ("FLOAT", "BFLOAT16", True),
        ("FLOAT16", "BFLOAT16", False),
        ("DOUBLE", "INT32", True),
        ("FLOAT", "INT32", False),
        ("FLOAT16", "UINT8", True),
        ("INT16", "UINT8", True),
        ("INT8", "UINT8", False),
        ("UINT64", "INT8", False),
        ("BOOL", "INT8", False),
        ("INT8", "BOOL", True),
        ("INT64", "FLOAT16", False),
    ],
)
def test_which_types_hold_which(wide: str, narrow: str, answer: bool) -> None:
    assert holds(ir.DataType[wide], ir.DataType[narrow]) is answer


def samples(dtype: ir.DataType) -> np.ndarray:
    if dtype == ir.DataType.BOOL:
        return np.array([False, True])
    native = dtype.numpy()
    if np.issubdtype(native, np.integer):
        limits = np.iinfo(native)
        powers = [2**k + d for k in range(64) for d in (-1, 0, 1)]
        values = [
            v for v in [*powers, *(-p for p in powers), 0, limits.min, limits.max] if limits.min <= v <= limits.max
        ]
        return np.array(values, native)
    with np.errstate(all="ignore"):
        finite = np.random.default_rng(0).standard_normal(500) * 10.0 ** np.random.default_rng(1).integers(-40, 39, 500)
        return np.concatenate([finite, [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65520, 2049, 2.0**-25]]).astype(
            native
        )


@pytest.mark.parametrize("s", NATIVE)
def test_widening_changes_no_value(s: ir.DataType) -> None:
    exact = [(m, t) for m, t in product(NATIVE, repeat=2) if chain_rule(s, m, t) == "widening"]
    assert exact or s in (ir.DataType.DOUBLE, ir.DataType.UINT64, ir.DataType.INT64)
    for m, t in exact:
        x = samples(s)
        with np.errstate(all="ignore"):
            if t not in (ir.DataType.BOOL, *FLOATS) and s in FLOATS:
                limits = np.iinfo(t.numpy())
                x = x[(x >= limits.min) & (x <= limits.max) & (np.abs(x) < 2.0**52)]  # what is defined
            np.testing.assert_array_equal(x.astype(m.numpy()).astype(t.numpy()), x.astype(t.numpy()), f"{s} {m} {t}")


def test_truncations_are_no_chain() -> None:
    for m, t in product(KNOWN - {*FLOATS, ir.DataType.BFLOAT16}, KNOWN):
        assert chain_rule(ir.DataType.FLOAT, m, t) is None


def test_only_floats_lose_a_rounding() -> None:
    assert chain_rule(ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.FLOAT) == "rounding"
    assert chain_rule(ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64) is None
    assert chain_rule(ir.DataType.INT64, ir.DataType.FLOAT16, ir.DataType.FLOAT) is None
    assert chain_rule(None, ir.DataType.FLOAT16, ir.DataType.FLOAT) is None


@pytest.mark.parametrize("size", [3, 1 << 19])
@pytest.mark.parametrize("target", ["FLOAT16", "BFLOAT16", "DOUBLE", "INT64"])
def test_the_cast_of_a_tensor(size: int, target: str) -> None:
    array = np.random.default_rng(0).standard_normal(size).astype(np.float32) * 100
    dtype = ir.DataType[target]
    assert has_cast(ir.tensor(array), dtype)
    result = cast_tensor(ir.tensor(array), dtype, "w")
    assert (result.dtype, result.name, result.shape) == (dtype, "w", ir.Shape([size]))
    np.testing.assert_array_equal(result.numpy(), array.astype(dtype.numpy()))


@pytest.mark.parametrize(
    ("values", "target", "answer"),
    [
        ([1.5, 127.0], "INT8", True),
        ([128.0], "INT8", False),
        ([2.0**31], "INT32", False),
        ([-(2.0**31)], "INT32", True),
        ([2.0**63], "INT64", False),
        ([-(2.0**63)], "INT64", True),
        ([np.nan], "INT64", False),
        ([np.nan], "BOOL", True),
        ([1.0], "FLOAT8E4M3FN", False),
    ],
)
def test_which_casts_are_defined(values: list[float], target: str, answer: bool) -> None:
    assert has_cast(ir.tensor(np.array(values, np.float32)), ir.DataType[target]) is answer
