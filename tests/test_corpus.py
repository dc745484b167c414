"""The corpus is what it says: Bad and Good compute the same, and the graph of Bad alone shows the pattern."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from tests.corpus import CASES, exported, outputs
from truehalf.runtime.ort import Session

# an operator that is in the file of Bad and not in that of Good; what is not here shows in other ways
SHOWS = {
    "atan2": "Where",
    "bitwise_bool": "And",
    "bool_assignment": "Where",
    "bool_index": "GatherND",
    "data_dependent_if": "If",
    "data_dependent_loop": "Loop",
    "determinant": "Det",
    "empty_reshape": "Concat",
    "grid_sample": "GridSample",
    "layer_norm": "Pow",
    "masked_assignment": "ScatterND",
    "nonzero_threshold": "NonZero",
    "range_of_count": "ReduceSum",
    "rope": "Tile",
    "sequence": "SequenceEmpty",
    "squeeze": "If",
    "unique": "Unique",
    "where": "Where",
}


def op_types(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("name", CASES)
def test_bad_and_good_compute_the_same(name: str) -> None:
    case = CASES[name]
    assert len(case.examples()) >= 2
    for example in case.examples():
        for bad, good in zip(outputs(case.Bad(), example), outputs(case.Good(), example), strict=True):
            torch.testing.assert_close(bad, good)


@pytest.mark.parametrize("name", CASES)
def test_good_exported_computes_the_same_on_every_example(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    session = Session(exported(case.Good(), case.examples(), tmp_path))
    for example in case.examples():
        got = session.run(dict(zip(case.INPUT_NAMES, (tensor.numpy() for tensor in example), strict=True)))
        for value, expected in zip(got.values(), outputs(case.Good(), example), strict=True):
            np.testing.assert_allclose(value, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SHOWS)
def test_the_pattern_shows_in_bad_alone(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert SHOWS[name] in op_types(exported(case.Bad(), case.examples(), tmp_path))
    assert SHOWS[name] not in op_types(exported(case.Good(), case.examples(), tmp_path))
