"""A bad and a good torch module for each pattern that TensorRT does not like, with equal outputs.

Each file has Bad, Good, examples(), INPUT_NAMES, DYNAMIC_AXES and what is expected of Bad: GRAPH_RULES (findings on its
exported graph) and REPAIRS (passes that leave no such finding). Good has none of them. What is true beside what a case
is about, such as a size that Good keeps too, is stated in BESIDE, by class.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

from tests.tracing import trace_config
from truehalf.exporting.export import evaluation_mode, export

CASES: dict[str, ModuleType] = {
    info.name: importlib.import_module(f"{__name__}.{info.name}")
    for info in pkgutil.iter_modules(__path__)
    if not info.ispkg
}


def outputs(module: torch.nn.Module, example: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    with evaluation_mode(module), torch.no_grad():
        result = module(*(tensor.clone() for tensor in example))
    return [result] if isinstance(result, torch.Tensor) else list(result)


def exported(
    module: torch.nn.Module,
    examples: Sequence[tuple[torch.Tensor, ...]],
    folder: Path,
    exporter: str = "torchscript",
    opset: int = 17,
) -> Path:
    """A Bad or Good as a file, traced on the first example.

    Outputs are named y, or y0, y1, ... where there are more.
    """
    case = sys.modules[type(module).__module__]
    count = len(outputs(module, examples[0]))
    path = folder / f"{case.__name__.rpartition('.')[2]}_{type(module).__name__}.onnx"
    export(
        module,
        examples[0],
        path,
        trace_config(exporter, opset, case.DYNAMIC_AXES),
        input_names=case.INPUT_NAMES,
        output_names=["y"] if count == 1 else [f"y{i}" for i in range(count)],
    )
    return path
