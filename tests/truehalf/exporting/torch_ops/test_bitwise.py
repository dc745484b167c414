from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import bitwise_and, bitwise_not, bitwise_or

A, B = torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True])


def test_truth_tables() -> None:
    assert torch.equal(bitwise_and(A, B), A & B)
    assert torch.equal(bitwise_or(A, B), A | B)
    assert torch.equal(bitwise_not(A), ~A)


def test_broadcast_and_empty() -> None:
    assert torch.equal(bitwise_and(A[:, None], B), A[:, None] & B)
    assert bitwise_or(A[:0], B[:0]).shape == (0,)


@pytest.mark.parametrize("function", [bitwise_and, bitwise_or])
def test_integers_are_refused(function: object) -> None:
    with raises(None, "bitwise", "bool", "torch.int64", "TensorRT", error=TypeError):
        function(A, torch.tensor([3, 1, 2, 0]))  # type: ignore[operator]


@pytest.mark.parametrize("number", [True, 1])
def test_numbers_are_refused(number: object) -> None:
    for function in (bitwise_and, bitwise_or):
        for given in ((A, number), (number, A)):
            with raises(None, "bitwise", "bool", number, error=TypeError):
                function(*given)  # type: ignore[arg-type]
    with raises(None, "bitwise", "bool", number, error=TypeError):
        bitwise_not(number)  # type: ignore[arg-type]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_exports(exporter: tuple[str, int], tmp_path: Path) -> None:
    def all_three(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return bitwise_or(bitwise_and(x > 0, y > 0), bitwise_not(x > 1)).float()

    examples = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (3, 5)]
    check_export(all_three, examples, {"a": {0: "n"}, "b": {0: "n"}}, exporter, tmp_path)
