from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from tests.truehalf.models.refusing import in_order
from truehalf.exporting.torch_ops import masked_assign, where


def test_where_equals_torch_exactly() -> None:
    x, y = 1e30 * torch.randn(4, 5), torch.randn(5)
    condition = x > 0
    assert torch.equal(where(condition, x, y), torch.where(condition, x, y))
    assert torch.equal(where(condition, x, 0.25), torch.where(condition, x, 0.25))
    assert torch.equal(where(condition[:, :1], x, y), torch.where(condition[:, :1], x, y))


@pytest.mark.parametrize("dtypes", [(torch.int64, torch.int64), (torch.int32, torch.float32), (torch.half, torch.half)])
def test_where_promotes_as_torch_does(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = torch.tensor([1, 2, 3]).to(dtypes[0]), torch.tensor([7, 8, 9]).to(dtypes[1])
    expected = torch.where(x > 1, x, y)
    assert where(x > 1, x, y).dtype == expected.dtype
    assert torch.equal(where(x > 1, x, y), expected)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_branches_that_are_not_finite_are_refused(bad: float) -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([bad, 2.0])
    with raises(None, "where", "other", "0 * inf", "NaN", error=ValueError):
        where(torch.tensor([True, False]), x, y)
    with raises(None, "where", "input", "0 * inf", "NaN", error=ValueError):
        where(torch.tensor([True, False]), bad, y)


def test_conditions_and_booleans_are_refused() -> None:
    with raises(None, "where", "condition", "bool", "torch.float32", error=TypeError):
        where(torch.ones(2), torch.ones(2), 0.0)
    with raises(None, "where", "bool", "bitwise_and", "bitwise_or", "bitwise_not", error=TypeError):
        where(torch.tensor([True]), torch.tensor([True]), torch.tensor([False]))


@pytest.mark.parametrize("mask", [[True, False, True], [False, False, False], [True, True, True]])
def test_masked_assign_is_assignment(mask: list[bool]) -> None:
    x, value, given = torch.randn(3, 4), torch.randn(3, 4), torch.tensor(mask)
    for new in (0.5, value):
        expected = x.clone()
        expected[given] = new if isinstance(new, float) else new[given]
        assert torch.equal(masked_assign(x, given, new), expected)
    whole = x > 0
    expected = x.clone()
    expected[whole] = -1.0
    assert torch.equal(masked_assign(x, whole, -1.0), expected)


def test_masked_assign_keeps_what_is_not_masked_exactly() -> None:
    """Integers beyond 2**24 have no float32, and the value's type is not x's."""
    x, mask = torch.tensor([16777217, 5, 2**62 + 1]), torch.tensor([False, True, False])
    for value in (2.5, torch.tensor(2.5), torch.tensor([2.5, 2.5, 2.5])):
        assert masked_assign(x, mask, value).tolist() == [16777217, 2, 2**62 + 1]
    half = torch.tensor([0.1, 7.0], dtype=torch.half)
    assert torch.equal(masked_assign(half, mask[:2], 1 / 3), torch.tensor([0.1, 1 / 3], dtype=torch.half))
    wide = torch.tensor([0.1, 7.0], dtype=torch.double)
    assert masked_assign(wide, mask[:2], 1.5).tolist() == [0.1, 1.5]


def test_masked_assign_refuses_by_its_own_name() -> None:
    x = torch.ones(2)
    with raises(None, "masked_assign", "mask", "bool", "torch.float32", error=TypeError):
        masked_assign(x, x, 0.0)
    with raises(None, "masked_assign", "bool", "bitwise_and", "bitwise_or", "bitwise_not", error=TypeError):
        masked_assign(x > 0, x > 0, 0.0)
    with raises(None, "masked_assign", "value", "0 * inf", "NaN", error=ValueError):
        masked_assign(x, x > 0, math.inf)
    with raises(None, "masked_assign", "value", "0 * inf", "NaN", error=ValueError):
        masked_assign(x.half(), x > 0, torch.tensor(1e6))


def test_masked_assign_keeps_type_and_checks_the_mask() -> None:
    x = torch.tensor([[1, 2], [3, 4]])
    assert masked_assign(x, x > 2, 9).tolist() == [[1, 2], [9, 9]]
    assert masked_assign(x, x > 2, 9).dtype == torch.int64
    assert masked_assign(x[:0], x[:0] > 2, 9).shape == (0, 2)
    with raises(None, error=ValueError) as error:
        masked_assign(x, torch.ones(3, dtype=torch.bool), 0)
    in_order(str(error.value), "masked_assign", "mask", [2, 2], [3])


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (2,), (4,), (0,)])
def test_masked_assign_keeps_the_shape(shape: tuple[int, ...]) -> None:
    x, mask = torch.zeros(3), torch.tensor([True, False, True])
    with raises(None, error=ValueError) as error:
        masked_assign(x, mask, torch.ones(shape))
    in_order(str(error.value), "masked_assign", "value", [3], list(shape))
    rows = torch.zeros(2, 3)
    for value in (torch.ones(3), torch.ones(1), torch.ones(2, 1), torch.ones(())):
        assert masked_assign(rows, rows == 0, value).shape == rows.shape


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_exports(exporter: tuple[str, int], tmp_path: Path) -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return where(x > 0, x, y), masked_assign(x, y.select(1, 0) > 0, 0.5)

    examples = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (3, 5)]
    check_export(both, examples, {"a": {0: "n"}, "b": {0: "n"}}, exporter, tmp_path)
