"""Casts around data movement."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.truehalf.conversion.cast_graphs import cleaned, graph, ops, run

H4 = "float16[2,2] x", "float16[2,2] y"


@pytest.mark.parametrize(
    "move",
    [
        "b = Transpose<perm = [1, 0]>(a)",
        "b = Reshape(a, shape)",
        "b = Identity(a)",
        "b = Flatten(a)",
        "b = Tile(a, ones)",
        "b = Expand(a, shape)",
        "b = Gather(a, indices)",
        "b = Slice(a, ones, shape, indices) ",
        "b = Trilu(a, zero)",
        "u = Unsqueeze(a, one)  b = Squeeze(u, one)",
        "p = Pad(a, pads)  b = Slice(p, zeros, shape)",
        "b = GatherElements(a, grid)",
        "t = Transpose(a)  u = Reshape(t, shape)  b = Transpose(u)",
        "p, q = Split<axis = 0>(a, ones)  b = Concat<axis = 1>(q, p)  n = Shape(p)",
        "c = Constant<value = float[2,2] {0.1, 70000.0, -1.0, 3.0}>()  b = Where(cond, a, c)",
        "c = Constant<value = float {0.1}>()  p = Pad(a, pads, c)  b = Slice(p, ones, threes)",
    ],
)
def test_casts_around_data_movement_go_exactly(move: str) -> None:
    used = {
        "shape": "int64[2] {2, 2}", "ones": "int64[2] {1, 1}", "zeros": "int64[2] {0, 0}", "threes": "int64[2] {3, 3}",
        "one": "int64[1] {1}", "zero": "int64 {0}", "indices": "int64[2] {1, 0}", "pads": "int64[4] {1, 0, 0, 1}",
        "grid": "int64[2,2] {1, 0, 0, 1}", "cond": "bool[2,2] {1, 0, 0, 1}",
    }  # fmt: skip
    constants = " ".join(f"{name} = Constant<value = {value}>()" for name, value in used.items())
    out = "float16[1,4] y" if "axis = 1" in move else "float16[a,b] y"
    proto = graph(f"{constants} a = Cast<to = 1>(x) {move} c16 = Cast<to = 10>(b) y = Relu(c16)", H4[0], out)
    result, report = cleaned(proto, strict=True)
    assert report.casts_after == 0 and report.rules["moved"] == 1
    x = np.array([[0.1, -3], [1e-6, 4]], np.float16)
    np.testing.assert_array_equal(run(result, x), run(proto, x))


def test_a_rounding_around_data_movement() -> None:
    proto = graph(
        "a = Cast<to = 10>(x)  b = Transpose(a)  c = Cast<to = 1>(b)  y = Relu(c)", "float[2,2] x", "float[2,2] y"
    )
    assert cleaned(proto, strict=True)[1].rules == {}
    result, report = cleaned(proto)
    assert ops(result) == ["Transpose", "Relu"]
    assert report.rules == {"dead": 1, "moved_rounding": 1}


def test_a_mask_is_cast_once() -> None:
    """bool -> f32 -> Unsqueeze -> f16, as exporters write attention masks."""
    body = "a = Cast<to = 1>(x)  b = Transpose(a)  c = Cast<to = 10>(b)  y = Relu(c)"
    result, _ = cleaned(graph(body, "bool[2,2] x", "float16[2,2] y"), strict=True)
    assert ops(result) == ["Cast", "Transpose", "Relu"]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("a = Cast<to = 1>(x) y = Transpose(a) c = Cast<to = 10>(y) z = Relu(c)", "float[2,2] y, float16[2,2] z"),
        ("a = Cast<to = 1>(x) b = Transpose(a) c = Cast<to = 10>(b) z = Relu(c) y = Relu(b)",
         "float[2,2] y, float16[2,2] z"),
        ("a = Cast<to = 1>(x) b = Concat<axis = 0>(a, w) c = Cast<to = 10>(b) y = Relu(c)", "float16[4,2] y"),
        ("a = Cast<to = 7>(x) b = Transpose(a) c = Cast<to = 10>(b) y = Relu(c)", "float16[2,2] y"),
        ("a = Cast<to = 1>(x) b = Softmax(a) c = Cast<to = 10>(b) y = Relu(c)", "float16[2,2] y"),
        ("a = Cast<to = 1>(x) i = Constant<value = int64[1,1] {0}>() u = Constant<value = float[1,2] {1, 2}>() "
         "b = ScatterND<reduction = \"add\">(a, i, u) c = Cast<to = 10>(b) y = Relu(c)", "float16[2,2] y"),
    ],
)  # fmt: skip
def test_casts_that_somebody_needs_stay_where_they_are(body: str, outputs: str) -> None:
    """The result is an output, is read as it is, is joined with float32; a truncation; no move; a sum."""
    proto = graph(body, "float16[2,2] x, float[2,2] w", outputs)
    _, report = cleaned(proto)
    assert report.casts_after == report.casts_before


def test_a_move_whose_schema_lacks_the_type_keeps_its_casts() -> None:
    """Trilu has bfloat16, Pad has bool since opset 13 only."""
    head = '<ir_version: 8, opset_import: ["": 11]> g (bool[2,2] x, int64[4] p) => (bool[c,d] y)'
    proto = onnx.parser.parse_model(head + " { a = Cast<to = 1>(x) b = Pad(a, p) y = Cast<to = 9>(b) }")
    _, report = cleaned(proto)
    assert report.casts_after == 2


def test_the_output_of_a_cast_behind_a_move_keeps_its_name() -> None:
    result, _ = cleaned(graph("a = Cast<to = 1>(x)  b = Transpose(a)  y = Cast<to = 10>(b)", *H4))
    assert ops(result) == ["Transpose"]
