"""Constants with a floating type of their own, and what torch itself says of them in half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.truehalf.exporting.source_lint.linting import rules
from truehalf.exporting.source_lint import lint_source

Tensor = torch.Tensor
RULE = "py-dtype-constant"


class Base(torch.nn.Module):
    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(4))


class Matmul(Base):
    def forward(self, x: Tensor) -> Any:
        return x @ torch.ones(4, 4)


class ThroughArithmetic(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(x + torch.linspace(0, 1, 4)[None])


class Mask(Base):
    def forward(self, x: Tensor) -> Any:
        mask = torch.zeros(x.shape[0], x.shape[0]).masked_fill_(torch.eye(x.shape[0]) > 0, -1.0)
        return (x @ x.T + mask).softmax(-1) @ x


class Function(Base):
    def weights(self) -> Tensor:
        return torch.tensor([[0.5, 0.5, 0.0, 0.0]])

    def forward(self, x: Tensor) -> Any:
        return torch.nn.functional.linear(x, self.weights())


class Like(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(torch.zeros_like(x, dtype=torch.float32) + x)


class Positions(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(x * torch.arange(4, dtype=torch.float32))


class GivenType(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(x + torch.ones(4, dtype=x.dtype)) @ torch.eye(4).to(x.dtype)


class Numbers(Base):
    """Without axes, a number takes the other's type."""

    def forward(self, x: Tensor) -> Any:
        return self.linear(x * torch.tensor(2.0) + torch.full((), 0.5))


class Integers(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(x[:, torch.arange(4)] * torch.tensor([1, 2, 3, 4]))


class LikeInput(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(x + torch.zeros_like(x) + x.new_ones(4) + self.kept)


class NotMet(Base):
    """Float32 among itself, and back before it meets the module's."""

    def forward(self, x: Tensor) -> Any:
        both = torch.ones(4, 4) @ torch.rand(4, 4)
        return self.linear(x) + both.mean(0).type_as(x)


class Compared(Base):
    def forward(self, x: Tensor) -> Any:
        return self.linear(x * (torch.rand(4) > 0.5))


@pytest.mark.parametrize("kind", [Matmul, ThroughArithmetic, Mask, Function, Like, Positions])
def test_what_half_precision_refuses_is_found(kind: type[Base]) -> None:
    assert set(rules(kind)) == {RULE}
    with torch.no_grad():
        kind()(torch.ones(4, 4))
        with pytest.raises(RuntimeError) as error:
            kind().half()(torch.ones(4, 4).half())
    assert "type" in str(error.value), "of dtypes, by torch"


@pytest.mark.parametrize("kind", [GivenType, Numbers, Integers, LikeInput, NotMet, Compared])
def test_what_half_precision_takes_is_no_finding(kind: type[Base]) -> None:
    assert rules(kind) == []
    with torch.no_grad():
        assert kind().half()(torch.ones(4, 4).half()).dtype == torch.float16


def test_the_finding_is_where_the_constant_is_made() -> None:
    (finding,) = lint_source(Function)
    assert finding.scope.endswith("Function.weights") and finding.severity == "warning"
    assert finding.remedy.startswith("dtype=x.dtype")
