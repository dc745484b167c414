"""Statistics made inside the graph against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from stages.io import StageError
from stages.ort.ranges import Counter, Scanner, float_tensors, nonfinite_constants, nonfinite_tensors, origins

HUGE = float(np.finfo(np.float32).max)


def parsed(text: str, opset: int = 17) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(proto)


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
    assert float_tensors(model) == ["x", "a", "b", "y"]


@pytest.mark.parametrize("position", range(12))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_non_finite_element_is_seen_wherever_it_stands(bad: float, position: int) -> None:
    x = np.linspace(-3, 8, 12, dtype=np.float32)
    x[position] = bad
    scan = Scanner(identity(), ["x", "y"]).run({"x": x})
    assert scan.suspect.all()
    counts = Counter(identity(), {"x": (2.0,), "y": ()}, {"x"}).run({"x": x})["x"]
    assert (counts.nan, counts.posinf, counts.neginf) == (np.isnan(bad), bad == np.inf, bad == -np.inf)
    finite = x[np.isfinite(x)]
    assert (counts.low, counts.high) == (finite.min(), finite.max())
    assert counts.absmax == np.abs(finite).max()
    assert counts.above == {2.0: (np.abs(finite) > 2).sum()}


def test_large_masks_are_finite() -> None:
    """Sums of finfo.max overflow, to Inf or, with both signs, perhaps to NaN; neither makes a tensor not finite."""
    model = identity()
    for x in ([HUGE] * 4, [-HUGE] * 4, [HUGE] * 64 + [-HUGE] * 64, [HUGE, -HUGE] * 64):
        feeds = {"x": np.array(x, np.float32)}
        scan = Scanner(model, ["y"]).run(feeds)
        assert not scan.nonfinite.any()
        assert nonfinite_tensors(model, feeds, ["y"], scan) == set()
        assert (scan.low.item(), scan.high.item()) == (min(x), max(x))
        assert Counter(model, {"y": (65504,)}, {"y"}).run(feeds)["y"].above == {65504: len(x)}


def test_an_uncertain_sum_is_counted() -> None:
    model = identity()
    feeds = {"x": np.array([1, np.nan, HUGE, -HUGE], np.float32)}
    scan = Scanner(model, ["y"]).run(feeds)
    assert nonfinite_tensors(model, feeds, ["y"], scan) == {"y"}


def test_empty_and_scalar_tensors() -> None:
    scan = Scanner(identity(), ["x"]).run({"x": np.zeros(0, np.float32)})
    assert scan.elements.tolist() == [0]
    assert not scan.suspect.any()
    assert Counter(identity(), {"x": (1.0,)}, {"x"}).run({"x": np.zeros(0, np.float32)})["x"].absmax is None
    scalar = parsed("g (float x) => (float y) { y = Neg(x) }")
    scan = Scanner(scalar, ["x", "y"]).run({"x": np.array(3, np.float32)})
    assert (scan.low.tolist(), scan.high.tolist(), scan.elements.tolist()) == ([3, -3], [3, -3], [1, 1])


def test_nothing_finite_has_no_extremes() -> None:
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    counts = Counter(identity(), {"x": (1.0,)}, {"x"}).run({"x": x})["x"]
    assert (counts.nan, counts.posinf, counts.neginf, counts.low, counts.high) == (1, 1, 1, None, None)
    assert counts.nonfinite == 3
    assert counts.above == {1.0: 0}


@pytest.mark.parametrize("opset", [10, 13, 17, 18, 21])
def test_opsets(opset: int) -> None:
    model = parsed("g (float[N,2] x) => (float[N,2] y) { a = Mul(x, x)  y = Relu(a) }", opset)
    x = np.float32([[1, -2], [3, np.nan]])
    scan = Scanner(model, ["x", "a", "y"]).run({"x": x})
    assert scan.suspect.all()
    np.testing.assert_array_equal(scan.outputs["y"], x * x)
    assert Counter(model, {"a": (3.5,)}, {"a"}).run({"x": x})["a"].above == {3.5: 2}


def test_an_old_opset_is_refused() -> None:
    with pytest.raises(StageError, match="opset 9; expected 10 or later"):
        Scanner(parsed("g (float[1] x) => (float[1] y) { y = Neg(x) }", 9), ["x"])


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


def test_origins_follow_non_finite_values_only() -> None:
    """The mask's -Inf ends in a Softmax; the quotient's NaN reaches the output."""
    model = parsed(
        """g (float[2] x) => (float[2] y)
        <float[2] mask = {0.0, -inf}, float[2] zero = {0.0, 0.0}>
        {
            m = Add(x, mask)
            s = Softmax(m)
            q = Div(zero, zero)
            r = Mul(q, s)
            y = Relu(r)
        }"""
    )
    assert nonfinite_constants(model) == {"mask"}
    feeds = {"x": np.float32([1, 2])}
    tensors = float_tensors(model)
    nonfinite = nonfinite_tensors(model, feeds, tensors, Scanner(model, tensors).run(feeds)) | {"mask"}
    assert nonfinite == {"mask", "m", "q", "r", "y"}
    assert [value.name for value in origins(model, nonfinite, nonfinite)] == ["mask", "q"]
    assert [value.name for value in origins(model, nonfinite, ["y"])] == ["q"]


def test_order_keeps_memory_low() -> None:
    """A chain of 40 tensors of 4 MB: the default order would hold 160 MB."""
    import subprocess
    import sys

    code = """
import resource, sys
import numpy as np, onnx.parser, onnx_ir as ir
from stages.ort.ranges import Scanner
chain = "".join(f" t{i} = Add(t{i - 1}, t{i - 1})" for i in range(1, 40))
text = f'<ir_version: 9, opset_import: ["" : 17]> g (float[N] t0) => (float[1] y) {{{chain} y = ReduceMax(t39) }}'
scanner = Scanner(ir.from_proto(onnx.parser.parse_model(text)), [f"t{i}" for i in range(40)], intra_op_num_threads=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scan = scanner.run({"t0": np.full(2**20, 2.0**-40, np.float32)})
assert scan.high[39] == 0.5
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    grown_mb = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert grown_mb < 80
