"""Parts of inline SVG that every drawing shares: text, rules, the element around them, the colours of precisions."""

from __future__ import annotations

from collections.abc import Sequence

BLUE, ORANGE, RED, GREY = "#0072b2", "#d98200", "#b42318", "#6b7683"


def rule(left: float, right: float, y: float) -> str:
    return f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity="0.15"/>'


def text_at(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{text}</text>'


def escaped(text: str) -> str:
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    """The element, which fills its place."""
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(label)}"'
    return f'{head} font-family="inherit" font-size="12" fill="currentColor">{"".join(parts)}</svg>'
