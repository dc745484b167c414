"""Every pattern of the corpus: what is bad is found, what is good is not, and nothing else."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest
import torch

from stages.graph.lint import RULES, lint
from stages.models.export import export
from stages.onnx_files import load_model
from tests.corpus import CASES, exported


@functools.cache
def rules_of(name: str, kind: str) -> set[str]:
    case = CASES[name]
    options = {"inputs": case.INPUT_NAMES, "ignore": ["deployment-io"]}  # Bad and Good share inputs and outputs
    with tempfile.TemporaryDirectory() as folder:
        path = exported(getattr(case, kind)(), case.examples(), Path(folder))
        rules = {finding.rule for finding in lint(load_model(path), **options)}
    beside = set(getattr(case, "BESIDE", {}).get(kind, ()))
    assert beside <= rules
    return rules - beside


@pytest.mark.parametrize("name", CASES)
def test_bad_is_found_and_nothing_else(name: str) -> None:
    assert rules_of(name, "Bad") == set(CASES[name].GRAPH_RULES)


@pytest.mark.parametrize("name", CASES)
def test_good_is_clean(name: str) -> None:
    assert rules_of(name, "Good") == set()


# What the corpus cannot hold: exporters name their nodes, ours drops resolve_conj, and Bad and Good share their
# inputs and outputs. These are tested on graphs stated as text: test_interface.py, test_operators.py.
ELSEWHERE = {"empty-node-name", "resolve-conj", "deployment-io"}


def test_each_rule_has_a_case() -> None:
    assert {rule for case in CASES.values() for rule in case.GRAPH_RULES} == set(RULES) - ELSEWHERE


@pytest.mark.parametrize(("opset", "found"), [(16, True), (17, False)])
def test_one_layer_norm_at_two_opsets(opset: int, found: bool, tmp_path: Path) -> None:
    x = (torch.randn(2, 3, 8),)
    export(torch.nn.LayerNorm(8), x, tmp_path / "m.onnx", exporter="torchscript", opset=opset, input_names=["x"],
           output_names=["y"], dynamic_axes={"x": {0: "batch"}})  # fmt: skip
    assert [finding.rule for finding in lint(load_model(tmp_path / "m.onnx"))] == ["decomposed-layer-norm"] * found


def test_precision_and_recall() -> None:
    """Over (graph, rule), on bad and good graphs: the figure that the tests above decide one by one."""
    expected = {(name, "Bad", rule) for name, case in CASES.items() for rule in case.GRAPH_RULES}
    found = {(name, kind, rule) for name in CASES for kind in ("Bad", "Good") for rule in rules_of(name, kind)}
    assert len(expected & found) / len(found) == 1.0
    assert len(expected & found) / len(expected) == 1.0
