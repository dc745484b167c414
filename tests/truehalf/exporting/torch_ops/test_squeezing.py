from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import squeeze


def second_axis_squeezed(x: torch.Tensor) -> torch.Tensor:
    return squeeze(x, 1)


@pytest.mark.parametrize("dim", [1, -2])
def test_is_squeeze(dim: int) -> None:
    x = torch.randn(4, 1, 3)
    assert torch.equal(squeeze(x, dim), x.squeeze(dim))
    with raises(None, "squeeze", "axis 0", 1, [4, 1, 3], error=ValueError):
        squeeze(x, 0)


def test_several_axes_and_none() -> None:
    x = torch.randn(1, 4, 1, 3)
    assert torch.equal(squeeze(x, (0, -2)), x.squeeze((0, -2)))
    assert torch.equal(squeeze(input=x, dim=0), torch.squeeze(input=x, dim=0))
    with raises(None, "squeeze", "dim", error=TypeError):
        squeeze(x)


@pytest.mark.parametrize("exporter", EXPORTERS[:1])
def test_exports_where_the_size_is_not_known(exporter: tuple[str, int], tmp_path: Path) -> None:
    examples = [(torch.randn(n, 1, 3),) for n in (2, 4)]
    check_export(second_axis_squeezed, examples, {"a": {0: "n", 1: "frames"}}, exporter, tmp_path)
