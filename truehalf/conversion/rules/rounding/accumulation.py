"""Sums that go on growing: a CumSum that rounds after each term, as float16 kernels without tensor cores do.

A sum of S has an error up to 2^-11 S from each term, and a term below 2^-12 S adds nothing at all: 1 to 2048, for one.
Of n terms of one sign that is up to n 2^-11 of the last sum, beyond 2^-7 from n = 17 on; where roundings of
both signs cancel, from some hundred on; never of whole numbers up to 2048.

    measured   as said in truehalf.conversion.rules.rounding.measured; rule "inner", as of sums that overflow
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext
from truehalf.conversion.rules.rounding.measured import decisions


def accumulation(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    found = decisions("inner", context) if context.precision.inner else {}
    return lambda node, context: found.get(node.name or "")
