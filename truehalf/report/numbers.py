"""Numbers as pages show them."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> str:
    """Three significant figures, without needless zeros; a dash for None, text ("nan", "inf") as it stands."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return {"inf": "∞", "-inf": "−∞"}.get(value, value)
    if not math.isfinite(value):
        return number(str(float(value)))
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f").replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def precision(value: Any) -> str:
    """Average precision with the digits that gates look at."""
    return "–" if value is None else f"{value:.4f}"


def percent(value: Any, digits: int = 1) -> str:
    """A fraction in percent, never rounded up to 100."""
    if not isinstance(value, (int, float)):
        return "–"
    if value == 1:
        return "100 %"
    shown = f"{100 * value:.{digits}f}"
    if value < 1 and float(shown) == 100.0:
        shown = f"{100 - 10**-digits:.{digits}f}"
    return f"{shown} %"


def count(value: Any) -> str:
    """A whole number with thin spaces between the thousands."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")
