"""ONNX text in, repaired model out, and both run in ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime

from truehalf.ir.model_forms import as_ir
from truehalf.patterns import RepairReport, repair

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>\n'
RNG = np.random.default_rng(0)


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    for graph in _graphs(model.graph):
        for node in graph.node:
            node.name = f"/net/block.0/{node.op_type}_{node.output[0]}"
    onnx.checker.check_model(model)
    return model


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [graph, *(deeper for body in inner for deeper in _graphs(body))]


def repaired(model: onnx.ModelProto, *passes: str) -> tuple[onnx.ModelProto, RepairReport]:
    """The model after the passes; the checker, strict inference of shapes and the names of all ends speak for it."""
    made = as_ir(model)
    report = repair(made, passes)
    result = ir.to_proto(made)
    onnx.checker.check_model(result, full_check=True)
    assert [value.name for value in result.graph.input] == [value.name for value in model.graph.input]
    assert [value.name for value in result.graph.output] == [value.name for value in model.graph.output]
    return result, report


def run(model: onnx.ModelProto, feeds: Mapping[str, Any], optimized: bool = False) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]


def assert_equal(
    before: onnx.ModelProto, after: onnx.ModelProto, feeds: Sequence[Mapping[str, Any]], rtol: float = 0.0
) -> None:
    """Outputs of one shape and type whose values differ by at most rtol times the largest, NaN where there was NaN.

    They are run without the optimisation of ONNX Runtime, and with all of it, which is its default.
    """
    for feed, optimized in itertools.product(feeds, (False, True)):
        for expected, got in zip(*[run(model, feed, optimized) for model in (before, after)], strict=True):
            assert got.shape == expected.shape
            assert got.dtype == expected.dtype
            largest = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0)) if expected.size else 0.0
            np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * largest)


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def uniform(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return RNG.uniform(low, high, size=shape).astype(np.float32)
