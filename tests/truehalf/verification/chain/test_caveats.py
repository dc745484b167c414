"""What is said beside the verdict of a comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.messages import expect
from truehalf.io_spec.spec import InputSpec, Normalization
from truehalf.verification.chain.caveats import outside_range


def test_inputs_of_a_model_that_normalises_inside() -> None:
    entry = InputSpec("x", range=(0, 1), normalization=Normalization(where="inside the graph"))
    feeds = [{"x": np.array([0.0, 0.5])}, {"x": np.array([0.2, 255.0])}]
    (line,) = outside_range(feeds, entry)
    expect(line, None, "'x'", "0 to 255", "0 to 1")
    assert outside_range(feeds[:1], entry) == []
    assert outside_range(feeds, replace(entry, normalization=Normalization(where="outside"))) == []
    assert outside_range([{"y": np.ones(2)}], entry) == []
