"""Numbers as pages show them."""

from __future__ import annotations

import contextlib
import math
import string
from collections.abc import Iterable, Mapping
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


class _Words(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise KeyError
        if format_spec.startswith("%"):
            return percent(value, int(format_spec[1:]))
        return {"n": number, ",": count}.get(format_spec, lambda each: format(each, format_spec))(value)


def worded(texts: Iterable[str], report: Mapping[str, object]) -> list[str]:
    """Texts with the figures of a report in them; left out is one that names what the report lacks, or has as None.

    Args:
        texts: of str.format, in which `{share:%2}` is `percent` with two digits, `{size:n}` `number`, `{nodes:,}`
            `count`.
    """
    found = []
    for text in texts:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found.append(_Words().vformat(text, (), report))
    return found
