"""A function as a module, exported with an exporter, and what it computes and what lint says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from tests.tiers import first_of
from tests.tracing import trace_config
from truehalf.exporting.export import export
from truehalf.ir.model_file import load_model
from truehalf.linting import lint
from truehalf.runtime.ort import Session

EXPORTERS = first_of([("torchscript", 17), ("dynamo", 18)])
Axes = Mapping[str, Mapping[int, str]]


class OfOne(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: torch.Tensor) -> Any:
        return self.function(a)


class OfTwo(OfOne):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(a, b)


def check_export(
    function: Callable[..., Any],
    examples: Sequence[tuple[torch.Tensor, ...]],
    axes: Axes,
    exporter: tuple[str, int],
    folder: Path,
    *,
    tolerance: float = 0.0,
    rules: Sequence[str] = (),
) -> None:
    """Traced on the first example, the file computes what the function computes on all, and lint finds `rules` only.

    With dynamo so does the file that torch itself writes by default, optimised. Inputs are named a and b; outputs y0,
    y1, ...
    """
    module, path = (OfOne if len(examples[0]) == 1 else OfTwo)(function), folder / "m.onnx"
    names = ["a", "b"][: len(examples[0])]
    results = as_list(module(*examples[0]))
    export(
        module,
        examples[0],
        path,
        trace_config(exporter[0], exporter[1], axes),
        input_names=names,
        output_names=[f"y{i}" for i in range(len(results))],
    )
    check_file(path, module, examples, tolerance, rules)
    if exporter[0] == "dynamo":
        path = folder / "by_default.onnx"
        shapes = [dict.fromkeys(axes.get(name, {}), torch.export.Dim.DYNAMIC) for name in names]  # type: ignore[attr-defined]
        torch.onnx.export(
            module, examples[0], path, dynamo=True, input_names=names, dynamic_shapes=tuple(shapes), verbose=False
        )
        check_file(path, module, examples, tolerance, rules)


def check_file(
    path: Path,
    module: torch.nn.Module,
    examples: Sequence[tuple[torch.Tensor, ...]],
    tolerance: float,
    rules: Sequence[str],
) -> None:
    onnx.checker.check_model(path, full_check=True)
    beside = ("deployment-io", "empty-node-name")  # inputs and outputs are the test's own
    assert [finding.rule for finding in lint(load_model(path)) if finding.rule not in beside] == list(rules)
    session = Session(path)
    names = ["a", "b"][: len(examples[0])]
    for example in examples:
        got = session.run(dict(zip(names, (tensor.numpy() for tensor in example), strict=True)))
        for value, expected in zip(got.values(), as_list(module(*example)), strict=True):
            assert (value.dtype, value.shape) == (expected.numpy().dtype, tuple(expected.shape))
            np.testing.assert_allclose(value, expected.numpy(), rtol=tolerance, atol=tolerance)


def as_list(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)
