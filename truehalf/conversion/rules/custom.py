"""A rule of the user's own: a function of a node and the ranges that returns a reason to stay FP32, or None."""

from __future__ import annotations

import importlib

import onnx_ir as ir

from truehalf.conversion.rules.base import CustomRule, Decision, Evidence, Verdict
from truehalf.errors import StageError


def custom_rule_of(text: str) -> CustomRule:
    """The function that `module:function` names.

    Raises:
        StageError: when there is no such module, importing it fails, it has no such function, or that cannot be called.
    """
    module_name, colon, name = text.partition(":")
    if not (module_name and colon and name):
        raise StageError(
            "bad-syntax", f"custom_rule: {text!r}; expected 'module:function', such as 'my_rules:keep_heads'"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise StageError(
            "function-fails", f"custom_rule: {text!r}: {error}; it is looked for like any import (sys.path)"
        ) from error
    except Exception as error:
        what = f"importing {module_name!r} raised {type(error).__name__}: {error}"
        raise StageError("function-fails", f"custom_rule: {text!r}: {what}") from error
    function = getattr(module, name, None)
    if function is None:
        raise StageError("function-fails", f"custom_rule: module {module_name!r} has no function {name!r}")
    if not callable(function):
        raise StageError(
            "function-fails",
            f"custom_rule: {text!r} is a {type(function).__name__}; expected a function (node, ranges)",
        )
    rule: CustomRule = function
    return rule


def custom(node: ir.Node, evidence: Evidence) -> Decision | None:
    rule = evidence.custom_rule
    if rule is None:
        return None
    try:
        reason = rule(node, evidence.ranges or {"tensors": {}})
    except Exception as error:
        name = getattr(rule, "__qualname__", repr(rule))
        what = f"{name!r} raised {type(error).__name__}: {error}"
        raise StageError("function-fails", f"custom_rule: at node {node.name!r} ({node.op_type}) {what}") from error
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise StageError(
            "wrong-return",
            f"custom_rule: at node {node.name!r} it returned {reason!r}; expected a reason (text) to stay FP32, or "
            "None",
        )
    return Decision(Verdict.fp32, "custom_rule", reason)
