"""What the tests of explicit sums share: random feeds, a run of the split graph, and whether splitting only rounds."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from tests.truehalf.emulation.emulation import parsed, run
from truehalf.emulation.half_nodes import NOT_SPLIT
from truehalf.emulation.pessimistic import split_sums

Case = tuple[str, str, str, int]  # text of the graph's inputs, of its outputs, and of its nodes; opset


def feeds_of(model: ir.Model, scale: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        str(value.name): (rng.standard_normal([int(d) for d in value.shape]) * scale).astype(np.float16)  # type: ignore[arg-type]
        for value in model.graph.inputs
    }


def pessimistic(model: ir.Model, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    split = split_sums(model)
    onnx.checker.check_model(ir.to_proto(split), full_check=True)
    assert split.meta[NOT_SPLIT] == {}
    return run(split, **feeds)


def assert_same_but_for_rounding(case: Case, part: float = 2**-8) -> None:
    """A case is split, the graph given stays, and no output differs by more than a part of the largest number in it.

    A unit of FP16 is 2^-11 to 2^-10 of its number.
    """
    inputs, outputs, body, opset = case
    model = parsed(f"g ({inputs}) => ({outputs}) {body}", opset=opset)
    feeds = feeds_of(model)
    before = list(ir.to_proto(model).graph.node)
    once, split = run(model, **feeds), pessimistic(model, **feeds)
    assert list(ir.to_proto(model).graph.node) == before
    assert [n.op_type for n in split_sums(model).graph] != [n.op_type for n in model.graph]
    for name, expected in once.items():
        assert split[name].shape == expected.shape
        error = np.abs(split[name].astype(np.float64) - expected).max()
        assert error <= part * np.abs(expected).max()
