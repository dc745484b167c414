"""Parts of inline SVG that every drawing shares: text, and the element around it."""

from __future__ import annotations

from collections.abc import Sequence


def text_at(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{text}</text>'


def escaped(text: str) -> str:
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    """The element, which fills its place."""
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(label)}"'
    return f'{head} font-family="inherit" font-size="12" fill="currentColor">{"".join(parts)}</svg>'
