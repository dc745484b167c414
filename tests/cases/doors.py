"""What the cases share: the command run in this process, and means of their own to check a file.

A file is computed by plain ONNX Runtime, and by `onnx.reference`, whose FP16 nodes compute in numpy's float16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from truehalf.cli.app import run

Arrays = dict[str, np.ndarray]


def fails(fault: str, **options: Any) -> pytest.MarkDecorator:
    """Mark a case that fails today with the fault's name; it must fail until the fault is mended."""
    return pytest.mark.xfail(strict=True, reason=fault, **options)


def truehalf(*arguments: str | Path) -> tuple[int, str]:
    """Run a `truehalf` command; return its exit code and what it printed to both streams."""
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = run([str(argument) for argument in arguments])
    return code, printed.getvalue()


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    """Parse a graph in ONNX text; weights are not listed as inputs, nodes get the names that exporters give."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    weights = {weight.name for weight in model.graph.initializer}
    for value in [value for value in model.graph.input if value.name in weights]:
        model.graph.input.remove(value)
    for position, node in enumerate(model.graph.node):
        node.name = f"/net/{node.op_type}_{position}"
    return model


def saved(path: Path, model: onnx.ModelProto) -> Path:
    onnx.save(model, path)
    return path


def loads(path: Path) -> bool:
    """True if ONNX Runtime loads the file."""
    try:
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def computed(path: Path, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs of a file in ONNX Runtime; float arrays take the type of the file's inputs."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    half = {value.name for value in session.get_inputs() if value.type == "tensor(float16)"}
    feeds = {name: array.astype(np.float16) if name in half else array for name, array in arrays.items()}
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, feeds), strict=True))


def computed_in_fp16(path: Path, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs of a file in onnx.reference, where every float16 node computes in numpy's float16."""
    model = onnx.load(path)
    half = {value.name for value in model.graph.input if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    feeds = {name: array.astype(np.float16) if name in half else array for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        outputs = ReferenceEvaluator(model).run(None, feeds)
    return dict(zip([value.name for value in model.graph.output], outputs, strict=True))


def relative_error(expected: np.ndarray, actual: np.ndarray) -> float:
    """Largest difference in shares of the largest finite value expected; infinite where only `actual` is not finite."""
    wanted, got = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    finite = np.isfinite(wanted)
    if (finite & ~np.isfinite(got)).any():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(wanted - got)[finite].max() / max(np.abs(wanted[finite]).max(), 1e-30))


def half_nodes(path: Path) -> Counter[str]:
    """Number of nodes by operator whose first output is float16."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    types = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    return Counter(node.op_type for node in graph.node if types.get(node.output[0]) == onnx.TensorProto.FLOAT16)
