"""Statistics made inside the graph against numpy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.truehalf.calibration.small_graphs import HUGE, parsed
from truehalf.calibration.ranges import Scanner, float_tensors, roots


def identity() -> ir.Model:
    return parsed("g (float[N] x) => (float[N] y) { y = Identity(x) }")


def test_float_tensors_are_inputs_and_results_not_constants_or_integers() -> None:
    model = parsed(
        """g (float[2] x, int64[1] i, float16[2] h, float[2] w) => (float[2] y)
        <float[2] w = {1.0, 2.0}, float[2] v = {1.0, 2.0}>
        {
            k = Constant<value = float[2] {3.0, 4.0}>()
            a = Add(x, v)
            j = Add(i, i)
            hh = Add(h, h)
            b = Mul(a, k)
            y = Mul(b, w)
        }"""
    )
    assert float_tensors(model)[0] == ["x", "a", "b", "y"]


@pytest.mark.parametrize("position", range(12))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_non_finite_element_is_seen_wherever_it_stands(bad: float, position: int) -> None:
    x = np.linspace(-3, 8, 12, dtype=np.float32)
    x[position] = bad
    scan = Scanner(identity(), ["x", "y"]).run({"x": x})
    assert scan.nonfinite.all()


def test_large_masks_are_finite() -> None:
    """Sums of finfo.max overflow to Inf, which makes no tensor not finite."""
    for x in ([HUGE] * 4, [-HUGE] * 4):
        scan = Scanner(identity(), ["y"]).run({"x": np.array(x, np.float32)})
        assert not scan.nonfinite.any()
        assert (scan.low.item(), scan.high.item()) == (min(x), max(x))


def test_empty_and_scalar_tensors() -> None:
    scan = Scanner(identity(), ["x"]).run({"x": np.zeros(0, np.float32)})
    assert scan.elements.tolist() == [0]
    assert not scan.nonfinite.any()
    scalar = parsed("g (float x) => (float y) { y = Neg(x) }")
    scan = Scanner(scalar, ["x", "y"]).run({"x": np.array(3, np.float32)})
    assert (scan.low.tolist(), scan.high.tolist(), scan.elements.tolist()) == ([3, -3], [3, -3], [1, 1])


OPSETS = [9, 10, 11, 13, 17, 18, 21]


@pytest.mark.parametrize("opset", OPSETS)
def test_opsets(opset: int) -> None:
    model = parsed("g (float[N,2] x) => (float[N,2] y) { a = Mul(x, x)  y = Relu(a) }", opset)
    x = np.float32([[1, -2], [3, np.nan], [np.inf, -1e-3]])
    scan = Scanner(model, ["x", "a", "y"]).run({"x": x})
    assert scan.nonfinite.all()
    np.testing.assert_array_equal(scan.outputs["y"], x * x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("opset", [9, 17])
def test_a_tensor_of_nothing_else(bad: float, opset: int) -> None:
    model = parsed("g (float[N] x) => (float[N] y) { y = Identity(x) }", opset)
    x = np.full(5, bad, np.float32)
    assert Scanner(model, ["x"]).run({"x": x}).nonfinite.tolist() == [True]


def test_permuted_tensors_have_the_root_of_what_they_hold() -> None:
    model = parsed(
        """g (float[2,4] x, int64[2] s, bool c) => (float[8] y)
        <float[2] w = {1.0, 2.0}, int64[1] flat = {-1}, int64[2] perm = {4, 2}>
        {
            t = Transpose(x)  r = Reshape(t, perm)  a = Relu(r)  i = Identity(a)
            v = Reshape(w, flat)  y = Reshape(i, flat)
        }"""
    )
    tensors, _ = float_tensors(model)
    assert roots(model, tensors) == {"x": "x", "t": "x", "r": "x", "a": "a", "i": "a", "v": "v", "y": "a"}


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_only_float32_is_measured_beside_other_types() -> None:
    model = parsed(
        """g (float[2] x, double[2] d, float16[2] h, bfloat16[2] b)
        => (double[2] e, float16[2] i, bfloat16[2] c, float[2] y)
        { e = Neg(d)  i = Neg(h)  c = Identity(b)  y = Cast<to = 1>(e) }"""
    )
    assert float_tensors(model)[0] == ["x", "y"]
    del model.graph.inputs[-1], model.graph.outputs[2]  # numpy has no bfloat16 to feed
    model.graph.remove(next(node for node in model.graph if node.op_type == "Identity"))
    x, d, h = np.float32([1, 2]), np.float64([3, -7]), np.float16([5, np.inf])
    scan = Scanner(model, ["x", "y"]).run({"x": x, "d": d, "h": h})
    assert (scan.high.tolist(), scan.outputs["i"].tolist()) == ([2, 7], [-5, -np.inf])


def test_outputs_that_are_inputs_initializers_or_one_tensor_twice() -> None:
    model = parsed(
        "g (float[2] x, float[2] w) => (float[2] y, float[2] x, float[2] w) <float[2] w = {3.0, 4.0}> { y = Add(x, w) }"
    )
    model.graph.outputs.append(model.graph.outputs[0])
    scan = Scanner(model, float_tensors(model)[0]).run({"x": np.float32([1, 2])})
    assert {name: values.tolist() for name, values in scan.outputs.items()} == {"y": [4, 6], "x": [1, 2], "w": [3, 4]}
    scan = Scanner(model, float_tensors(model)[0]).run({"x": np.float32([1, 2]), "w": np.float32([10, 20])})
    assert scan.outputs["y"].tolist() == [11, 22]
    assert scan.high.tolist() == [2, 22]


def test_a_graph_without_nodes_and_one_without_floats() -> None:
    model = parsed("g (float[2] x) => (float[2] x) { }")
    assert Scanner(model, ["x"]).run({"x": np.float32([1, 2])}).high.tolist() == [2]
    model = parsed("g (int64[2] x) => (int64[2] y) { y = Neg(x) }")
    scan = Scanner(model, []).run({"x": np.array([1, 2])})
    assert (scan.outputs["y"].tolist(), scan.high.size, scan.nonfinite.size) == ([-1, -2], 0, 0)


def test_the_model_is_left_as_it_is_and_names_may_clash() -> None:
    model = parsed(
        """g (float[1] x) => (float[1] "range/low")
        { "range/1/1/Reshape" = Neg(x)  "range/low" = Neg("range/1/1/Reshape") }"""
    )
    before = ir.to_proto(model)
    scan = Scanner(model, ["x", "range/low"]).run({"x": np.float32([5])})
    assert ir.to_proto(model) == before
    assert scan.outputs["range/low"].tolist() == [5]
    assert scan.high.tolist() == [5, 5]


def test_order_keeps_memory_low() -> None:
    """A chain of 40 tensors of 4 MB: the default order would hold 160 MB."""
    import subprocess
    import sys

    code = """
import resource, sys
import numpy as np, onnx.parser, onnx_ir as ir
from truehalf.calibration.ranges import Scanner
chain = "".join(f" t{i} = Add(t{i - 1}, t{i - 1})" for i in range(1, 40))
text = f'<ir_version: 9, opset_import: ["" : 17]> g (float[N] t0) => (float[1] y) {{{chain} y = ReduceMax(t39) }}'
scanner = Scanner(ir.from_proto(onnx.parser.parse_model(text)), [f"t{i}" for i in range(40)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scan = scanner.run({"t0": np.full(2**20, 2.0**-40, np.float32)})
assert scan.high[39] == 0.5
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    grown_mb = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert grown_mb < 80
