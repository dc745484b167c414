"""Engines of files as other tools write them, compiled by TensorRT for RTX without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases.doors import saved, truehalf
from tests.measuring.attention_graphs import Form, attention
from tests.tiers import compiled

NAMES: dict[str, Callable[[int, str], str]] = {
    "as torch names them": lambda i, op: f"/encoder/layers.{i}/{op}",
    "brackets": lambda i, op: f"blocks[{i}].{op}",
    "none": lambda i, op: "",
    "one for all": lambda i, op: op,
    "300 characters": lambda i, op: f"{'block_' * 50}{i}",
    "umlauts": lambda i, op: f"Schlüsselwörter_{i}",
}


@compiled
@pytest.mark.parametrize("names", NAMES)
def test_a_fused_attention_is_found_whatever_its_nodes_are_called(tmp_path: Path, names: str) -> None:
    model = attention(Form())
    for position, node in enumerate(model.graph.node):
        node.name = NAMES[names](position, node.op_type)
    source = saved(tmp_path / "in.onnx", model)
    code, printed = truehalf("engine", source, "--out", tmp_path / "engine", "--target", "sm86")
    report = json.loads((tmp_path / "engine" / "engine.json").read_text())
    assert any("mha" in layer["name"] for layer in report["layer_table"])
    compiled_facts = report["compiled"]
    assert (compiled_facts["fused_attention"], compiled_facts["file_half_arithmetic"]) == (1, 1.0), printed
    assert code in (0, 3)
