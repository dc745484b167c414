from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import bool_index_to_long

MASKS = [[True, False, True, True], [False, False], [True], [False, True, False, False, True, True], []]


@pytest.mark.parametrize("mask", MASKS)
def test_is_nonzero(mask: list[bool]) -> None:
    given = torch.tensor(mask, dtype=torch.bool)
    assert torch.equal(bool_index_to_long(given), given.nonzero()[:, 0])
    x = torch.randn(len(mask), 3)
    assert torch.equal(x[bool_index_to_long(given)], x[given])


def test_refusals() -> None:
    with raises(None, "bool_index_to_long", [2, 2], error=ValueError):
        bool_index_to_long(torch.ones(2, 2, dtype=torch.bool))
    with raises(None, "bool_index_to_long", "bool", "torch.float32", error=TypeError):
        bool_index_to_long(torch.ones(2))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_exports(exporter: tuple[str, int], tmp_path: Path) -> None:
    def selected(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, bool_index_to_long(label == 1))

    labels = [torch.tensor(one) for one in ([0, 1, 1, 0], [1, 1, 1], [0, 0, 0, 0, 0])]
    examples = [(torch.randn(len(label), 3), label) for label in labels]
    axes = {"a": {0: "n"}, "b": {0: "n"}}
    check_export(selected, examples, axes, exporter, tmp_path, rules=["data-dependent-size"])
