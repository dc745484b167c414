"""Right files whose engines are known to be wrong: each report beside a twin that it is not about."""

from __future__ import annotations

import pytest

from tests.truehalf.patterns.linting import findings

ATTENTION = """s = MatMul({q}, {k}) w = Softmax<axis = -1>(s) y = MatMul(w, v)"""
SCALED = "qs = Mul(q, half) ks = Mul(k, half) " + ATTENTION.format(q="qs", k="ks")
CUMSUMS = "a = CumSum(x, zero) y = CumSum{way}(a, {axis})"
SHORTCUT = """left, right = Split<axis = 1>(image, two) c = Conv<kernel_shape = [1, 1]>(right, kernel)
    g = Sigmoid(c) m = Mul(c, g) t = Add({shortcut}, m) y = Concat<axis = 1>(left, {joined}, t)"""


def reported(body: str, version: str | None, dtype: str = "float16") -> list[tuple[str, int]]:
    """Threads and numbers of places."""
    text = f"""({dtype}[1,2,8,4] q, {dtype}[1,2,4,8] k, {dtype}[1,2,8,4] v, float[4,4] x, {dtype}[1,4,8,8] image)
    => ({"float" if "CumSum" in body else dtype}[A] y) <int64 zero = {{0}}, int64 one = {{1}}, int64[2] two = {{2, 2}},
    {dtype}[2,2,1,1] kernel = {{1, 1, 1, 1}}, {dtype} half = {{1}}> {{ {body} }}"""
    found = findings(text, tensorrt=version)
    return [(each.message.partition(":")[0], each.count) for each in found if each.rule == "known-wrong-engine"]


PLAIN = ATTENTION.format(q="q", k="k")
CUMSUM = "onnx/onnx-tensorrt#1034, NVIDIA/TensorRT#4551, #4513"


@pytest.mark.parametrize(
    ("body", "version", "dtype", "expected"),
    [
        (PLAIN, "10.16", "float16", [("NVIDIA/TensorRT#4837", 1)]),
        (PLAIN, "10.16", "float", []),
        (PLAIN, "11.4", "float16", []),
        (PLAIN, None, "float16", []),
        (PLAIN, "10.3", "float", [("NVIDIA/TensorRT#4723, #4742", 1)]),
        (SCALED, "10.7", "float", [("NVIDIA/TensorRT#4333, #4328", 1)]),
        (PLAIN, "10.7", "float", []),
        (CUMSUMS.format(way="", axis="one"), "10.8", "float", [(CUMSUM, 2)]),
        (CUMSUMS.format(way="<reverse = 1>", axis="zero"), "11.4", "float", [(CUMSUM, 2)]),
        (CUMSUMS.format(way="", axis="zero"), "10.8", "float", []),
        (CUMSUMS.format(way="", axis="one"), "10.7", "float", []),
        (SHORTCUT.format(shortcut="right", joined="right"), "11.3", "float16", [("NVIDIA/TensorRT#4854", 1)]),
        (SHORTCUT.format(shortcut="right", joined="m"), "11.3", "float16", []),
        (SHORTCUT.format(shortcut="right", joined="right"), "11.3", "float", []),
        (SHORTCUT.format(shortcut="right", joined="right"), "11.1", "float16", []),
    ],
)
def test_reports_by_pattern_and_version(
    body: str, version: str | None, dtype: str, expected: list[tuple[str, int]]
) -> None:
    assert reported(body, version, dtype) == expected
