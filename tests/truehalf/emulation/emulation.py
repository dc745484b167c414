"""What the tests of the emulation share: run a graph through it, and compare with FP16 to the bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from truehalf.emulation.emulate import emulate
from truehalf.runtime.ort import Session

HALF_BITS = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)  # every FP16 number


def parsed(text: str, opset: int = 17) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(proto)


def run(model: ir.Model, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs of the emulated model, float32 ones as float16 after checking that FP16 holds them exactly."""
    emulated = emulate(model)
    onnx.checker.check_model(ir.to_proto(emulated), full_check=True)
    widened = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in feeds.items()}
    return {name: narrowed(value) for name, value in Session(emulated).run(widened).items()}


def narrowed(value: np.ndarray) -> np.ndarray:
    if value.dtype != np.float32:
        return value
    with np.errstate(over="ignore"):
        half = value.astype(np.float16)
    np.testing.assert_array_equal(half.astype(np.float32), value)
    return half


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, but that any NaN equals any other."""
    assert actual.dtype == expected.dtype == np.float16
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual[~nan].view(np.uint16), expected[~nan].view(np.uint16))


def ulps(actual: np.ndarray, exact: np.ndarray) -> float:
    """Largest distance in units of the last FP16 place of the exact (float64) result."""
    assert np.isfinite(actual).all()
    with np.errstate(over="ignore"):
        spacing = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    return float(np.max(np.abs(actual.astype(np.float64) - exact) / spacing))


def op_count(model: ir.Model, op_type: str) -> int:
    return sum(node.op_type == op_type for graph in model.graphs() for node in graph)
