"""Every pattern of the corpus: what is bad is found, what is good is not, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.corpus import CASES, exported
from tests.tiers import first_of
from tests.tracing import trace_config
from truehalf.exporting.export import export
from truehalf.ir.model_file import load_model
from truehalf.patterns import RULES, lint


def rules_of(name: str, kind: str, folder: Path, exporter: str = "torchscript", opset: int = 17) -> set[str]:
    case = CASES[name]
    path = exported(getattr(case, kind)(), case.examples(), folder, exporter, opset)
    options = {"inputs": case.INPUT_NAMES, "ignore": ["deployment-io"]}  # Bad and Good share inputs and outputs
    rules = {finding.rule for finding in lint(load_model(path), **options)}
    beside = set(getattr(case, "BESIDE", {}).get(kind, ()))
    assert beside <= rules
    return rules - beside


@pytest.mark.parametrize("name", CASES)
def test_bad_is_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    assert rules_of(name, "Bad", tmp_path) == set(CASES[name].GRAPH_RULES)


@pytest.mark.parametrize("name", CASES)
def test_good_is_clean(name: str, tmp_path: Path) -> None:
    assert rules_of(name, "Good", tmp_path) == set()


# What the corpus cannot hold: exporters name nodes, cast, and make every k a size or a constant; Bad and Good share
# inputs and outputs. These are tested on graphs stated as text.
ELSEWHERE = {"empty-node-name", "dynamic-topk", "deployment-io", "mixed-floats", "known-wrong-engine"}


def test_each_rule_has_a_case() -> None:
    assert {rule for case in CASES.values() for rule in case.GRAPH_RULES} == set(RULES) - ELSEWHERE


@pytest.mark.parametrize(("opset", "found"), [(16, True), (17, False)])
def test_one_layer_norm_at_two_opsets(opset: int, found: bool, tmp_path: Path) -> None:
    x = (torch.randn(2, 3, 8),)
    export(
        torch.nn.LayerNorm(8),
        x,
        tmp_path / "m.onnx",
        trace_config("torchscript", opset, {"x": {0: "batch"}}),
        input_names=["x"],
        output_names=["y"],
    )
    assert [finding.rule for finding in lint(load_model(tmp_path / "m.onnx"))] == ["decomposed-layer-norm"] * found


# The rules were written looking at what the TorchScript exporter writes; dynamo writes the same modules in its own way.
# Some of them, as an export takes a second.
OF_DYNAMO = (
    "atan2",
    "bitwise_bool",
    "bool_index",
    "dynamic_slice",
    "grid_sample",
    "layer_norm",
    "where",
)


@pytest.mark.parametrize("name", first_of(OF_DYNAMO))
def test_another_exporter_is_judged_alike(name: str, tmp_path: Path) -> None:
    assert rules_of(name, "Bad", tmp_path, "dynamo", 18) == set(CASES[name].GRAPH_RULES)
    assert rules_of(name, "Good", tmp_path, "dynamo", 18) == set()
