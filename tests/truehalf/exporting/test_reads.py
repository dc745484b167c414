"""What Python reads of tensors while a module is traced, and what that was computed from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from truehalf.exporting.reads import reads

READS: dict[str, tuple[Callable[..., Any], bool]] = {  # what reads, and whether it follows from the input
    "bool": (lambda m, x: bool(x.max() > 0), True),
    "in": (lambda m, x: 3.0 in x, True),
    "equal": (lambda m, x: torch.equal(x, x + 1), True),
    "allclose": (lambda m, x: torch.allclose(x, x), True),
    "max of python": (lambda m, x: max(x[0, 0], x[0, 1]), True),
    "item": (lambda m, x: x.sum().item(), True),
    "float": (lambda m, x: float(x.mean()), True),
    "tolist": (lambda m, x: x.tolist(), True),
    "numpy": (lambda m, x: x.numpy(), True),
    "index": (lambda m, x: [1, 2, 3][x.argmax() * 0], True),
    "length of what was found": (lambda m, x: len((x > 0).nonzero()), True),
    "size of what was found": (lambda m, x: bool(x[x > 0].shape[0] > 1), True),
    "written in place": (lambda m, x: bool(torch.zeros(2).copy_(x[0, :2]).sum() > 0), True),
    "length": (lambda m, x: len(x), False),
    "rows": (lambda m, x: list(x), False),
    "size": (lambda m, x: bool(x.shape[0] > 2), False),
    "number of values": (lambda m, x: int(x.numel() / 2), False),
    "parameter": (lambda m, x: m.weight.item(), False),
    "buffer": (lambda m, x: bool(m.running.sum() > 0), False),
    "made like the input": (lambda m, x: bool(torch.zeros_like(x).sum() > 0), False),
    "constant": (lambda m, x: torch.tensor([1.0, 2.0]).tolist(), False),
}


class Reading(torch.nn.Module):
    def __init__(self, what: Callable[..., Any]) -> None:
        super().__init__()
        self.what = what
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("running", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.what(self, x)
        return x * self.weight


@pytest.mark.parametrize("name", READS)
def test_what_is_read_and_what_it_follows_from(name: str) -> None:
    what, data = READS[name]
    found = reads(Reading(what), [torch.tensor([[1.0, -2.0], [3.0, 4.0]])])
    assert {read.data for read in found if "test_reads" in read.place[0]} == {data}, found


def test_a_size_is_told_with_its_value() -> None:
    def compared(_: Any, x: torch.Tensor) -> bool:
        return bool(x.shape[1] * 2 > x.shape[0])

    for rows in (3, 5):
        (read,) = reads(Reading(compared), [torch.zeros(rows, 4)])
        assert read.sizes == {rows, 4}


def test_the_module_and_its_inputs_stay_as_they_were() -> None:
    module, x = Reading(READS["item"][0]), torch.zeros(2, 2)
    reads(module, [x])
    assert not module._forward_pre_hooks and not module.weight.grad
