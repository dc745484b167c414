"""What a module keeps from call to call, which a file does not."""

from __future__ import annotations

import collections
import copy
from typing import Any

import pytest
import torch

from tests.truehalf.exporting.source_lint.linting import rules
from truehalf.exporting.source_lint import lint_source

Tensor = torch.Tensor


class Memory(torch.nn.Module):
    """State between frames, as trackers keep it."""

    def __init__(self) -> None:
        super().__init__()
        self.previous: Tensor | None = None
        self.scene = ""
        self.frames: list[Tensor] = []
        self.register_buffer("count", torch.zeros(1))

    def reset(self, scene: str) -> None:
        self.previous, self.scene = None, scene

    def forward(self, x: Tensor, scene: str = "night") -> Tensor:
        if self.scene != scene:
            self.reset(scene)
        if self.previous is not None:
            x = 0.5 * x + 0.5 * self.previous
        self.previous = x
        self.frames.append(x)
        self.count += 1
        return x


def test_state_is_found() -> None:
    found = rules(Memory)
    assert found.count("py-attribute-update") == 4
    assert set(found) == {"py-attribute-update", "py-none-check", "py-string-comparison"}


class Written(torch.nn.Module):
    """Base of modules that write to what they keep."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.gain = torch.nn.Parameter(torch.ones(4))
        self.kept: list[Tensor] = []
        self.steps = 0


class Views(Written):
    def forward(self, x: Tensor) -> Tensor:
        self.seen.data.copy_(x[0])
        self.gain.data = x[0]
        self.seen[0].add_(1)
        self.seen.view(2, 2).mul_(2)
        self.seen.data[x > 0] = 0
        return x


class OtherNames(Written):
    def forward(self, x: Tensor) -> Tensor:
        seen = self.seen
        seen += 1
        again = seen
        again.mul_(2)
        again[0] = 3
        kept = self.kept
        kept.append(x)
        row = self.seen.detach()[0]
        row.zero_()
        return x


class GivenAsOutput(Written):
    def forward(self, x: Tensor) -> Tensor:
        torch.add(x, 1, out=self.seen)
        return torch.add(x, 1, out=torch.empty_like(x))


class NamesOfTheirOwn(Written):
    """Copies, sums and numbers, which are changed here alone."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        seen = self.seen + x
        seen += 1
        chosen = self.seen[index]
        chosen.mul_(2)
        gain = self.gain
        gain = gain * 2
        gain += 1
        steps = self.steps
        steps += 1
        result = self.seen.clone()
        result.data.mul_(steps)
        return result + seen + chosen + gain


@pytest.mark.parametrize(
    ("module", "expected"), [(Views, 5), (OtherNames, 5), (GivenAsOutput, 1), (NamesOfTheirOwn, 0)]
)
def test_writes_by_other_ways(module: Any, expected: int) -> None:
    assert rules(module) == ["py-attribute-update"] * expected


class ReadByName(torch.nn.Module):
    """getattr, of an attribute that is None at first, and of one that is not there yet."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        cache = getattr(self, "cache", None)
        if cache is None:
            cache = torch.zeros_like(x)
        last = getattr(self, "last", None)
        x = x if last is None else x + last
        size = getattr(self, "size", None)
        if size is not None:
            x = x * size
        self.cache = self.last = cache + x
        return self.cache


def test_attributes_that_are_read_by_name() -> None:
    assert rules(ReadByName) == ["py-attribute-update", "py-none-check", "py-none-check"]


def test_lint_leaves_the_module_alone() -> None:
    module = Memory()
    lint_source(module)
    assert module.previous is None and module.frames == [] and module.scene == "" and module.training


class Registry(dict[str, Any]):
    pass


HELD: dict[str, Any] = {
    "a long list": [float(i) for i in range(100)],
    "a long dict": {str(i): float(i) for i in range(100)},
    "a short list": [1.0, 2.0],
    "a short dict": {"0": 1.0},
    "an ordered dict": collections.OrderedDict({"0": 1.0}),
    "counts": collections.Counter({"0": 2}),
    "a dict of its own": Registry({"0": 1.0}),
    "a long list in a dict": {"0": [float(i) for i in range(100)]},
}
KEPT: Any = None


class WritesToGlobal(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        kept = KEPT
        if isinstance(kept, list):
            kept.append(x)
            kept[0] = x
            kept.extend([x, x])
            kept.pop()
        else:
            kept["0"] = x
            kept.update({"1": x})
            kept.pop("0")
            kept.setdefault("2", x)
            kept["0"].append(x)
        return x


@pytest.mark.parametrize("name", HELD)
def test_lint_leaves_lists_and_dicts_of_the_users_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = copy.deepcopy(HELD[name])
    monkeypatch.setitem(globals(), "KEPT", kept)
    lint_source(WritesToGlobal())
    assert kept == HELD[name] and type(kept) is type(HELD[name])


@pytest.mark.parametrize("name", HELD)
def test_lint_leaves_lists_and_dicts_in_attributes_alone(name: str) -> None:
    module = Written()
    module.kept = copy.deepcopy(HELD[name])
    lint_source(_Attributes(module))
    assert module.kept == HELD[name]


class _Attributes(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        kept = self.inner.kept
        if isinstance(kept, list):
            self.inner.kept.append(x)
            kept[-1] = x
            kept.reverse()
        else:
            kept["0"] = x
            self.inner.kept.popitem()
            kept.clear()
        return x
