"""Rules that others state: a function of the user's, and what the graph declares of its nodes.

custom_rule    a function of a node and the ranges that returns a reason to stay FP32, or None
declared       metadata_props["truehalf.float32"] = reason

Passes that make nodes declare it where float16 would change more than the last digits, and no measured range shows it:
positions of samples, for one, are small numbers whose fraction counts.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from truehalf.conversion.rules.base import CustomRule, Decision, RuleContext, Verdict
from truehalf.errors import StageError
from truehalf.float16 import KEEP_FLOAT32
from truehalf.user_code import imported


def custom_rule_of(text: str) -> CustomRule:
    """The function that `module:function` names, in the current folder or in what is installed.

    Raises:
        StageError: see truehalf.user_code.imported.
    """
    return imported("custom_rule", text, Path.cwd())


def custom(node: ir.Node, context: RuleContext) -> Decision | None:
    rule = context.custom_rule
    if rule is None:
        return None
    try:
        reason = rule(node, {"tensors": {}} if context.ranges is None else context.ranges.content)
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


def declared(node: ir.Node, context: RuleContext) -> Decision | None:
    reason = node.metadata_props.get(KEEP_FLOAT32)
    return None if reason is None else Decision(Verdict.fp32, "declared", f"marked as FP32: {reason}")
