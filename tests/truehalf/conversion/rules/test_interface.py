"""Graph inputs and outputs that become float16 and cannot hold what was measured."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from tests.measuring.converted import only
from tests.messages import expect
from tests.truehalf.conversion.rules.judging import HEAD
from truehalf.calibration.ranges_form import read_ranges
from truehalf.conversion.convert import convert_to_fp16
from truehalf.ir.normalize import PREPARE

TEXT = (
    HEAD
    + """(float[2] x, float[2] u, int64[1] i) => (float[2] y)
    { a = Add(x, u) y = Relu(a) }"""
)
TENSORS: dict[str, Any] = {
    "x": {"absmax": 65504.0, "sample": "s1"},
    "u": {"absmax": 1e5, "sample": "s2"},
    "i": {"absmax": 1e9, "sample": "s2"},
    "a": {"absmax": 1e9, "sample": "s2"},
    "y": {"absmax": 1e5, "sample": "s3"},
}
Facts = tuple[str, ...]
U: Facts = ("input", "'u'", "1e+05 > 65504", "s2", "keep_io_types")
Y: Facts = ("output", "'y'", "1e+05 > 65504", "s3", "keep_io_types")


def assert_warned(warnings: list[str], expected: list[Facts]) -> None:
    """One warning for each, in this order, with these facts."""
    for warning, facts in zip(warnings, expected, strict=True):
        expect(warning, None, *facts)


@pytest.mark.parametrize(
    ("keep", "expected"), [(True, []), (["u", "y"], []), (["u"], [Y]), ([], [U, Y]), (False, [U, Y])]
)
@pytest.mark.parametrize("rules", ["default", "autocast"])
def test_what_becomes_float16_and_is_beyond_it(keep: bool | list[str], expected: list[Facts], rules: str) -> None:
    model = ir.from_onnx_text(TEXT)
    PREPARE(model)
    result = convert_to_fp16(
        model, read_ranges({"tensors": TENSORS}), only(rules=rules, safety_factor=2.0, keep_io_types=keep)
    )
    assert_warned(result.decisions.warnings, expected)


def test_an_input_that_decides_a_shape() -> None:
    text = HEAD + "(float[1] t, float[4] x) => (float[n] y) { a = Mul(t, t) i = Cast<to = 7>(a) y = Tile(x, i) }"
    for kept, warned in ((False, 1), (True, 0), (["x"], 1), (["t"], 0)):
        model = ir.from_onnx_text(text)
        PREPARE(model)
        warnings = convert_to_fp16(model, None, only(keep_io_types=kept)).decisions.warnings
        assert len(warnings) == warned
        for warning in warnings:
            expect(warning, None, "input", "'t'", "float16", "keep_io_types")
