"""Where NaN and Inf come from."""

from __future__ import annotations

import numpy as np

from tests.truehalf.calibration.small_graphs import parsed
from truehalf.calibration.nonfinite import nonfinite_constants, origins
from truehalf.calibration.ranges import Scanner, float_tensors


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
    scan = Scanner(model, tensors).run(feeds)
    nonfinite = {"mask", *(name for name, bad in zip(tensors, scan.nonfinite, strict=True) if bad)}
    assert nonfinite == {"mask", "m", "q", "r", "y"}
    assert [value.name for value in origins(model, nonfinite, nonfinite)] == ["mask", "q"]
    assert [value.name for value in origins(model, nonfinite, ["y"])] == ["q"]
