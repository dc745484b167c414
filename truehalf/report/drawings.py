"""Plots as inline SVG, drawn from only numbers: they take font and colour from the page, and need no script.

FP32 is blue and square, FP16 orange and round, so that no meaning hangs on colour only. Widths are those of the
viewBox; a page draws a plot once for wide and once for narrow screens. Equal numbers give equal text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypedDict

from truehalf.report.svg import BLUE, GREY, ORANGE, RED, escaped, rule, svg, text_at

Band = tuple[str, int, int]
_FLOOR = 1e-9  # smaller relative errors are drawn here: far below what FP32 resolves


class NodeRow(TypedDict, total=False):
    """A node of the final file, as details.json has it.

    Attributes:
        rank: among the worst.
        local_error, error: relative error of the node by itself, and of its output in the file's run; None: not finite.
    """

    node: str
    op_type: str
    tensor: str
    precision: str
    rank: int | None
    selector: str
    local_error: float | None
    error: float | None


def error_chart(
    rows: Sequence[NodeRow],
    worst: Sequence[int],
    size: tuple[int, int],
    bands: Sequence[Band] = (),
    titles: bool = True,
) -> str:
    """Relative error over the nodes of a graph, in their order.

    Args:
        rows: in graph order: the error that each node makes by itself, a point; and that of its output in the file's
            run, the line, which has a gap where that is not finite. What is not finite stands at the top: a cross for
            the node's local error, a tick over it for that in the run. A node without a local error has no point.
        worst: positions that get a number, 1 for the first.
        size: width and height.
        bands: stages of the network, by the positions of their first and last rows.
        titles: whether a point says its node when the pointer rests on it.
    """
    width, height = size
    left, right, top, bottom = 58, 12, 26 + (18 if bands else 0), 40
    local, run = [error_of(row["local_error"]) for row in rows], [error_of(row["error"]) for row in rows]
    values = [value for value in (*local, *run) if _drawable(value)]
    low = math.floor(math.log10(max(min(values, default=1e-6), _FLOOR)))
    high = max(math.ceil(math.log10(max(values, default=1.0))), low + 1)

    def x(i: float) -> float:
        return left + (width - left - right) * i / max(len(rows) - 1, 1)

    def y(value: float) -> float:
        if not math.isfinite(value):
            return top - 10.0
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return float(top + (height - top - bottom) * (1 - share))

    parts = [*_bands(bands, x, height - bottom)]
    parts += [_grid(left, width - right, [(y(10.0**k), k) for k in range(low, high + 1)])]
    parts += _node_axis(len(rows), x, height - bottom, width)
    for finite, stretch in groupby(range(len(rows)), key=lambda i: math.isfinite(run[i])):
        line = [(x(i), y(run[i])) for i in stretch if run[i] > 0]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in line) if finite else ""
        path = f'<polyline points="{points}" fill="none" stroke="{GREY}" stroke-width="1" opacity="0.75"/>'
        parts += [path] if points else []
    for i, row in enumerate(rows):
        if not math.isfinite(run[i]):
            parts.append(f'<path d="M{x(i) - 0.7:.1f} {top - 22}h1.4v5h-1.4z" fill="{RED}"/>')
        if local[i]:
            parts.append(_point(x(i), y(local[i]), row, not math.isfinite(local[i]), titles))
    for number, i in enumerate(worst, start=1):
        parts.append(_number(x(i), y(local[i]), number, width))
    label = "relative error of each node by itself (points) and of its output in the run (line)"
    return svg(width, height, parts, label)


def error_of(value: float | None) -> float:
    """The error of a row; infinity where it is not finite."""
    return math.inf if value is None else float(value)


def _round(rough: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..., and of such fractions."""
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)


def _drawable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _bands(bands: Sequence[Band], x: Any, base: float) -> Iterator[str]:
    for number, (name, first, last) in enumerate(bands):
        start, room = x(first), x(last) - x(first)
        opacity = 0.07 if number % 2 else 0.13
        rect = f'<rect x="{start:.1f}" y="16" width="{room:.1f}" height="{base - 16:.1f}" fill="{GREY}"'
        yield f'{rect} fill-opacity="{opacity}"><title>{escaped(name)}</title></rect>'
        if room > 6.5 * len(name):
            yield text_at(start + room / 2, 12, escaped(name), "middle", ' font-weight="600"')


def _grid(left: float, right: float, lines: Sequence[tuple[float, int]]) -> str:
    step = max(1, math.ceil(len(lines) / 8))
    return "".join(rule(left, right, y) + text_at(left - 8, y + 4, _power(k), "end") for y, k in lines if k % step == 0)


def _node_axis(count: int, x: Any, base: float, width: int) -> list[str]:
    step = int(_round(max(count / (8 if width > 600 else 4), 1)))
    marks = [text_at(x(i), base + 18, str(i), "middle") for i in range(0, count, step)]
    return [*marks, text_at((x(0) + x(count - 1)) / 2, base + 36, "node, in the order of the graph", "middle")]


def _point(x: float, y: float, row: NodeRow, broken: bool, titles: bool) -> str:
    colour = RED if broken else ORANGE if row["precision"] == "fp16" else BLUE
    title = ""
    if titles:
        value = "not finite" if broken else f"{row['local_error']:.2g}"
        title = f"<title>{escaped(row['node'])} ({escaped(row['op_type'])}, {row['precision']}): {value}</title>"
    if broken:
        arms = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8"
        return f'<path d="{arms}" stroke="{colour}" stroke-width="2" fill="none">{title}</path>'
    if row["precision"] == "fp16":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}" fill-opacity="0.75">{title}</circle>'
    side = f'x="{x - 2.4:.1f}" y="{y - 2.4:.1f}" width="4.8" height="4.8"'
    return f'<rect {side} fill="{colour}" fill-opacity="0.85">{title}</rect>'


def _number(x: float, y: float, number: int, width: int) -> str:
    """A numbered mark beside a point, on the side where there is room."""
    dx = 12 if x < width / 2 else -12
    dy = -9 if number % 2 else 9
    circle = f'<circle cx="{x + dx:.1f}" cy="{max(y + dy, 9):.1f}" r="8.5" fill="#fff" stroke="#1b2430"/>'
    leader = f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + dx:.1f}" y2="{max(y + dy, 9):.1f}" stroke="#1b2430"/>'
    text = text_at(x + dx, max(y + dy, 9) + 4, str(number), "middle", ' font-weight="700" fill="#1b2430"')
    return f"<g>{leader}{circle}{text}</g>"


def _power(exponent: int) -> str:
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "1" if exponent == 0 else f"10{str(exponent).translate(digits)}"
