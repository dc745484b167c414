"""Drawing of some nodes with what they read and what reads them, types on the edges, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from truehalf.report.graph import FP16, FP32, Node, readers
from truehalf.report.module_map import INK, OTHER, SHADES
from truehalf.report.svg import RED, escaped, svg, text_at

_WIDE, _HIGH, _COLUMN, _LAYER = 108, 26, 124, 58
_NODES, _NEIGHBOURS = 36, 5  # drawn at most: of the middle; of those above and of those below it
_COLOURS = {FP16: SHADES[FP16][1], FP32: SHADES[FP32][1], "": OTHER}


def neighbourhood(nodes: Sequence[Node], middle: Sequence[int], marked: Collection[int] = ()) -> str:
    """The middle in solid boxes, its neighbours in dashed ones; behind a Cast the next node as well.

    Args:
        nodes: of the file.
        middle: positions, in graph order.
        marked: positions in a red frame.
    """
    inside = list(middle)[:_NODES]
    shown = _around(nodes, inside)
    place = _placed(nodes, shown)
    layers = max(y for _, y in place.values()) + 1
    columns = max(x for x, _ in place.values()) + 1
    width, height = int(columns * _COLUMN + 8), int(layers * _LAYER - 18)
    parts = [*_edges(nodes, shown, place), *(_box(nodes, i, place[i], i in inside, i in marked) for i in shown)]
    named = ", ".join(nodes[i]["op"] for i in inside[:6])
    return svg(width, height, parts, f"{named} with neighbours", natural=True)


def _around(nodes: Sequence[Node], inside: Sequence[int]) -> list[int]:
    """Positions of the inside and its neighbours, in graph order."""
    reading = readers(nodes)
    above = _next(nodes, inside, lambda i: [source for source, _ in nodes[i]["reads"] if source >= 0])
    below = _next(nodes, inside, lambda i: reading[i])
    return sorted({*inside, *above, *below})


def _next(nodes: Sequence[Node], inside: Sequence[int], step: Callable[[int], Sequence[int]]) -> list[int]:
    found: list[int] = []
    for i in inside:
        for near in step(i):
            if near not in inside and near not in found and len(found) < _NEIGHBOURS:
                found.append(near)
    beyond = [far for near in found if nodes[near]["op"] == "Cast" for far in step(near)[:2]]
    return [*found, *(far for far in beyond if far not in inside and far not in found)]


def _placed(nodes: Sequence[Node], shown: Sequence[int]) -> dict[int, tuple[float, int]]:
    """Column and layer: a layer below all that a node reads, in the order of what it reads."""
    layer: dict[int, int] = {}
    for i in shown:
        layer[i] = 1 + max((layer[source] for source, _ in nodes[i]["reads"] if source in layer), default=-1)
    following = readers(nodes)
    for i in reversed(shown):  # what reads nothing here stands right above its first reader
        below = [layer[reader] for reader in following[i] if reader in layer]
        if below and not any(source in layer for source, _ in nodes[i]["reads"]):
            layer[i] = min(below) - 1
    rows = [[i for i in shown if layer[i] == depth] for depth in range(max(layer.values()) + 1)]
    most, column = max(map(len, rows)), dict[int, float]()
    for row in rows:
        row.sort(key=lambda i: _middle([column[source] for source, _ in nodes[i]["reads"] if source in column]))
        for k, i in enumerate(row):
            column[i] = (most - len(row)) / 2 + k
    return {i: (column[i], layer[i]) for i in shown}


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _edges(nodes: Sequence[Node], shown: Sequence[int], place: Mapping[int, tuple[float, int]]) -> Iterator[str]:
    labelled = set[tuple[int, str]]()
    for i in shown:
        x1, y1 = place[i][0] * _COLUMN + 4 + _WIDE / 2, place[i][1] * _LAYER + 4
        for source, kind in nodes[i]["reads"]:
            if source not in place:
                continue
            x0, y0 = place[source][0] * _COLUMN + 4 + _WIDE / 2, place[source][1] * _LAYER + 4 + _HIGH
            bend = (y1 - y0) / 2
            way = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
            yield f'<path d="{way}" fill="none" stroke="currentColor" stroke-opacity=".55" stroke-width="1.3"/>'
            if (source, kind) not in labelled:
                labelled.add((source, kind))
                yield text_at(x0 + 5, y0 + 13, kind, "start", ' font-size="10.5" font-weight="600"')


def _box(nodes: Sequence[Node], i: int, place: tuple[float, int], inside: bool, marked: bool) -> str:
    x, y, node = place[0] * _COLUMN + 4, place[1] * _LAYER + 4, nodes[i]
    frame = f'stroke="{RED}" stroke-width="3"' if marked else f'stroke="{INK}" stroke-width="1.2"'
    dashes = "" if inside else ' stroke-dasharray="4 3"'
    fill = "#e9e3f2" if node["op"] == "Cast" else _COLOURS[node["precision"]]
    shown = node["op"] if len(node["op"]) < 16 else f"{node['op'][:14]}…"
    box = f'<rect x="{x:.0f}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="5" fill="{fill}" {frame}{dashes}/>'
    label = text_at(x + _WIDE / 2, y + 17, escaped(shown), "middle", f' fill="{INK}"')
    return f"<g>{box}{label}<title>{escaped(node['node'])}</title></g>"
