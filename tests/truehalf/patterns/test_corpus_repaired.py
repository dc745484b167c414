"""Every bad module of the corpus that a repair fixes: its findings are gone, its outputs are what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.corpus import CASES, exported, outputs
from tests.truehalf.patterns.repairing import assert_equal, run
from truehalf.ir.model_file import load_model, save_model
from truehalf.patterns import PASSES, lint, repair

MENDED = [name for name, case in CASES.items() if case.REPAIRS]
ROUNDING = 1e-6  # sums in another order


def fixed(name: str, folder: Path) -> tuple[Path, Path, dict[str, int]]:
    case = CASES[name]
    before = exported(case.Bad(), case.examples(), folder)
    model = load_model(before)
    report = repair(model, case.REPAIRS)
    assert report.refused == []
    save_model(model, folder / "repaired.onnx")
    return before, folder / "repaired.onnx", report.counts


def rules(path: Path, name: str) -> set[str]:
    return {finding.rule for finding in lint(load_model(path), inputs=CASES[name].INPUT_NAMES)}


@pytest.mark.parametrize("name", MENDED)
def test_findings_are_gone_and_outputs_equal(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    before, after, counts = fixed(name, tmp_path)
    assert all(counts[one] > 0 for one in case.REPAIRS)
    assert set(case.GRAPH_RULES) <= rules(before, name)
    assert not set(case.GRAPH_RULES) & rules(after, name)
    model = onnx.load(after)
    names = [value.name for value in model.graph.input]
    for example in case.examples():
        feed = {key: tensor.numpy() for key, tensor in zip(case.INPUT_NAMES, example, strict=True) if key in names}
        for optimized in (False, True):
            for expected, got in zip(outputs(case.Bad(), example), run(model, feed, optimized), strict=True):
                assert got.shape == tuple(expected.shape)
                largest = float(np.max(np.abs(expected.numpy()), initial=0))
                np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=ROUNDING * largest)


def test_repairs_of_the_corpus_are_passes() -> None:
    assert {one for name in MENDED for one in CASES[name].REPAIRS} <= set(PASSES)


@pytest.mark.parametrize("name", CASES)
def test_all_passes_keep_what_a_good_module_computes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = exported(case.Good(), case.examples(), tmp_path)
    model = load_model(path)
    repair(model, list(PASSES))
    save_model(model, tmp_path / "repaired.onnx")
    before, after = onnx.load(path), onnx.load(tmp_path / "repaired.onnx")
    names = [value.name for value in before.graph.input]
    assert [value.name for value in after.graph.input] == names
    for example in case.examples():
        feed = {key: tensor.numpy() for key, tensor in zip(case.INPUT_NAMES, example, strict=True) if key in names}
        assert_equal(before, after, [feed], ROUNDING)
