"""Constants in float16: numpy's rounding, clamped at its largest number."""

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

from truehalf.conversion.rounding import LAZY_FROM, half

INF, NAN = math.inf, math.nan


def rounded(*values: float, clamps: bool = True) -> np.ndarray:
    result = half(ir.tensor(np.array(values, np.float32)), "w", clamps=clamps)
    assert result.dtype == ir.DataType.FLOAT16 and result.name == "w"
    return result.numpy()


def test_large_values_are_clamped_and_infinities_are_not() -> None:
    values = rounded(65504, 65505, -70000, 3.4e38, INF, -INF, NAN)
    np.testing.assert_array_equal(values, np.array([65504, 65504, -65504, 65504, INF, -INF, NAN], np.float16))


def test_without_a_clamp_they_overflow() -> None:
    values = rounded(65519, 65520, -3.4e38, -INF, clamps=False)
    np.testing.assert_array_equal(values, np.array([65504, INF, -INF, -INF], np.float16))


@given(arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_it_is_numpys_rounding(values: np.ndarray) -> None:
    result = half(ir.tensor(values), "w", clamps=False).numpy()
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


@pytest.fixture
def large() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((1500, 1501)).astype(np.float32)
    values[0, 0], values[-1, -1], values[1400, 7] = 1e-9, 1e5, 1e-6
    assert values.nbytes > LAZY_FROM
    return values


def expected(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -65504, 65504).astype(np.float16)


def test_all_ways_to_read_a_large_one_agree(large: np.ndarray) -> None:
    result = half(ir.tensor(np.asfortranarray(large)), "w")
    assert result.shape == ir.Shape([1500, 1501]) and result.nbytes == large.size * 2
    file = io.BytesIO()
    result.tofile(file)
    assert file.getvalue() == result.tobytes() == expected(large).tobytes()
    np.testing.assert_array_equal(np.asarray(result), expected(large))


def test_the_file_of_an_external_tensor_is_let_go(tmp_path: Path, large: np.ndarray) -> None:
    (tmp_path / "w").write_bytes(large.tobytes())
    source = ir.ExternalTensor(
        "w", 0, large.nbytes, ir.DataType.FLOAT, shape=ir.Shape(large.shape), name="w", base_dir=tmp_path
    )
    np.testing.assert_array_equal(half(source, "h").numpy(), expected(large))
    assert source.raw is None


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1)])
def test_shapes_of_no_and_of_one_element(shape: tuple[int, ...]) -> None:
    result = half(ir.tensor(np.zeros(shape, np.float32)), "w").numpy()
    assert result.shape == shape and result.dtype == np.float16
