from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, OfOne, check_export, check_file
from truehalf.exporting.torch_ops import unique

LISTS: list[list[Any]] = [[3, 1, 3, 0, 1], [5], [2, 2, 2], [4, 3, 2, 1], [0.5, -1.5, 0.5, 0.0, -0.0]]


@pytest.mark.parametrize("values", LISTS)
def test_equals_torch(values: list[Any]) -> None:
    x = torch.tensor(values)
    assert torch.equal(unique(x), torch.unique(x))  # type: ignore[arg-type]
    for ours, theirs in zip(unique(x, return_counts=True), torch.unique(x, return_counts=True), strict=True):
        assert torch.equal(ours, theirs)


def test_shapes_nan_and_nothing() -> None:
    x = torch.randint(4, (3, 5), generator=torch.Generator().manual_seed(0))
    assert torch.equal(unique(x), torch.unique(x))  # type: ignore[arg-type]
    nan = torch.tensor([math.nan, 1.0, math.nan, 1.0])
    torch.testing.assert_close(unique(nan), torch.unique(nan), equal_nan=True)
    empty = unique(torch.zeros(0, dtype=torch.int64), return_counts=True)
    assert [part.shape for part in empty] == [(0,), (0,)]


@pytest.mark.parametrize("values", LISTS)
def test_fixed_size(values: list[Any]) -> None:
    x = torch.tensor(values)
    expected, times = torch.unique(x, return_counts=True)
    known = len(expected)
    got, number, counts = unique(x, size=8, return_counts=True)
    assert number == known and got.shape == counts.shape == (8,) and got.dtype == x.dtype
    assert torch.equal(got[:known], expected) and torch.equal(counts[:known], times)
    assert (got[known:] == x.max()).all() and (counts[known:] == 0).all()
    assert len(unique(x, size=8)) == 2


@pytest.mark.parametrize("size", [1, 2, 3])
def test_more_values_than_places(size: int) -> None:
    x = torch.tensor([7, 3, 3, 9, 1, 7])
    got, number, counts = unique(x, size=size, return_counts=True)
    assert number == 4
    assert got.tolist() == [1, 3, 7][:size] and counts.tolist() == [1, 2, 2][:size]


@pytest.mark.parametrize("values", [[True, False, True], [True], [False, False]])
def test_booleans(values: list[bool]) -> None:
    x = torch.tensor(values)
    assert torch.equal(unique(x), torch.unique(x))  # type: ignore[arg-type]
    got, number, counts = unique(x, size=2, return_counts=True)
    assert got.dtype == torch.bool and counts[:number].tolist() == torch.unique(x, return_counts=True)[1].tolist()


def test_called_as_torchs() -> None:
    x = torch.tensor([3, 1, 3])
    for ours, theirs in zip(unique(x, True, False, True), torch.unique(x, True, False, True), strict=True):
        assert torch.equal(ours, theirs)
    for asked, got in (({"return_inverse": True}, (True, None)), ({"dim": 0}, (False, 0))):
        with raises(None, "unique", "return_inverse=False", "dim=None", *got, error=ValueError):
            unique(x, **asked)  # type: ignore[arg-type]


def test_refusals() -> None:
    with raises(None, "unique", "size", 1, 0, error=ValueError):
        unique(torch.tensor([1]), size=0)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("size", [None, 6])
def test_exports(size: int | None, exporter: tuple[str, int], tmp_path: Path) -> None:
    def of(x: torch.Tensor) -> Any:
        return unique(x, size=size, return_counts=True)

    lists = [[3, 1, 3, 0, 1, 1, 1], [9, 8, 7, 1, 2, 3, 4], [9, 8, 7, 1, 2, 3, 3, 4], [5, 5]]
    varies = exporter[0] == "torchscript"  # dynamo: n would have to be 3 at least
    examples = [(torch.tensor(one),) for one in (lists if varies else lists[:2])]
    rules = ["data-dependent-size"] if size is None else []
    check_export(of, examples, {"a": {0: "n"}} if varies else {}, exporter, tmp_path, rules=rules)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("shape", [(7,), (7, 2)])
def test_dynamo_with_an_axis_that_varies(shape: tuple[int, ...], optimize: bool, tmp_path: Path) -> None:
    """A sort of all, whose k the exporter computes in several ways, is no TopK that varies."""
    path, module = tmp_path / "m.onnx", OfOne(lambda x: unique(x, size=6))
    examples = [(torch.randint(9, (rows, *shape[1:])),) for rows in (7, 9)]
    axes = ({0: torch.export.Dim("n", min=6)},)
    torch.onnx.export(
        module, examples[0], path, dynamo=True, optimize=optimize, input_names=["a"], dynamic_shapes=axes, verbose=False
    )
    check_file(path, module, examples, 0.0, [])
