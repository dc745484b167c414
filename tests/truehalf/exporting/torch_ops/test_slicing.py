from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import dynamic_slice


@pytest.mark.parametrize(("start", "length"), [(0, 3), (0, 0), (2, 2), (4, 9), (5, 1), (0, 5)])
def test_is_a_slice(start: int, length: int) -> None:
    x = torch.randn(5, 2)
    assert torch.equal(dynamic_slice(x, length, start=start), x[start : start + length])
    assert torch.equal(dynamic_slice(x, torch.tensor(length), start=torch.tensor([start])), x[start : start + length])


def test_other_axes() -> None:
    x = torch.randn(2, 5, 3)
    assert torch.equal(dynamic_slice(x, torch.tensor(3), dim=1), x[:, :3])
    assert torch.equal(dynamic_slice(x, 2, dim=-1), x[..., :2])


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_exports(exporter: tuple[str, int], tmp_path: Path) -> None:
    def longest(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return dynamic_slice(x, lengths.max(), start=lengths.min(), dim=1)

    examples = [(torch.randn(len(one), 9, 4), torch.tensor(one)) for one in ([3, 5], [6, 2, 1], [0, 0])]
    axes = {"a": {0: "n"}, "b": {0: "n"}}
    check_export(longest, examples, axes, exporter, tmp_path, rules=["data-dependent-size"])
