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


class Counted(torch.nn.Module):
    """How many items a list has is not known where it grew in a loop of unknown rounds, or on one side of an `if`."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.parts = getattr(self, way)

    def rounds(self, x: Tensor, more: Any) -> list[Tensor]:
        parts = []
        for part in x.split(1):
            parts.append(part)
        return parts

    def repeated(self, x: Tensor, more: Any) -> list[Tensor]:
        parts = [x]
        while len(parts) < x.shape[0]:
            parts.append(x)
        return parts

    def one_side(self, x: Tensor, more: Any) -> list[Tensor]:
        parts = [x]
        if x.shape[0] > 1:
            parts.append(x)
        else:
            parts.extend([x, x])
        return parts

    def left(self, x: Tensor, more: Any) -> list[Tensor]:
        parts = []
        for _ in (1, 2):
            if x.shape[0] > 1:
                continue
            parts.append(x)
        return parts

    def times(self, x: Tensor, more: Any) -> list[Tensor]:
        return [x, x] * x.shape[0]

    def chosen(self, x: Tensor, more: Any) -> tuple[Tensor, ...]:
        return tuple(part for part in (x, x) if x.shape[0] > part.shape[1])

    def nested(self, x: Tensor, more: Any) -> tuple[Tensor, ...]:
        return tuple(part for _ in (1, 2) for part in x.split(1))

    def numbered(self, x: Tensor, more: Any) -> tuple[Tensor, ...]:
        return tuple(part for i, part in enumerate(more) if i in (1, 2))

    def starred(self, x: Tensor, more: Any) -> list[Tensor]:
        return [x, x, *more]

    def forward(self, x: Tensor, more: Any) -> Tensor:
        return x * x.max().item() if len(self.parts(x, more)) > 4 else x


class Checked(torch.nn.Module):
    """A check that would always fail tells that something else is there than was thought."""

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, list):
            raise TypeError("levels")
        return x[0] * x[0].max().item()


class Bound(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 1 and (top := x.max()) is not None:
            x = x * top.item()
        return x


class Loops(torch.nn.Module):
    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        for row in x:
            count = count + row.sum()
        for i in range(int(count)):
            x = x + i
        for _i, row in enumerate(x):
            x = x + row
        while x.ndim > 1 and x.sum() > 0:
            x = x - 1
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
        if 3 in [x, x + 1]:
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
        (Bound, ["py-item"]),
        (Checked, ["py-item"]),
        (Loops, ["py-data-dependent-loop"] * 3 + ["py-item"]),
        (Blocks, ["py-builtin-min-max", "py-item", "py-item", "py-tensor-if", "py-tensor-len"]),
        (Builtins, ["py-builtin-min-max", "py-deepcopy"]),
        (Contains, ["py-tensor-if"] * 2),
        (Printed, ["py-item"]),
    ],
)
def test_many_ways_to_write_it(module: Any, expected: list[str]) -> None:
    assert rules(module) == expected


@pytest.mark.parametrize(
    "way", ["rounds", "repeated", "one_side", "left", "times", "chosen", "nested", "numbered", "starred"]
)
def test_a_length_that_is_not_known(way: str) -> None:
    assert rules(Counted(way)) == ["py-item"]
