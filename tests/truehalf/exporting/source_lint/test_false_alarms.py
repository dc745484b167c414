"""What is no finding: an alarm about configuration is a false one."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.truehalf.exporting.source_lint.linting import rules

Tensor = torch.Tensor


class Configured(torch.nn.Module):
    """All that python decides here, the configuration or a size decides."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(method="bilinear", levels=3, attention=None, pair=(4, 2))
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.dtype_name = "float32"
        self.register_buffer("scale", torch.ones(4))
        self.heads = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
        self.gains = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(4))])
        self.plain = {"one": 1, "two": 2}

    def forward(self, x: Tensor) -> Tensor:
        for name, head in self.heads.items():
            x = head(x) if name != "b" else x
        for number in self.plain.values():
            x = x * max(number, len(self.gains), len(list(self.heads.parameters())))
        for gain in self.gains:
            x = x * gain
        if self.config.method == "bilinear" and self.config.levels > 1:
            x = x * 2
        if self.config.attention is not None:
            x = x + self.config.attention
        if self.training:
            x = x * float(x.mean())
        if x.shape[0] > 1 or x.ndim == 2 or x.size(1) % 2:
            x = x + 1
        if len(self.layers) > 2 and len(x.shape) == 2 and x.dtype == torch.float32 and isinstance(x, torch.Tensor):
            x = x * self.scale
        if not x.is_cuda and x.numel() and not torch.jit.is_scripting():
            x = -x
        for i in range(min(len(self.layers), max(self.config.pair))):
            x = self.layers[i](x)
        for layer in self.layers[1:]:
            x = layer(x)
        widths = [layer.out_features for layer in self.layers]
        return x / int(math.sqrt(sum(widths))) * min(x.shape) / int(x.shape[-1])


class Guarded(torch.nn.Module):
    """Checks that only raise, or only assert, are left out of the file; nothing else is."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.min() >= 0
        if x.max() > 100:
            raise ValueError("too large")
        torch._check_tensor_all(x.isfinite())
        return x


class Parts(torch.nn.Module):
    """Lists of tensors, whose length is python's own."""

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = x.split([1, 2, 1], dim=1)
        levels = [first]
        for part in rest:
            levels.append(part)
        total = sum(levels[i].sum() for i in range(len(levels)))
        for i, (level, again) in enumerate(zip(levels, levels, strict=True)):
            total = total + i * (level + again).sum()
        values, index = x.max(1)
        for half in (*x.hsplit(2), *torch.linalg.qr(x)):
            total = total + half.sum()
        return total + values * index + x.topk(2).values.sum()


class Lengths(torch.nn.Module):
    """Lists that are put together as often as the configuration says."""

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        coarse = [x]
        for scale in (1, 2, 3):
            levels = levels + [x * scale]  # noqa: RUF005
            if scale > 1:
                coarse = coarse + [x, x]  # noqa: RUF005
        for i in range(len(levels), 3):
            x = x * levels[i].max().item()
        return x * x.max().item() if len(levels) != 3 or len(coarse) != 5 else x


class Inner(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None, mode: str = "sum") -> Tensor:
        if mask is not None:
            x = x * mask
        return x.sum(-1) if mode == "sum" else x.mean(-1)


class Outer(torch.nn.Module):
    """The caller decides which arguments a part gets."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(x, mask=x > 0) + self.inner(x, mode="mean")


@dataclasses.dataclass
class Output:
    features: Tensor | None = None
    mask: Tensor | None = None


class WithRecords(torch.nn.Module):
    def make(self, x: Tensor) -> Output:
        return Output(features=x)

    def forward(self, x: Tensor) -> Tensor:
        output = self.make(x)
        if output.mask is not None:
            x = x * output.mask
        sizes = {"rows": x.shape[0], "columns": x.shape[1]}
        if sizes["rows"] > sizes["columns"]:
            x = x + 1
        return x + (output.features if output.features is not None else 0)


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    while bool(x.max() > 1.0):
        x = x * 0.5
    return x


class Scripted(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scripted(x)


def cuda_is_capturing() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def is_traced(x: Tensor) -> bool:
    import torch

    traced = cuda_is_capturing() or torch.jit.is_tracing()
    traced |= x.is_cuda
    return traced


class AskingWhetherItIsTraced(torch.nn.Module):
    """transformers looks into a mask only where nothing traces."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_traced(x) and x.all():
            x = x + 1
        return x


def is_jit_tracing() -> bool:
    try:
        import torch

        return torch.jit.is_tracing()
    except Exception:
        return False


def may_skip(mask: Tensor | None) -> bool:
    return not (torch.compiler.is_exporting() or (mask is not None and is_jit_tracing())) and (
        mask is None or bool(mask.all())
    )


class SkippedMask(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x if may_skip(mask) else x * mask


class EitherOne(torch.nn.Module):
    """Which of the two is there stays unknown behind the branches."""

    def forward(self, ids: Tensor | None = None, embedded: Tensor | None = None) -> Tensor:
        if ids is not None:
            size = ids.shape[0]
        elif embedded is not None:
            size = embedded.shape[0]
        else:
            raise ValueError("one of them")
        return (embedded if ids is None else ids) * size


class OptionalMask(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if may_skip(mask) else x + 1


class Options(torch.nn.Module):
    def forward(self, x, **kwargs):  # type: ignore[no-untyped-def]
        if kwargs.get("doubled", False):
            x = 2 * x
        levels = {}
        for name in ("fine", "coarse"):
            levels[name] = x
        return kwargs.pop("y", x) if "fine" in levels else x


@pytest.mark.parametrize(
    "module",
    [
        *(Options, AskingWhetherItIsTraced, SkippedMask, Configured, Guarded, Parts, Lengths, Outer, WithRecords),
        Scripted,
    ],
)
def test_no_false_alarm(module: Any) -> None:
    assert rules(module) == []


def test_one_of_two_inputs() -> None:
    assert rules(EitherOne) == ["py-none-check"] * 3


def test_a_mask_that_only_some_calls_have_is_not_looked_into() -> None:
    assert rules(OptionalMask) == ["py-none-check"]
