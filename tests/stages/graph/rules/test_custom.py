"""A rule of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from stages.graph.decide import Lists, custom_rule_of
from stages.io import StageError
from tests.stages.graph.rules.judging import judge

TEXT = "(float[2] x) => (float[2] y) { [p] a = Relu(x) [q] y = Exp(a) }"


def keep_exp(node: ir.Node, ranges: Mapping[str, Any]) -> str | None:
    return f"Exp is ours, {len(ranges['tensors'])} ranges" if node.op_type == "Exp" else None


def test_its_reason_is_the_decisions() -> None:
    found = judge(TEXT, {"x": {"absmax": 1.0}}, custom_rule=keep_exp)
    assert (found["p"].rule, found["q"].rule) == ("none", "custom_rule")
    assert found["q"].reason == "Exp is ours, 1 ranges"
    assert judge(TEXT, custom_rule=keep_exp)["q"].reason == "Exp is ours, 0 ranges"


def test_an_include_list_beats_it() -> None:
    found = judge(TEXT, custom_rule=keep_exp, include=Lists(op=("Exp",)))["q"]
    assert found.reason == "listed in op_include_list: Exp; against custom_rule (Exp is ours, 0 ranges)"


def test_what_it_returns_must_be_a_reason() -> None:
    with pytest.raises(StageError, match="at node 'p' it returned True"):
        judge(TEXT, custom_rule=lambda node, ranges: True)


def test_what_it_raises_is_said_with_the_rule_and_the_node() -> None:
    def measured(node: ir.Node, ranges: Mapping[str, Any]) -> str | None:
        return str(ranges["tensors"][node.outputs[0].name])

    with pytest.raises(StageError, match=r"at node 'q' \(Exp\) '.*measured' raised KeyError: 'y'"):
        judge(TEXT, {"a": {}}, custom_rule=measured)


def test_it_is_named_by_module_and_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_rules.py").write_text("def keep(node, ranges): return None\nNUMBER = 3\n")
    (tmp_path / "broken_rules.py").write_text("def keep(node, ranges) return None\n")
    (tmp_path / "failing_rules.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert custom_rule_of("house_rules:keep").__name__ == "keep"  # type: ignore[attr-defined]
    for text, message in [
        ("house_rules", "expected 'module:function'"),
        (":keep", "expected 'module:function'"),
        ("no_such_house:keep", "No module named 'no_such_house'"),
        ("house_rules:kep", "module 'house_rules' has no function 'kep'"),
        ("broken_rules:keep", "importing 'broken_rules' raised SyntaxError: .*broken_rules.py, line 1"),
        ("failing_rules:keep", "importing 'failing_rules' raised ZeroDivisionError: division by zero"),
        ("house_rules:NUMBER", "is a int; expected a function"),
    ]:
        with pytest.raises(StageError, match=message):
            custom_rule_of(text)
