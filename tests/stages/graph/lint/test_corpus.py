"""Every pattern of the corpus: what is bad is found, what is good is not, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.graph.lint import lint
from stages.onnx_files import load_model
from tests.corpus import CASES, exported

# True of a graph beside what its case is about: its output's axis 1 follows height and width, good as it is.
BESIDE = {("fixed_positions", "Good"): {"deployment-io"}}


def rules_of(name: str, kind: str, folder: Path) -> set[str]:
    case = CASES[name]
    path = exported(getattr(case, kind)(), case.examples(), folder)
    rules = {finding.rule for finding in lint(load_model(path), inputs=case.INPUT_NAMES)}
    beside = BESIDE.get((name, kind), set())
    assert beside <= rules
    return rules - beside


@pytest.mark.parametrize("name", CASES)
def test_bad_is_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    assert rules_of(name, "Bad", tmp_path) == set(CASES[name].GRAPH_RULES)


@pytest.mark.parametrize("name", CASES)
def test_good_is_clean(name: str, tmp_path: Path) -> None:
    assert rules_of(name, "Good", tmp_path) == set()


def test_precision_and_recall(tmp_path: Path) -> None:
    """Over (graph, rule): 1.0 both, on bad and good graphs."""
    expected = {(name, "Bad", rule) for name, case in CASES.items() for rule in case.GRAPH_RULES}
    found = {
        (name, kind, rule) for name in CASES for kind in ("Bad", "Good") for rule in rules_of(name, kind, tmp_path)
    }
    assert len(expected & found) / len(found) == 1.0
    assert len(expected & found) / len(expected) == 1.0
