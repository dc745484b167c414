"""What is said beside the verdict of a comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.messages import expect
from truehalf.io_spec.spec import InputSpec
from truehalf.verification.chain.caveats import beyond_float16, empty_comparisons, outside_range
from truehalf.verification.runs import Run


def runs(**reference: Any) -> list[Run]:
    arrays = {name: np.array(value) for name, value in reference.items()}
    return [Run(["feed"], 0, arrays, arrays)] * 2


def test_outputs_of_which_nothing_was_compared() -> None:
    infinite, zero = empty_comparisons(runs(a=[np.inf, np.nan], b=[0.0, 0.0], c=[0.0, np.inf], d=[0], e=[0.5, np.nan]))
    (of_a,), (of_b, of_c) = infinite, zero
    for line, name in ((of_a, "'a'"), (of_b, "'b'"), (of_c, "'c'")):
        expect(line, "nothing-compared", f"output {name}")
    for line in (of_b, of_c):
        expect(line, None, 0)
    assert empty_comparisons([]) == ([], [])


def test_inputs_of_a_model_that_normalises_inside() -> None:
    pixels = {"range": [0, 1], "normalization": {"where": "inside the graph"}}
    entry = InputSpec("x", pixels=pixels)
    feeds = [{"x": np.array([0.0, 0.5])}, {"x": np.array([0.2, 255.0])}]
    (line,) = outside_range(feeds, entry)
    expect(line, None, "'x'", "0 to 255", "0 to 1")
    assert outside_range(feeds[:1], entry) == []
    assert outside_range(feeds, InputSpec("x", pixels=pixels | {"normalization": {"where": "outside"}})) == []
    assert outside_range([{"y": np.ones(2)}], entry) == []


def test_inputs_that_float16_does_not_hold() -> None:
    (line,) = beyond_float16({"x": 7e4})
    expect(line, None, "input 'x'", "|x|", "7e+04", 65504, "float16", "Inf")
