"""Rooms of truehalf: the table of what is in each, and the drawing of which builds on which."""

from __future__ import annotations

import ast
from collections import defaultdict
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (
    *(
        "config",
        "report",
        "io_spec",
        "ir",
        "runtime",
        "patterns",
        "data",
        "provenance",
        "calibration",
        "emulation",
    ),
    *("conversion", "verification", "slimming", "engines", "models", "exporting", "api", "cli"),
)
_FILES = "files, errors, codes"  # the modules beside the rooms


def table() -> str:
    """Each room with what its package's docstring says, from the lowest floor up."""
    rows = ["| room | what is in it |", "|---|---|"]
    for room in FLOORS:
        place = ROOT / "truehalf" / room
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        said = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{room}` | {said} |")
    return "\n".join(rows)


def imports() -> dict[str, set[str]]:
    """By room of truehalf: the rooms that its modules import, in functions, too."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "truehalf").rglob("*.py")):
        room = _room(path.relative_to(ROOT / "truehalf").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.startswith("truehalf.") and (other := _room(tuple(name.split(".")[1:]))) != room:
                    found[room].add(other)
    return found


def _room(parts: tuple[str, ...]) -> str:
    return parts[0] if parts[0] in FLOORS else _FILES


def direct(found: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports without those that follow from others: what remains says as much with fewer lines."""

    def reached(room: str) -> set[str]:
        return set().union(*({each} | reached(each) for each in found[room] if _place(each) < _place(room)), set())

    pairs = []
    for room in (*FLOORS,):
        further = set().union(*(reached(each) for each in found[room] if _place(each) < _place(room)), set())
        pairs += [(room, other) for other in found[room] if other not in further and _place(other) < _place(room)]
    return sorted(pairs, key=lambda pair: (_place(pair[0]), _place(pair[1])))


def _place(room: str) -> int:
    return 0 if room == _FILES else 1 + FLOORS.index(room)


def drawing() -> str:
    """The rooms from top to bottom; an arc leads from a room to each that it builds on."""
    rooms, high, left, wide = (_FILES, *FLOORS), 34, 20, 190
    modules = {room: len(list((ROOT / "truehalf" / room).rglob("*.py"))) for room in FLOORS}
    parts = []
    for other, room in ((b, a) for a, b in direct(imports())):
        top, bottom = (20 + high * _place(each) + 12 for each in (other, room))
        reach = 14 + 9 * (_place(room) - _place(other))
        start = left + wide
        parts.append(
            f'<path d="M{start},{bottom} C{start + reach},{bottom} {start + reach},{top} {start + 4},{top}" '
            f'fill="none" stroke="#6e7781" stroke-width="1.2" marker-end="url(#tip)"/>'
        )
    for i, room in enumerate(rooms):
        count = f" ({modules[room]})" if modules.get(room, 0) > 1 else ""
        parts.append(
            f'<rect x="{left}" y="{20 + high * i}" width="{wide}" height="24" rx="4" fill="#ddf4ff" stroke="#0969da"/>'
            f'<text x="{left + 10}" y="{36 + high * i}" font-size="13">{escape(room + count)}</text>'
        )
    height = 30 + high * len(rooms)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 {height}" width="420" height="{height}" '
        'font-family="system-ui, sans-serif" role="img" aria-label="Rooms of truehalf, each with those it builds on">\n'
        '<defs><marker id="tip" markerWidth="6" markerHeight="6" refX="1" refY="3" orient="auto">'
        '<path d="M6,0 L0,3 L6,6" fill="#6e7781"/></marker></defs>\n'
        f'<rect width="420" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
