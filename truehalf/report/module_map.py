"""Map of a network by module, an icicle: a row a depth, width by arithmetic, colour by precision, shade by error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from truehalf.report.graph import FP16, FP32, Node
from truehalf.report.numbers import number
from truehalf.report.svg import escaped, svg, text_at

INK, WHITE, FAULT, OTHER = "#1b2430", "#ffffff", "#b42318", "#c3cad3"
SHADES = {  # from the smallest error to the largest; readable on a light and on a dark page
    FP16: ("#ffe9c9", "#ffd292", "#f8b252", "#e08a1a", "#9a4a00"),
    FP32: ("#d8ebf8", "#aed5f0", "#83bde5", "#5aa4d6", "#0b5a94"),
}
STEPS = (1e-5, 1e-4, 1e-3, 1e-2)  # relative errors between the shades
_PLAIN = 1  # the shade where no error was measured
_ROW, _LEAST, _DRAWN = 30, 9.0, 1.5  # height of a row; width that a module with FP32 nodes has at least; of any drawn
_SPINE = 0.95  # of the arithmetic: a module that holds as much stands for those around it
_CHARACTER = 6.7  # width of one, at 12 pixels


@dataclass
class Module:
    """A module of the network and what is inside it.

    Attributes:
        scope: dotted path.
        flops: arithmetic, its modules' included; so are the counts of nodes that write floats, and the largest error
            that one of them makes by itself (None: not measured).
        broken: whether a node of its own, of none of its modules, is not finite by itself.
        inner: modules by name, in graph order.
        width: as drawn; what has FP32 nodes is wide enough to be seen.
    """

    scope: str
    flops: float = 0.0
    fp16: int = 0
    fp32: int = 0
    error: float | None = None
    broken: bool = False
    inner: dict[str, Module] = field(default_factory=dict)
    width: float = 0.0


def modules(nodes: Sequence[Node], errors: Mapping[str, float]) -> Module:
    """The tree of modules.

    Args:
        nodes: of the file.
        errors: relative error that a node makes by itself, by name.
    """
    root = Module("")
    for node in nodes:
        if node["op"] == "Cast":
            continue
        way, parts = [root], [part for part in node["scope"].split(".") if part]
        for depth, part in enumerate(parts, start=1):
            way.append(way[-1].inner.setdefault(part, Module(".".join(parts[:depth]))))
        error = errors.get(node["node"])
        for module in way:
            module.flops += node["flops"]
            module.fp16 += node["precision"] == FP16
            module.fp32 += node["precision"] == FP32
            module.error = error if module.error is None else max(module.error, error or 0.0)
        way[-1].broken |= error is not None and not math.isfinite(error)
    return root


def trunk(root: Module) -> Module:
    """The innermost module that holds nearly all of the arithmetic: its parts are the stages of the network."""
    while largest := max(root.inner.values(), key=lambda module: module.flops, default=None):
        if largest.flops < _SPINE * root.flops or not largest.inner:
            return root
        root = largest
    return root


def module_map(root: Module, width: int, depth: int, links: Mapping[str, str]) -> str:
    """The icicle, from the trunk on.

    Args:
        depth: rows below the first.
        links: addresses by the scope of a module that has FP32 nodes.
    """
    first = trunk(root)
    whole = _widths(first, width / max(first.flops, 1.0))
    rows = min(depth, _depth(first)) + 1
    cells = list(_cells(first, 0.0, 0, width / max(whole, 1e-9), depth, links))
    return svg(width, rows * _ROW, cells, "modules: width by arithmetic, colour by precision", "group")


def shade(error: float | None) -> int:
    """Which of the five shades."""
    return _PLAIN if error is None else sum(error > step for step in STEPS)


def _widths(module: Module, scale: float) -> float:
    inside = sum(_widths(each, scale) for each in module.inner.values())
    own = scale * (module.flops - sum(each.flops for each in module.inner.values()))
    module.width = max(own + inside, _LEAST if module.fp32 else 0.0)
    return module.width


def _depth(module: Module) -> int:
    return 1 + max(map(_depth, module.inner.values()), default=-1)


def _cells(module: Module, x: float, row: int, scale: float, depth: int, links: Mapping[str, str]) -> Iterator[str]:
    yield _cell(module, x, row, module.width * scale, links)
    if row < depth:
        for inner in module.inner.values():
            if inner.width * scale >= _DRAWN:
                yield from _cells(inner, x, row + 1, scale, depth, links)
            x += inner.width * scale


def _cell(module: Module, x: float, row: int, width: float, links: Mapping[str, str]) -> str:
    y, kind = row * _ROW, FP16 if module.fp16 else FP32
    step = shade(module.error)
    fill = FAULT if module.broken else SHADES[kind][step] if module.fp16 or module.fp32 else OTHER
    box = f'<rect x="{x + 0.5:.1f}" y="{y + 0.5}" width="{max(width - 1, 1):.1f}" height="{_ROW - 1}" rx="2"'
    parts = [f'{box} fill="{fill}"/>']
    if module.fp16 and module.fp32:
        part = max(5.0, (width - 1) * module.fp32 / (module.fp16 + module.fp32))
        parts.append(f'<rect x="{x + 0.5:.1f}" y="{y + _ROW - 5.5}" width="{part:.1f}" height="5" fill="#0b5a94"/>')
    name, room = module.scope.rsplit(".", 1)[-1] or "network", int((width - 10) / _CHARACTER)
    if room >= min(len(name), 3):
        shown = name if len(name) <= room else f"{name[: room - 1]}…"
        ink = WHITE if module.broken or step == len(STEPS) else INK
        parts.append(text_at(x + 6, y + 18, escaped(shown), "start", f' fill="{ink}"'))
    parts.append(f"<title>{escaped(described(module))}</title>")
    if module.scope in links:
        return f'<a href="{links[module.scope]}" aria-label="{escaped(described(module))}">{"".join(parts)}</a>'
    return f"<g>{''.join(parts)}</g>"


def described(module: Module) -> str:
    """A module in a line: its path, how many nodes are FP16 and FP32, and the largest error of one."""
    said = f"{module.scope or 'the whole network'}: {module.fp16} nodes FP16, {module.fp32} FP32"
    if module.error is not None:
        found = number(module.error) if math.isfinite(module.error) else "not finite"
        said += f", largest error of a node {found}"
    return f"{said}, {number(module.flops)} operations"


def stages(root: Module, nodes: Sequence[Node]) -> list[tuple[str, int, int]]:
    """(name, first position, last position) of each part of the trunk that takes a stretch of the graph, in order.

    Parts that are interleaved are cut where most of their nodes lie: a stretch ends where the next one begins.
    """
    first = trunk(root)
    ahead = first.scope.count(".") + 1 if first.scope else 0
    scopes = (node["scope"].split(".") if node["scope"] else [] for node in nodes)
    bands = _joined([(parts[ahead], i, i) for i, parts in enumerate(scopes) if len(parts) > ahead])
    least = max(3.0, 0.015 * len(nodes))
    return _joined([band for band in bands if band[2] - band[1] >= least])


def _joined(bands: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for name, start, end in bands:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], end)
        else:
            found.append((name, start, end))
    return found
