"""Graph inputs and outputs that become float16 and cannot hold what was measured."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from stages.graph.decide import Rules
from stages.graph.halve import halve
from stages.graph.ready import make_ready
from tests.stages.graph.rules.judging import HEAD

TEXT = (
    HEAD
    + """(float[2] x, float[2] u, int64[1] i) => (float[2] y, float[2] w) <float[2] w = {1.0, 1e6}>
    { a = Add(x, u) y = Relu(a) }"""
)
TENSORS: dict[str, Any] = {
    "x": {"absmax": 65504.0, "sample": "s1"},
    "u": {"absmax": 1e5, "sample": "s2"},
    "i": {"absmax": 1e9, "sample": "s2"},
    "a": {"absmax": 1e9, "sample": "s2"},
    "y": {"absmax": 1e5},
}
U = "graph input 'u' becomes float16 but reaches |x| = 1e+05 > 65504 on sample s2; keep_io_types keeps it float32"
Y = "graph output 'y' becomes float16 but reaches |x| = 1e+05 > 65504; keep_io_types keeps it float32"
W = "graph output 'w' becomes float16 but reaches |x| = 1e+06 > 65504; keep_io_types keeps it float32"


@pytest.mark.parametrize(
    ("keep", "expected"), [(True, []), (["u", "y", "w"], []), (["u", "w"], [Y]), ([], [U, Y, W]), (False, [U, Y, W])]
)
@pytest.mark.parametrize("rules", ["default", "autocast"])
def test_what_becomes_float16_and_is_beyond_it(keep: bool | list[str], expected: list[str], rules: str) -> None:
    model = ir.from_onnx_text(TEXT)
    make_ready(model)
    halved = halve(model, {"tensors": TENSORS}, Rules(rules=rules, safety_factor=2.0), keep_io_types=keep)
    assert halved.decisions.warnings == expected


def test_without_ranges_only_constants_are_known() -> None:
    model = ir.from_onnx_text(TEXT)
    make_ready(model)
    assert halve(model, None, Rules(), keep_io_types=False).decisions.warnings == [W]
