"""Constants in float16: numpy's rounding, and every loss counted once."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from truehalf.conversion import rounding
from truehalf.conversion.rounding import Losses, half

INF, NAN = math.inf, math.nan
LEAST = 2.0**-24  # the smallest subnormal
ZERO = {"rounded": 0, "underflowed": 0, "subnormal": 0, "clamped": 0, "overflowed": 0}


def rounded(*values: float, **options: float | None) -> tuple[np.ndarray, dict[str, int]]:
    losses = Losses()
    result = half(ir.tensor(np.array(values, np.float32)), "w", losses, **options)
    assert result.dtype == ir.DataType.FLOAT16 and result.name == "w"
    return result.numpy(), losses.as_dict()


def test_small_values_go_to_the_nearer_of_zero_and_the_least_subnormal_and_keep_their_sign() -> None:
    values, losses = rounded(0.0, -0.0, LEAST / 2, -LEAST / 2, LEAST * 0.51, -LEAST * 0.51, -1e-9, -LEAST, LEAST * 1.5)
    np.testing.assert_array_equal(values, np.array([0, 0, 0, 0, LEAST, -LEAST, 0, -LEAST, 2 * LEAST], np.float16))
    assert list(np.signbit(values)) == [False, True, False, True, False, True, True, True, False]
    assert losses == ZERO | {"rounded": 9, "underflowed": 3, "subnormal": 4}


def test_large_values_are_clamped_and_infinities_are_not() -> None:
    values, losses = rounded(65504, 65505, -70000, 3.4e38, INF, -INF, NAN)
    np.testing.assert_array_equal(values, np.array([65504, 65504, -65504, 65504, INF, -INF, NAN], np.float16))
    assert losses == ZERO | {"rounded": 7, "clamped": 3}


def test_without_a_clamp_they_overflow() -> None:
    values, losses = rounded(65519, 65520, -3.4e38, -INF, clamp=None)
    np.testing.assert_array_equal(values, np.array([65504, INF, -INF, -INF], np.float16))
    assert losses == ZERO | {"rounded": 4, "overflowed": 2}


def test_a_tighter_clamp() -> None:
    values, losses = rounded(32000, -32001, INF, 5, clamp=32000.0)
    np.testing.assert_array_equal(values, np.array([32000, -32000, INF, 5], np.float16))
    assert losses == ZERO | {"rounded": 4, "clamped": 1}


@given(arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_it_is_numpys_rounding(values: np.ndarray) -> None:
    losses = Losses()
    result = half(ir.tensor(values), "w", losses, clamp=None).numpy()
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
    assert losses.rounded == values.size
    assert losses.underflowed == np.count_nonzero((expected == 0) & (values != 0))
    assert losses.overflowed == np.count_nonzero(np.isinf(expected) & np.isfinite(values))
    assert losses.subnormal == np.count_nonzero((expected != 0) & (np.abs(expected) < 2.0**-14))


@pytest.fixture
def large() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((1500, 1501)).astype(np.float32)
    values[0, 0], values[-1, -1], values[1400, 7] = 1e-9, 1e5, 1e-6
    assert values.nbytes > rounding._LAZY_FROM
    return values


def expected(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -65504, 65504).astype(np.float16)


def test_a_large_tensor_is_counted_once_however_often_it_is_read(large: np.ndarray) -> None:
    losses = Losses()
    result = half(ir.tensor(large), "w", losses)
    assert losses.rounded == 0 and result.shape == ir.Shape([1500, 1501]) and result.nbytes == large.size * 2
    for _ in range(2):
        np.testing.assert_array_equal(result.numpy(), expected(large))
        assert losses.rounded == large.size
    assert (losses.underflowed, losses.clamped) == (1, 1)


def test_a_large_tensor_that_nobody_reads_is_counted_at_the_end(large: np.ndarray) -> None:
    losses = Losses()
    half(ir.tensor(large), "w", losses)
    assert losses.as_dict()["rounded"] == large.size == losses.as_dict()["rounded"]


def test_all_ways_to_read_it_agree(large: np.ndarray) -> None:
    result = half(ir.tensor(np.asfortranarray(large)), "w", Losses())
    file = io.BytesIO()
    result.tofile(file)
    assert file.getvalue() == result.tobytes() == expected(large).tobytes()
    np.testing.assert_array_equal(np.asarray(result), expected(large))


def test_the_file_of_an_external_tensor_is_let_go(tmp_path: Path, large: np.ndarray) -> None:
    (tmp_path / "w").write_bytes(large.tobytes())
    source = ir.ExternalTensor(
        "w", 0, large.nbytes, ir.DataType.FLOAT, shape=ir.Shape(large.shape), name="w", base_dir=tmp_path
    )
    np.testing.assert_array_equal(half(source, "h", Losses()).numpy(), expected(large))
    assert source.raw is None


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1)])
def test_shapes_of_no_and_of_one_element(shape: tuple[int, ...]) -> None:
    result = half(ir.tensor(np.zeros(shape, np.float32)), "w", Losses()).numpy()
    assert result.shape == shape and result.dtype == np.float16
