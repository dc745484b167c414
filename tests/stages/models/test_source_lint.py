"""What is found in a module's source, and above all what is not: an alarm about configuration is a false one."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from stages.io import StageError
from stages.models.ltdetr import build
from stages.models.source_lint import RULES, lint_source
from tests.corpus import CASES
from tests.stages.models.detectors import architecture

Tensor = torch.Tensor


def rules(module: Any) -> list[str]:
    return sorted(finding.rule for finding in lint_source(module))


@pytest.mark.parametrize("name", CASES)
def test_bad_modules_are_found(name: str) -> None:
    assert tuple(rules(CASES[name].Bad)) == CASES[name].SOURCE_RULES


@pytest.mark.parametrize("name", CASES)
def test_good_modules_are_clean(name: str) -> None:
    assert rules(CASES[name].Good) == []


def test_each_rule_has_a_case() -> None:
    assert {rule for case in CASES.values() for rule in case.SOURCE_RULES} == set(RULES) - {"py-not-followed"}


def test_each_rule_has_its_section() -> None:
    text = (Path(__file__).parents[3] / "docs" / "lint.md").read_text()
    assert [rule for rule in RULES if f"\n## {rule}\n" not in text] == []


def test_a_finding_says_where() -> None:
    (finding,) = lint_source(CASES["tensor_len"].Bad)
    assert (finding.file, finding.line) == ("tests/corpus/tensor_len.py", 18)
    assert finding.scope == "tests.corpus.tensor_len.Bad.forward"
    assert finding.severity == "warning" and finding.remedy == "tensor.shape[0]"
    assert finding.link == "docs/lint.md#py-tensor-len"


# detectors as they are


OURS = "stages.models.ltdetr._detector_class.<locals>.Detector.forward"  # where reading begins


def test_what_is_found_in_dfine() -> None:
    """len(source_flatten) is the batch size, and baked by a trace; the comprehensions are over features and bins."""
    findings = lint_source(build(architecture("dfine"), 0).eval())
    assert [(f.rule, f.scope.rpartition("modeling_d_fine.")[2]) for f in findings] == [
        ("py-tensor-len", "DFineModel.forward"),
        ("py-list-comprehension", "weighting_function"),
        ("py-list-comprehension", "weighting_function"),
        ("py-list-comprehension", "DFineModel.forward"),
        ("py-not-followed", OURS),  # attention, from a table of functions
    ]
    assert findings[-1].message.startswith("1 call that takes a tensor was not followed (transformers/")
    assert findings[0].file == "transformers/models/d_fine/modeling_d_fine.py"


def test_what_is_found_in_rtdetrv2() -> None:
    findings = lint_source(build(architecture("rtdetrv2"), 0).eval())
    assert [(f.rule, f.scope.rpartition("modeling_rt_detr_v2.")[2]) for f in findings] == [
        ("py-tensor-len", "RTDetrV2Model.forward"),
        ("py-list-comprehension", "RTDetrV2Model.forward"),
        ("py-not-followed", OURS),
    ]


# no false alarms


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
        return total + values * index + x.topk(2).values.sum()


class Zipped(torch.nn.Module):
    """How many levels there are is not known; their names are."""

    names = ("fine", "coarse")

    def forward(self, x: Tensor, levels: tuple[Tensor, ...]) -> Tensor:
        for name, level in zip(self.names, levels, strict=False):
            if name == "coarse":
                x = x * level.max().item()
        return x


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


class Options(torch.nn.Module):
    def forward(self, x, **kwargs):  # type: ignore[no-untyped-def]
        if kwargs.get("doubled", False):
            x = 2 * x
        levels = {}
        for name in ("fine", "coarse"):
            levels[name] = x
        return kwargs.pop("y", x) if "fine" in levels else x


@pytest.mark.parametrize(
    "module", [Options, AskingWhetherItIsTraced, Configured, Guarded, Parts, Outer, WithRecords, Scripted]
)
def test_no_false_alarm(module: Any) -> None:
    assert rules(module) == []


# what is found however it is written


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
    assert finding.rule == "py-tensor-if" and finding.scope.endswith("test_source_lint.helper")


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


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Conditions, ["py-tensor-if"] * 3),
        (Numbers, ["py-item"] * 5),
        (Loops, ["py-data-dependent-loop"] * 2 + ["py-item"]),
        (Blocks, ["py-builtin-min-max", "py-item", "py-item", "py-tensor-if", "py-tensor-len"]),
        (Builtins, ["py-builtin-min-max", "py-deepcopy"]),
    ],
)
def test_many_ways_to_write_it(module: Any, expected: list[str]) -> None:
    assert rules(module) == expected


class NestedDef(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        limit = x.mean()

        def flipped(y: Tensor, sign: float = -1.0) -> Tensor:
            if y.sum() > limit:
                return y
            return sign * y

        return flipped(x)


class Lambdas(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scaled = lambda y: y * y.max().item()

    def forward(self, x: Tensor) -> Tensor:
        absolute = lambda y: y if y.min() > 0 else -y  # noqa: E731
        return absolute(x) + self.scaled(x)


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


class Mapped(torch.nn.Module):
    def scaled(self, part: Tensor) -> Tensor:
        return part * part.min().item()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a = torch.stack(tuple(map(self.scaled, (x, y))))
        return a + sum(map(float, (x.sum(), y.sum())))


class Hooks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.layer.register_forward_pre_hook(self.looked_at)
        self.layer.register_forward_hook(lambda module, args, output: output * output.mean().item())
        self.register_forward_hook(lambda module, args, output: output if output.sum() > 0 else -output)

    @staticmethod
    def looked_at(module: Any, args: tuple[Tensor, ...]) -> Any:
        return (args[0] * len(args[0]),)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (NestedDef, ["py-tensor-if"]),
        (Lambdas, ["py-item", "py-tensor-if"]),
        (Properties, ["py-item", "py-tensor-if"]),
        (Keywords, ["py-item", "py-tensor-if", "py-tensor-len"]),
        (Dicts, ["py-item", "py-tensor-if", "py-tensor-len"]),
        (Contains, ["py-tensor-if"]),
        (Printed, ["py-item"]),
        (Mapped, ["py-item", "py-item"]),
        (Zipped, ["py-item"]),
        (Hooks, ["py-item", "py-tensor-if", "py-tensor-len"]),
    ],
)
def test_what_python_calls_on_the_way(module: Any, expected: list[str]) -> None:
    found = lint_source(module)
    assert sorted({(finding.rule, finding.line) for finding in found}) == sorted(
        {(finding.rule, finding.line) for finding in found if finding.rule in expected}
    )
    assert sorted(finding.rule for finding in found) == expected


def test_the_scope_of_a_nested_function() -> None:
    (finding,) = lint_source(NestedDef)
    assert finding.scope.endswith("NestedDef.forward.<locals>.flipped")


class Foreign(torch.nn.Module):
    """Whatever is in a table that is filled elsewhere; and what the standard library does with tensors."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, kind: str) -> Tensor:
        names = []
        names.append(x.shape[0])
        y = self.table[kind](x)
        return y * statistics.fmean([x.min(), x.max()])


def test_calls_that_are_not_followed_are_counted_once() -> None:
    (finding,) = lint_source(Foreign({"a": torch.relu}))
    assert (finding.rule, finding.severity) == ("py-not-followed", "info")
    assert finding.message.startswith(
        "2 calls that take tensors were not followed (tests/stages/models/test_source_lint"
    )
    assert finding.line is not None and f":{finding.line}, " in finding.message


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(StageError, match="expected a torch module or a function that returns one, got int"):
        lint_source(lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(StageError, match="has no python source"):
        lint_source(torch.jit.script(torch.nn.ReLU()))


def test_lint_leaves_the_module_alone() -> None:
    module = Memory()
    lint_source(module)
    assert module.previous is None and module.frames == [] and module.scene == "" and module.training
