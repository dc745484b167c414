"""What python calls on the way: functions, parts, properties, hooks."""

from __future__ import annotations

import contextvars
import functools
from typing import Any

import pytest
import torch

from truehalf.exporting.source_lint import lint_source

Tensor = torch.Tensor


def helper(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Base(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return helper(x)


class Derived(Base):
    @decorated
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(torch.nn.ReLU(), Base(), torch.nn.ReLU())

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.blocks(x)


@pytest.mark.parametrize("module", [Base, Derived, Nested])
def test_calls_are_followed(module: Any) -> None:
    (finding,) = lint_source(module)
    assert finding.rule == "py-tensor-if" and finding.scope.endswith("test_calls.helper")


class Properties(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(1))

    @property
    def on(self) -> Any:
        return self.weight.sum() > 0

    @functools.cached_property
    def largest(self) -> float:
        return self.weight.max().item()

    @property
    def size(self) -> int:
        return 3

    def forward(self, x: Tensor) -> Tensor:
        if self.on and self.size > 2:
            x = x + 1
        return x * self.largest


class Keywords(torch.nn.Module):
    def scale(self, x: Tensor, factor: Tensor, **rest: Tensor) -> Tensor:
        return x * factor.item() + len(rest["more"])

    def forward(self, **kw):  # type: ignore[no-untyped-def]
        if kw["x"].sum() > 0:
            return self.scale(**kw)
        return kw["x"]


class Dicts(torch.nn.Module):
    def forward(self, batch: dict, targets: dict[str, Tensor]) -> Tensor:  # type: ignore[type-arg]
        if batch["x"].sum() > 0:
            return batch["x"] * targets["scale"].item()
        for value in targets.values():
            batch["x"] = batch["x"] + len(value)
        return batch["x"]


class Mapped(torch.nn.Module):
    def scaled(self, part: Tensor) -> Tensor:
        return part * part.min().item()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a = torch.stack(tuple(map(self.scaled, (x, y))))
        return a + sum(map(float, (x.sum(), y.sum())))


class Zipped(torch.nn.Module):
    """How many levels there are is not known; their names are."""

    names = ("fine", "coarse")

    def forward(self, x: Tensor, levels: tuple[Tensor, ...]) -> Tensor:
        for name, level in zip(self.names, levels, strict=False):
            if name == "coarse":
                x = x * level.max().item()
        return x


class Tables(torch.nn.Module):
    """Which layer it is is not known; layers of one class stand for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.same = torch.nn.ModuleList([Base(), Base()])
        self.other = torch.nn.ModuleList([Base(), Derived()])

    def forward(self, x: Tensor) -> Tensor:
        for i in range(x.shape[0]):
            x = self.same[i](x) + self.other[i](x)
        return x


KEPT: contextvars.ContextVar[list[Tensor]] = contextvars.ContextVar("kept")


class Hooks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4))  # a hook of torch's own is no finding
        self.layer.register_forward_pre_hook(self.looked_at)
        self.layer.register_forward_pre_hook(self.named, with_kwargs=True)
        self.layer.register_forward_hook(lambda module, args, output: output * output.mean().item())
        self.layer.register_forward_hook(self.kept)
        self.layer.register_forward_hook(self.seen, with_kwargs=True)
        self.register_forward_hook(lambda module, args, output: output if output.sum() > 0 else -output)

    @staticmethod
    def looked_at(module: Any, args: tuple[Tensor, ...]) -> Any:
        return (args[0] * len(args[0]),)

    @staticmethod
    def named(module: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        return (args[0] * max(args[0].max(), 1),), kwargs

    @staticmethod
    def kept(module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        KEPT.get().append(output)

    @staticmethod
    def seen(module: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        while output.sum() > 0:
            print(kwargs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class UnreadHook(torch.nn.Module):
    """An object that can be called has no def."""

    class Doubled:
        def __call__(self, module: Any, args: Any, output: Tensor) -> Tensor:
            return output * output.max().item()

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(self.Doubled())

    def forward(self, x: Tensor) -> Tensor:
        return x + len(x)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Properties, ["py-item", "py-tensor-if"]),
        (Keywords, ["py-item", "py-tensor-if", "py-tensor-len"]),
        (Dicts, ["py-item", "py-tensor-if", "py-tensor-len"]),
        (Mapped, ["py-item", "py-item"]),
        (Tables, ["py-not-followed", "py-tensor-if"]),
        (Zipped, ["py-item"]),
        (Hooks, ["py-builtin-min-max", "py-data-dependent-loop", "py-not-followed", "py-tensor-len"]),
        (UnreadHook, ["py-not-followed", "py-tensor-len"]),
    ],
)
def test_what_python_calls_on_the_way(module: Any, expected: list[str]) -> None:
    found = lint_source(module)
    assert sorted({(finding.rule, finding.line) for finding in found}) == sorted(
        {(finding.rule, finding.line) for finding in found if finding.rule in expected}
    )
    assert sorted(finding.rule for finding in found) == expected
