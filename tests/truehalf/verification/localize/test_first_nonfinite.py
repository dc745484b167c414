"""Naming the place where numbers stop being finite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from tests.truehalf.emulation.test_sessions import OVERFLOW, saved
from truehalf.verification.localize.first_nonfinite import first_nonfinite

REFERENCE = """g (float[2,2] x) => (float[2,2] y)
<float[1] k = {1000.0}, float[1] q = {0.001}, float[2,2] unit = {1.0, 0.0, 0.0, 1.0}>
{ a = Mul(x, k)  b = Mul(a, q)  y = MatMul(b, unit) }"""


def test_the_overflowing_node_is_named(tmp_path: Path) -> None:
    path, reference = saved(tmp_path / "m.onnx", OVERFLOW), saved(tmp_path / "r.onnx", REFERENCE)
    found = first_nonfinite(path, {"x": np.float32([[100, 1], [1, -100]])}, reference)
    assert len(found) == 1
    first = found[0]
    assert (first.op_type, first.tensor) == ("Mul", "a")
    assert (first.nan, first.posinf, first.neginf) == (0, 1, 1)
    assert first.inputs_absmax == 1000
    assert first.unrounded_absmax == 100_000
    assert first.reference_finite is True
    assert first.reaches_output


def test_nothing_is_found_in_a_finite_run(tmp_path: Path) -> None:
    assert first_nonfinite(saved(tmp_path / "m.onnx", OVERFLOW), {"x": np.eye(2, dtype=np.float32)}) == []


def test_a_cast_that_overflows_is_an_origin(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", OVERFLOW)
    feeds = {"x": np.full((2, 2), 1e5, np.float32)}
    first = first_nonfinite(path, feeds)[0]
    assert (first.op_type, first.tensor, first.unrounded_absmax) == ("Cast", "h", 1e5)
    assert first.reference_finite is None
    reference = saved(tmp_path / "r.onnx", REFERENCE)
    assert first_nonfinite(path, feeds, reference)[0].reference_finite is True


def test_masks_inputs_and_constants(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "m.onnx",
        """g (float16[2] x, float[2] z) => (float16[2] y, float[2] w)
        <float16[2] mask = {0, 64512}>
        { m = Add(x, mask)  y = Softmax(m)  w = Relu(z) }""",
    )
    found = first_nonfinite(path, {"x": np.float16([1, 2]), "z": np.float32([np.nan, 1])})
    assert [(item.op_type, item.tensor, item.reaches_output) for item in found] == [
        ("Input", "z", True),
        ("Initializer", "mask", False),
    ]
    assert (found[1].neginf, found[1].nan) == (1, 0)
    overflowing = first_nonfinite(path, {"x": np.float32([1e5, 2]), "z": np.float32([1, 1])})
    assert ("Input", "x") in [(item.op_type, item.tensor) for item in overflowing]


def test_a_subgraph_counts_as_one_node(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "m.onnx",
        """g (float16[1] x, bool c) => (float16[1] y) {
            y = If(c) <
                then_branch = t () => (float16[1] o1) { o1 = Mul(x, x) },
                else_branch = e () => (float16[1] o2) { o2 = Identity(x) }
            >
        }""",
    )
    feeds = {"x": np.float16([300])}
    assert [item.op_type for item in first_nonfinite(path, feeds | {"c": np.array(True)})] == ["If"]
    assert first_nonfinite(path, feeds | {"c": np.array(False)}) == []


def test_many_non_finite_tensors_are_located_at_once() -> None:
    """Everything behind the first NaN is not finite: only the origin is counted."""
    chain = "".join(f" t{i} = Neg(t{i - 1})" for i in range(1, 400))
    text = f'<ir_version: 9, opset_import: ["" : 17]> g (float16[1] x) => (float16[1] t399) {{ t0 = Mul(x, x){chain} }}'
    found = first_nonfinite(ir.from_proto(onnx.parser.parse_model(text)), {"x": np.float16([300])})
    assert [item.tensor for item in found] == ["t0"]


SUMS = """g (float16[1,600] x) => (float16[1,600] z, float16[1,1] s)
{
    [squares] s = ReduceSumSquare<axes = [1], keepdims = 1>(x)
    [soft] p = Softmax(x)
    [mean] m = ReduceMean<axes = [1], keepdims = 1>(x)
    [less] d = Sub(x, m)
    [last] z = Mul(d, p)
}"""


def test_a_sum_that_overflows_inside_a_node_is_that_nodes(tmp_path: Path) -> None:
    """600 terms of 200 add up to 120000; their mean is 200, which only a kernel with an FP16 sum does not find."""
    path = saved(tmp_path / "m.onnx", SUMS)
    feeds = {"x": np.full((1, 600), 200, np.float32)}
    plain = [item.node for item in first_nonfinite(path, feeds)]
    assert plain == ["squares"]
    found = first_nonfinite(path, feeds, pessimistic=True)
    assert [(item.node, item.op_type, item.tensor, item.inside) for item in found] == [
        ("squares", "ReduceSumSquare", "s", True),
        ("mean", "ReduceMean", "m", True),
    ]
    assert [item.reaches_output for item in found] == [True, True]
    assert found[1].posinf == 1
    assert found[1].unrounded_absmax is not None and 65520 <= found[1].unrounded_absmax <= 120000
