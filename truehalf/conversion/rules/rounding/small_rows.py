"""Underflow where a row is normalized: rows far smaller than the others, their squares, and sums of exponentials.

Below 2^-14 float16's values are 2^-24 apart, and 2^-25 is 0: of x^2 all is lost where |x| <= 2^-12.5, of exp(x) where
x < -17.3. A tensor's range shows none of that, when other rows are large. With

    error(x) / |x| = 2^-25 / |x|

a quotient, root or logarithm exceeds 2^-7 of its largest element where |x| < 2^-18, or |x| < 2^-9 of what is
squared first.

    measured   as said in truehalf.conversion.rules.rounding.measured, where nothing is subtracted
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from truehalf.conversion.rules.base import Decision, RuleContext
from truehalf.conversion.rules.rounding.measured import decisions


def small_rows(context: RuleContext) -> Callable[[ir.Node, RuleContext], Decision | None]:
    """The rule for one model."""
    found = decisions("underflow", context)
    return lambda node, context: found.get(node.name or "")
