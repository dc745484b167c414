"""A rule of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from tests.messages import expect, raises
from tests.truehalf.conversion.rules.judging import judge
from truehalf.conversion.rules.base import Verdict
from truehalf.conversion.rules.custom import custom_rule_of
from truehalf.ir.selectors import Lists

HERE = "tests.truehalf.conversion.rules.test_custom"
KEEP_EXP = f"{HERE}:keep_exp"
TEXT = "(float[2] x) => (float[2] y) { [p] a = Relu(x) [q] y = Exp(a) }"


def keep_exp(node: ir.Node, ranges: Mapping[str, Any]) -> str | None:
    return f"ours:{len(ranges['tensors'])}" if node.op_type == "Exp" else None


def test_its_reason_is_the_decisions() -> None:
    found = judge(TEXT, {"x": {"absmax": 1.0}}, custom_rule=KEEP_EXP)
    assert (found["p"].rule, found["q"].rule) == ("none", "custom_rule")
    assert found["q"].reason == "ours:1"
    assert judge(TEXT, custom_rule=KEEP_EXP)["q"].reason == "ours:0"


def test_an_include_list_beats_it() -> None:
    found = judge(TEXT, custom_rule=KEEP_EXP, include=Lists(op=("Exp",)))["q"]
    assert (found.rule, found.verdict) == ("op_include_list", Verdict.fp16)
    expect(found.reason, None, "op_include_list: Exp", "custom_rule", "ours:0")


def returns_a_bool(node: ir.Node, ranges: Mapping[str, Any]) -> bool:
    return True


def test_what_it_returns_must_be_a_reason() -> None:
    with raises("wrong-return", "custom_rule", "'p'", True):
        judge(TEXT, custom_rule=f"{HERE}:returns_a_bool")


def measured(node: ir.Node, ranges: Mapping[str, Any]) -> str | None:
    return str(ranges["tensors"][node.outputs[0].name])


def test_what_it_raises_is_said_with_the_rule_and_the_node() -> None:
    with raises("function-fails", "custom_rule", "'q'", "Exp", "'measured'", "KeyError", "'y'"):
        judge(TEXT, {"a": {"absmax": 1.0}}, custom_rule=f"{HERE}:measured")


def test_it_is_named_by_module_and_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_rules.py").write_text("def keep(node, ranges): return None\nNUMBER = 3\n")
    (tmp_path / "broken_rules.py").write_text("def keep(node, ranges) return None\n")
    (tmp_path / "failing_rules.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert custom_rule_of("house_rules:keep").__name__ == "keep"  # type: ignore[attr-defined]
    for text, code, facts in [
        ("house_rules", "bad-syntax", ["'house_rules'", "module:function"]),
        (":keep", "bad-syntax", ["':keep'", "module:function"]),
        ("no_such_house:keep", "function-fails", ["'no_such_house:keep'", "'no_such_house'", "ModuleNotFoundError"]),
        ("house_rules:kep", "function-fails", ["'house_rules'", "'kep'"]),
        ("broken_rules:keep", "function-fails", ["'broken_rules'", "SyntaxError", "broken_rules.py", "line 1"]),
        ("failing_rules:keep", "function-fails", ["'failing_rules'", "ZeroDivisionError"]),
        ("house_rules:NUMBER", "function-fails", ["'house_rules:NUMBER'", "int"]),
    ]:
        with raises(code, "custom_rule", *facts):
            custom_rule_of(text)
