"""Generated parts of docs/: API, command, keys, rules of lint and error codes from the library, choices from conf/,
rooms and their picture from packages and imports; keys of conf/ from the dataclasses of truehalf/config/. `make docs`
writes them anew.

python docs/generate.py            write
python docs/generate.py --check    exit with 1 where a file is not current
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from truehalf.config.options import default_of  # noqa: E402

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
    parts.append("Keys of `Precision` and of the other sections: [configuration](configuration.md).")
    return "\n\n".join(parts) + "\n"


def command_page() -> str:
    """What `truehalf --help` and each command's --help print."""
    import click

    from truehalf.cli.app import COMMANDS, app

    def shown(command: click.Command, name: str) -> str:
        settings = {**app.context_settings, "terminal_width": 100, "max_content_width": 100}
        return command.get_help(click.Context(command, info_name=name, **settings))

    parts = ["# Command", "Generated from the command's own help by `make docs`.", _block(shown(app, "truehalf"))]
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        parts.append(f"## {name}\n\n{_block(shown(command, f'truehalf {name}'))}")
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def configuration_page() -> str:
    """The choices of every group, and every key: bounds, default and meaning, by section."""
    from truehalf.config import schema
    from truehalf.config.engine import EngineConfig, EngineGates, LatencyConfig, TargetConfig
    from truehalf.config.precision import Precision
    from truehalf.config.verification import GatesConfig, VerifyConfig

    parts = ["# Configuration", "Generated from `conf/` and the dataclasses of `truehalf/config/` by `make docs`."]
    parts.append(
        "`python -m pipeline group=choice section.key=value`. Keys of `model` are in [models](../how-to/models.md)."
    )
    parts.append("## Choices\n\n| group | choice | what it is | when to use it |\n|---|---|---|---|")
    parts[-1] += "".join(f"\n{row}" for row in _choices())
    sections = {"precision": Precision, "verify": VerifyConfig, "verify.gates": GatesConfig, "engine": EngineConfig}
    sections |= {
        "engine.latency": LatencyConfig,
        "engine.gates": EngineGates,
        "target": TargetConfig,
        "data": schema.DataConfig,
        "trace": schema.TraceConfig,
    }
    for name, section in (sections | {"slim": schema.SlimConfig, "lint": schema.LintConfig}).items():
        parts.append(f"## {name}\n\n{inspect.cleandoc(section.__doc__ or '').splitlines()[0]}")
        parts.append("\n".join(["| key | default | bounds | meaning |", "|---|---|---|---|", *_rows(section)]))
    return "\n\n".join(parts) + "\n"


def _choices() -> Iterator[str]:
    """A row for each file of a group, of its first comments: what it is, and after "When:" when to use it."""
    for file in sorted((ROOT / "conf").glob("*/*.yaml")):
        head = file.read_text(encoding="utf-8").partition("\n# Use:")[0]
        lines = [line.lstrip("# ") for line in head.splitlines() if line.startswith("#") and "@package" not in line]
        what, _, when = " ".join(lines).replace("|", "\\|").partition(" When: ")
        yield f"| `{file.parent.name}` | `{file.stem}` | {what} | {when} |"


def _rows(section: type) -> list[str]:
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


def rules_of_lint() -> str:
    """The rules' explanations, each under its id; ids in them are links."""
    from truehalf.patterns import RULES

    parts = [f"### {id}\n\n{rule.explanation}" for id, rule in RULES.items()]
    return re.sub(rf"`({'|'.join(RULES)})`", r"[\1](#\1)", "\n\n".join(parts))


def codes_page() -> str:
    from truehalf.codes import table

    return table()


def report_keys() -> str:
    from docs import keys

    return keys.report_keys()


def repair_passes() -> str:
    from docs import keys

    return keys.repair_passes()


def rooms_table() -> str:
    from docs import rooms

    return rooms.table()


def architecture_svg() -> str:
    from docs import rooms

    return rooms.drawing()


# --- conf/ ------------------------------------------------------------------------------------------------------------


def yaml_keys(section: type, indent: str = "") -> Iterator[str]:
    """Yield the YAML lines of a section: each key with its default, its meaning as a comment."""
    import yaml

    for key in fields(section):
        if is_dataclass(key.default):
            yield f"{indent}{key.name}: # {inspect.cleandoc(key.default.__doc__ or '').splitlines()[0]}"
            yield from yaml_keys(type(key.default), f"{indent}  ")
        else:
            value = yaml.safe_dump(default_of(key), default_flow_style=True, width=10_000)
            written = value.removesuffix("\n").removesuffix("\n...")
            yield f"{indent}{key.name}: {written} # {key.metadata['meaning']}"


def choice_file(path: Path, section: type) -> str:
    """Return the text of a YAML file of conf/: its first comment as it stands, below it every key of the section."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    return "\n".join([*head, *yaml_keys(section)]) + "\n"


def root_file(path: Path) -> str:
    """Return the text of conf/config.yaml with the keys of its own sections between the two marking comments."""
    from truehalf.config import schema

    sections = {"trace": schema.TraceConfig, "slim": schema.SlimConfig, "target": schema.TargetConfig}
    lines: list[str] = []
    for name, section in (sections | {"lint": schema.LintConfig}).items():
        lines += [f"{name}: # {inspect.cleandoc(section.__doc__ or '').splitlines()[0]}", *yaml_keys(section, "  "), ""]
    before, opening, rest = path.read_text(encoding="utf-8").partition(
        "# --- keys from truehalf/config/, by make docs\n"
    )
    _, closing, after = rest.partition("# --- end of these keys\n")
    assert opening and closing, f"{path}: expected the two marking comments"
    return before + opening + "\n".join(lines) + closing + after


def conf_files() -> Iterator[tuple[Path, str]]:
    """Yield each file of conf/ that is written from dataclasses, with the text that it should have."""
    from truehalf.config.engine import EngineConfig
    from truehalf.config.precision import Precision
    from truehalf.config.verification import VerifyConfig

    files = {"precision/fp16": Precision, "verify/detection": VerifyConfig, "engine/tensorrt": EngineConfig}
    for name, section in files.items():
        path = ROOT / "conf" / f"{name}.yaml"
        yield path, choice_file(path, section)
    yield ROOT / "conf/config.yaml", root_file(ROOT / "conf/config.yaml")


GENERATED: dict[str, Callable[[], str]] = {  # whole pages
    "reference/api.md": api_page,
    "reference/error-codes.md": codes_page,
    "reference/command.md": command_page,
    "reference/configuration.md": configuration_page,
    "reference/report-keys.md": report_keys,
    "explanation/architecture.svg": architecture_svg,
}
PARTS: dict[str, tuple[str, Callable[[], str]]] = {  # what stands between <!-- name --> and <!-- /name --> of a page
    "explanation/architecture.md": ("rooms", rooms_table),
    "reference/lint.md": ("rules", rules_of_lint),
    "reference/repair.md": ("passes", repair_passes),
}


def filled(page: Path, name: str, table: str) -> str:
    """The text of `page` with `table` between <!-- name --> and <!-- /name -->."""
    before, opening, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    assert opening and closing, f"{page}: expected the markers of {name}"
    return f"{before}{opening}\n{table}\n{closing}{after}"


def _without_tags(page: str) -> str:
    """Markdown in which "<name>" is text: outside of code it would be an unknown tag, which no page shows."""
    return re.sub(r"(```.*?```|`[^`\n]*`)|<(?=[a-z])", lambda found: found[1] or r"\<", page, flags=re.DOTALL)


def made() -> Iterator[tuple[Path, str]]:
    """Each file with the text that it should have."""
    for name, make in GENERATED.items():
        yield ROOT / "docs" / name, _without_tags(make()) if name.endswith(".md") else make()
    for name, (part, make) in PARTS.items():
        yield ROOT / "docs" / name, filled(ROOT / "docs" / name, part, make())
    yield from conf_files()


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
    sys.exit(main())
