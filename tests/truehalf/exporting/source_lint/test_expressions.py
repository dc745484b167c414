"""What is found however it is written."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.truehalf.exporting.source_lint.linting import rules

Tensor = torch.Tensor


class Conditions(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if not (x.shape[0] > 1 and x.sum() > 0):
            x = x + 1
        if any(part.max() > 1 for part in (x, y)):
            x = x + 2
        if bool((x > y).all()):
            x = x + 3
        return x


class Numbers(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a = x.max().item()
        b = float(x.min())
        c = math.sqrt(x.sum())
        d = np.asarray(x)
        e = x.tolist()
        return x * a * b * c * len(d) * len(e)


class Loops(torch.nn.Module):
    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        for row in x:
            count = count + row.sum()
        for i in range(int(count)):
            x = x + i
        for _i, row in enumerate(x):
            x = x + row
        return x


class Blocks(torch.nn.Module):
    """match, try and with hold statements, too."""

    def forward(self, x: Tensor) -> Tensor:
        match x.ndim:
            case 2:
                x = x + x.max().item()
            case _:
                x = x if x.sum() > 0 else -x
        try:
            x = x + len(x)
        except ValueError:
            x = x * float(x.sum())
        with torch.no_grad():
            return max(x.max(), x.min())


class Builtins(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = min(x.max(), y.max()) + sum(x) + max([x.sum(), y.sum()])
        kept = copy.deepcopy({"x": x})["x"]
        return z + kept


class Contains(torch.nn.Module):
    def forward(self, x: Tensor, names: dict[str, Tensor]) -> Tensor:
        if 3 in x or x in [x + 1]:
            x = x + 1
        if "mask" in names:
            x = x * names["mask"]
        return x


class Printed(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        name = f"{x.shape}"
        return x * float(f"{x.mean():.3f}") * int(str(x.max())) * len(name)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Conditions, ["py-tensor-if"] * 3),
        (Numbers, ["py-item"] * 5),
        (Loops, ["py-data-dependent-loop"] * 2 + ["py-item"]),
        (Blocks, ["py-builtin-min-max", "py-item", "py-item", "py-tensor-if", "py-tensor-len"]),
        (Builtins, ["py-builtin-min-max", "py-deepcopy"]),
        (Contains, ["py-tensor-if"]),
        (Printed, ["py-item"]),
    ],
)
def test_many_ways_to_write_it(module: Any, expected: list[str]) -> None:
    assert rules(module) == expected
