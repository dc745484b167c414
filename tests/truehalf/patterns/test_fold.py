"""Constants, static sizes and Ifs that never change."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.truehalf.patterns.repairing import assert_equal, ops, parsed, repaired, run, uniform
from truehalf.patterns.fold import SMALL


def test_arithmetic_of_constants() -> None:
    before = parsed(
        """net (float[n, 3] x) => (float[n, 3] y)
        <float[3] a = {1.0, 2.0, 3.0}, float[3] b = {0.5, -1.0, 4.0}>
        { c = Mul (a, b)  d = Sqrt (a)  e = Add (c, d)  y = Add (x, e) }"""
    )
    after, report = repaired(before, "fold_constants")
    assert ops(after) == ["Add"]
    assert len(after.graph.initializer) == 1
    assert report.counts == {"fold_constants": 3}
    assert_equal(before, after, [{"x": uniform(2, 3)}], rtol=1e-7)  # numpy's sqrt and ONNX Runtime's


def test_static_sizes_of_a_dynamic_tensor() -> None:
    before = parsed(
        """net (float[n, 3, 4] x) => (float[n, 12] y)
        <int64[1] zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] minus = {-1}>
        { s = Shape (x)  h = Gather (s, one)  w = Gather (s, two)  hw = Mul (h, w)  flat = Reshape (hw, minus)
          n = Gather (s, zero)  sizes = Concat <axis = 0> (n, flat)  y = Reshape (x, sizes) }"""
    )
    after, _ = repaired(before, "fold_constants")
    assert ops(after) == ["Shape", "Gather", "Concat", "Reshape"]
    assert_equal(before, after, [{"x": uniform(n, 3, 4)} for n in (1, 5)])


@pytest.mark.parametrize("taken", [0, 1])
def test_if_becomes_its_branch(taken: int) -> None:
    before = parsed(
        f"""net (float[n, 3] x) => (float[n, 3] y, float[n, 3] z)
        <int64 flag = {{{taken}}}, int64 zero = {{0}}>
        {{ c = Greater (flag, zero)
          y, z = If (c) <
            then_branch = yes () => (float[n, 3] p, float[n, 3] q)
                {{ k = Constant <value = float {{2.0}}> ()  p = Mul (x, k)  q = Identity (x) }},
            else_branch = no () => (float[n, 3] r, float[n, 3] s) {{ r = Neg (x)  s = Exp (r) }}
          > }}"""
    )
    after, report = repaired(before, "fold_constants")
    assert "If" not in ops(after)
    assert ("Exp" in ops(after), "Mul" in ops(after)) == (not taken, bool(taken))
    assert report.counts == {"fold_constants": 2}
    assert_equal(before, after, [{"x": uniform(2, 3)}])


@pytest.mark.parametrize("output", ["y = If", "a = If"])
def test_a_branch_may_hold_what_it_gives(output: str) -> None:
    before = parsed(
        f"""net (float[3] x) => (float[3] y) <bool yes = {{1}}>
        {{ {output} (yes) <
            then_branch = a () => (float[3] p) <float[3] p = {{1.0, 2.0, 3.0}}> {{ }},
            else_branch = b () => (float[3] r) {{ r = Abs (x) }}> {"y = Add (a, x)" if output[0] == "a" else ""} }}"""
    )
    after, _ = repaired(before, "fold_constants")
    assert "If" not in ops(after)
    assert_equal(before, after, [{"x": uniform(3)}])


def test_if_inside_a_branch_of_another() -> None:
    before = parsed(
        """net (bool given, float[3] x) => (float[3] y)
        <bool never = {0}>
        { y = If (given) <
            then_branch = yes () => (float[3] p) {
                p = If (never) <then_branch = a () => (float[3] q) { q = Neg (x) },
                                else_branch = b () => (float[3] r) { r = Abs (x) }> },
            else_branch = no () => (float[3] s) { s = Exp (x) }
          > }"""
    )
    after, report = repaired(before, "fold_constants")
    assert report.counts == {"fold_constants": 1}
    assert [node.op_type for node in after.graph.node[0].attribute[0].g.node] == ["Abs"]
    assert_equal(before, after, [{"x": uniform(3), "given": np.array(given)} for given in (True, False)])


def test_a_table_that_would_blow_up_stays() -> None:
    side = int((SMALL / 4) ** 0.5) + 1
    before = parsed(
        f"""net (float[{side}, {side}] x) => (float[{side}, {side}] y)
        <int64[2] sizes = {{{side}, {side}}}, float one = {{1.0}}> {{ t = Expand (one, sizes)  y = Add (x, t) }}"""
    )
    after, report = repaired(before, "fold_constants")
    assert ops(after) == ["Expand", "Add"]
    assert report.counts == {"fold_constants": 0}


def test_a_large_weight_may_be_turned_where_the_old_one_goes() -> None:
    def model(readers: str) -> onnx.ModelProto:
        made = parsed(
            f"""net (float[n, 200] x, float[100, 200] w) => (float[n, 100] y, float[n, 100] z)
            {{ t = Transpose <perm = [1, 0]> (w)  y = MatMul (x, t)  {readers} }}"""
        )
        del made.graph.input[1]
        made.graph.initializer.append(onnx.numpy_helper.from_array(uniform(100, 200), "w"))
        return made

    after, report = repaired(model("z = Neg (y)"), "fold_constants")
    assert (ops(after), report.counts) == (["MatMul", "Neg"], {"fold_constants": 1})
    both, report = repaired(model("z = Gemm <transB = 1> (x, w)"), "fold_constants")
    assert (ops(both)[0], report.counts) == ("Transpose", {"fold_constants": 0})


def test_random_and_quantized_constants_stay() -> None:
    before = parsed(
        """net (float[2] x) => (float[2] y)
        <uint8[2] q = {1, 200}, float scale = {0.5}, uint8 zero = {128}>
        { w = DequantizeLinear (q, scale, zero)  r = RandomUniform <shape = [2]> ()  a = Add (x, w)  y = Add (a, r) }"""
    )
    after, _ = repaired(before, "fold_constants")
    assert ops(after) == ["DequantizeLinear", "RandomUniform", "Add", "Add"]


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "float"])
@pytest.mark.parametrize(
    "body",
    [
        "e = Gather (t, i)",
        "p = Gather (t, none)  e = Unsqueeze (p, i)",
        "e = Slice (t, i, two)",
        "p = Slice (t, i, two)  q = Identity (p)  e = Concat <axis = 0> (q, q)",
    ],
)
def test_moved_constants_keep_their_type(dtype: str, body: str) -> None:
    before = parsed(
        f"""net ({dtype}[n] x) => ({dtype}[n] y)
        <{dtype}[3] t = {{7, 8, 9}}, int64[1] i = {{0}}, int64 none = {{1}}, int64[1] two = {{1}}>
        {{ {body}  y = Mul (x, e) }}""".replace("{7, 8, 9}", "{7.0, 8.0, 9.0}" if dtype == "float" else "{7, 8, 9}")
    )
    after, report = repaired(before, "fold_constants")
    assert ops(after) == ["Mul"]
    assert report.counts["fold_constants"] > 0
    assert_equal(before, after, [{"x": np.array([2], dtype.replace("float", "float32"))}])


def test_shapes_that_are_stacked_along_the_second_axis() -> None:
    before = parsed(
        """net (float[2, 3] x, float[5, 7] u) => (int64[4] y, int64[2] z)
        <int64[1] one = {1}, int64[1] minus = {-1}, int64[1] two = {2}>
        { s = Shape (x)  t = Shape (u)  a = Unsqueeze (s, one)  b = Unsqueeze (t, one)  k = Concat <axis = 1> (a, b)
          r = Reshape (k, minus)  y = Identity (r)  g = Gather <axis = 1> (k, one)  l = Reshape (g, minus)
          z = Identity (l) }"""
    )
    after, _ = repaired(before, "fold_constants")
    feed = {"x": uniform(2, 3), "u": uniform(5, 7)}
    assert_equal(before, after, [feed])
    assert [output.tolist() for output in run(after, feed)] == [[2, 5, 3, 7], [5, 7]]


def test_a_size_that_is_picked_by_two_axes_of_indices() -> None:
    before = parsed(
        """net (float[n, 3, 4] x) => (int64[1, 2] y) <int64[1, 2] at = {2, -2}>
        { s = Shape (x)  g = Gather (s, at)  y = Identity (g) }"""
    )
    after, _ = repaired(before, "fold_constants")
    assert_equal(before, after, [{"x": uniform(2, 3, 4)}])


def test_a_slice_that_ends_before_its_start_is_empty() -> None:
    before = parsed(
        """net (float[n, 3, 4] x) => (int64[k] y)
        <int64[1] one = {1}, int64[1] far = {-9}, int64[1] seven = {7}>
        { s = Shape (x)  p = Slice (s, one, far)  q = Slice (s, one, seven)  y = Concat <axis = 0> (p, q) }"""
    )
    after, _ = repaired(before, "fold_constants")
    assert_equal(before, after, [{"x": uniform(2, 3, 4)}])


def branches(name: str) -> onnx.ModelProto:
    """Two Ifs that never change, whose bodies call different values by one name."""
    info = onnx.helper.make_tensor_value_info

    def body(inner: str, to: int, result: str) -> onnx.GraphProto:
        nodes = [
            onnx.helper.make_node("Cast", ["x"], [inner], f"/net/{result}/Cast", to=to),
            onnx.helper.make_node("Cast", [inner], [f"{result}_2"], f"/net/{result}/Cast_1", to=1),
            onnx.helper.make_node("Add", [f"{result}_2", "k"], [result], f"/net/{result}/Add"),
        ]
        k = onnx.helper.make_tensor("k", 1, [], [float(to)])
        return onnx.helper.make_graph(nodes, result, [], [info(result, 1, ["n"])], [k])

    nodes = [
        onnx.helper.make_node(
            "If", ["yes"], ["a"], "/net/a", then_branch=body(name, 7, "p"), else_branch=body("e", 6, "q")
        ),
        onnx.helper.make_node(
            "If", ["no"], ["b"], "/net/b", then_branch=body("e", 7, "r"), else_branch=body(name, 9, "s")
        ),
        onnx.helper.make_node(
            "If", ["c"], ["d"], "/net/d", then_branch=body(name, 6, "u"), else_branch=body("e", 7, "v")
        ),
        onnx.helper.make_node("Sum", ["a", "b", "d"], ["y"], "/net/y"),
    ]
    constants = [onnx.helper.make_tensor("yes", 9, [], [True]), onnx.helper.make_tensor("no", 9, [], [False])]
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", 1, ["n"]), info("c", 9, [])], [info("y", 1, ["n"])], constants
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("passes", [["fold_constants"], ["fold_constants", "deduplicate_names"]])
def test_names_that_bodies_share(passes: list[str]) -> None:
    before = branches("t")
    after, report = repaired(before, *passes)
    assert report.counts["fold_constants"] == 2
    values = np.array([1.7, -2.7, 0.0], np.float32)
    assert_equal(before, after, [{"x": values, "c": np.array(given)} for given in (True, False)])
    assert [node.op_type for node in after.graph.node if node.op_type == "If"] == ["If"]
