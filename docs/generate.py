"""Generated parts of docs/: reference/api.md and options.md from the library,
explanation/architecture.svg from imports. `make docs` writes them anew.

python docs/generate.py            write
python docs/generate.py --check    exit with 1 where a file is not current
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (
    *(
        "config",
        "report",
        "io_spec",
        "ir",
        "linting",
        "repairs",
        "runtime",
        "data",
        "provenance",
        "calibration",
        "emulation",
    ),
    *("conversion", "verification", "slimming", "engines", "models", "exporting", "api", "cli"),
)
_FILES = "files, errors, codes"  # the modules beside the rooms


# --- api.md -----------------------------------------------------------------------------------------------------------


def api_page() -> str:
    """The public API in Markdown: signatures and docstrings as they stand."""
    from truehalf import api
    from truehalf.conversion.report import ConvertReport, QuickCheck

    parts = ["# API", inspect.cleandoc(api.__doc__ or ""), "Generated from the docstrings by `make docs`."]
    for name in ("convert", "calibrate", "clean_casts", "compare", "export", "lint", "repair"):
        function = getattr(api, name)
        parts.append(f"## {name}\n\n```python\n{_signature(function)}\n```\n\n{_text(function)}")
    for made in (api.Result, ConvertReport, QuickCheck, api.Precision):
        parts.append(f"## {made.__name__}\n\n{_text(made)}")
    parts.append("The options of `Precision`, of verification and of the others stand in [options.md](options.md).")
    return "\n\n".join(parts) + "\n"


def options_page() -> str:
    """Every option in Markdown: key, type's bounds, default and meaning, by section."""
    from truehalf.config import schema
    from truehalf.config.engine import EngineConfig, LatencyConfig, TargetConfig
    from truehalf.config.precision import Precision
    from truehalf.config.verification import GatesConfig, VerifyConfig

    parts = ["# Options", "Generated from the dataclasses of `truehalf/config/` by `make docs`."]
    parts.append("A key of the configuration has its section in front: `verify.gates.matched_fraction_min`.")
    sections = {"precision": Precision, "verify": VerifyConfig, "verify.gates": GatesConfig, "engine": EngineConfig}
    sections |= {
        "engine.latency": LatencyConfig,
        "target": TargetConfig,
        "data": schema.DataConfig,
        "trace": schema.TraceConfig,
    }
    for name, section in (sections | {"slim": schema.SlimConfig}).items():
        parts.append(f"## {name}\n\n{inspect.cleandoc(section.__doc__ or '').splitlines()[0]}")
        parts.append("\n".join(["| key | default | bounds | meaning |", "|---|---|---|---|", *_rows(section)]))
    return "\n\n".join(parts) + "\n"


def _rows(section: type) -> list[str]:
    from dataclasses import fields

    from truehalf.config.options import default_of

    rows, words = [], {"least": "at least", "above": "above", "most": "at most"}
    for key in fields(section):
        if not key.metadata:  # a nested section
            continue
        stated = {word: key.metadata[name] for name, word in words.items() if key.metadata[name] is not None}
        bounds = ", ".join(f"{word} {value:g}" for word, value in stated.items())
        meaning = key.metadata["meaning"].replace("|", "\\|")
        rows.append(f"| `{key.name}` | `{json.dumps(default_of(key))}` | {bounds} | {meaning} |")
    return rows


def _signature(function: object) -> str:
    found = inspect.signature(function)  # type: ignore[arg-type]
    lines = [f"    {parameter},".replace("typing.", "") for parameter in _written(found)]
    returned = f" -> {found.return_annotation}" if found.return_annotation is not inspect.Signature.empty else ""
    return "\n".join([f"def {function.__name__}(", *lines, f"){returned}: ..."])  # type: ignore[attr-defined]


def _written(signature: inspect.Signature) -> list[str]:
    """Parameters as in source: annotations are texts, and a star stands before the first keyword."""
    written, starred = [], False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            written.append("*")
            starred = True
        default = "" if each.default is each.empty else f" = {each.default!r}"
        written.append(f"{each.name}: {each.annotation}{default}")
    return written


def _text(documented: object) -> str:
    """A docstring whose sections become lists."""
    lines, found = inspect.cleandoc(documented.__doc__ or "").splitlines(), []
    section = False
    for line in lines:
        if line.rstrip(":") in ("Args", "Returns", "Raises", "Attributes") and line.endswith(":"):
            found += ["", f"**{line}**", ""]
            section = True
        elif section and line.startswith("    ") and not line.startswith("     ") and ": " in line:
            name, _, meaning = line.strip().partition(": ")
            found.append(f"- `{name}`: {meaning}")
        elif section and line.startswith("    "):
            found.append(f"  {line.strip()}")
        else:
            found.append(line)
    return "\n".join(found).strip()


# --- architecture.svg -------------------------------------------------------------------------------------------------


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


def rules_of_lint() -> str:
    """The rules' explanations, each under its id; ids in them are links."""
    from truehalf.exporting.source_lint import RULES as SOURCE_RULES
    from truehalf.linting import RULES

    rules = {**RULES, **SOURCE_RULES}
    parts = [f"### {id}\n\n{rule.explanation}" for id, rule in rules.items()]
    return re.sub(rf"`({'|'.join(rules)})`", r"[\1](#\1)", "\n\n".join(parts))


def codes_page() -> str:
    from truehalf.codes import table

    return table()


GENERATED: dict[str, Callable[[], str]] = {  # whole pages
    "reference/api.md": api_page,
    "reference/error-codes.md": codes_page,
    "reference/options.md": options_page,
    "explanation/architecture.svg": drawing,
}
PARTS: dict[str, tuple[str, Callable[[], str]]] = {  # what stands between <!-- name --> and <!-- /name --> of a page
    "reference/lint.md": ("rules", rules_of_lint),
}


def filled(page: Path, name: str, table: str) -> str:
    """The text of `page` with `table` between <!-- name --> and <!-- /name -->."""
    before, opening, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    assert opening and closing, f"{page}: expected the markers of {name}"
    return f"{before}{opening}\n{table}\n{closing}{after}"


def made() -> Iterator[tuple[Path, str]]:
    """Each file with the text that it should have."""
    for name, make in GENERATED.items():
        yield ROOT / "docs" / name, make()
    for name, (part, make) in PARTS.items():
        yield ROOT / "docs" / name, filled(ROOT / "docs" / name, part, make())


def main() -> int:
    stale = []
    for path, text in made():
        if "--check" in sys.argv:
            stale += [] if path.exists() and path.read_text(encoding="utf-8") == text else [path.name]
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not current: {', '.join(stale)}; run make docs")
    return int(bool(stale))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
