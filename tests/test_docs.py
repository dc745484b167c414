"""What docs/ takes from the code is current, and what it names exists."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from docs import generate, rooms
from tests.configurations import composed
from tests.conftest import ROOT
from tests.markdown import broken_links, code_blocks, command_lines, steps
from truehalf.cli.app import app
from truehalf.cli.app import run as truehalf


def test_what_is_generated_is_current() -> None:
    for path, text in generate.made():
        assert path.read_text() == text, f"{path.name}: make docs"


def test_the_picture_draws_every_room_once() -> None:
    found = {path.name for path in (ROOT / "truehalf").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found | {"api"} == set(rooms.FLOORS)
    assert all(rooms._place(other) < rooms._place(room) for room, other in rooms.direct(rooms.imports()))
    assert all(line.split("|")[2].strip() for line in rooms.table().splitlines())


def test_flags_of_other_tools_lead_to_flags_that_exist(capsys) -> None:  # type: ignore[no-untyped-def]
    text = (ROOT / "docs/how-to/coming-from.md").read_text()
    helps = {}
    for name in ("convert", "verify"):
        truehalf([name, "--help"])
        helps[name] = capsys.readouterr().out
    table = text.partition("## onnxconverter")[0]
    left, ours = set(), set()
    for row in re.findall(r"^\|(.*?)\|(.*?)\|", table, re.MULTILINE)[2:]:
        left |= set(re.findall(r"`(--?[\w-]+)", row[0]))
        ours |= set(re.findall(r"`(--?[\w-]+)", row[1]))
    assert len(left) > 15
    assert len(ours) > 10 and all(flag in helps["convert"] for flag in ours - {"--json"})
    for row in re.findall(r"^\|(.*?)\|(.*?)\|", text.partition("## onnxslim")[2], re.MULTILINE):
        for command in re.findall(r"`((?:convert|verify|inspect|lint|engine) [^`]*)`", row[1]):
            truehalf([command.split()[0], "--help"])
            shown = capsys.readouterr().out
            assert all(flag in shown for flag in re.findall(r"--[\w-]+", command)), command
    rest = set(re.findall(r"`(?:verify [^`]*)?(--[\w-]+)[^`]*` \|", text.partition("## Polygraphy")[2]))
    assert {"--samples", "--tolerance"} <= rest and all(
        flag in helps["verify"] for flag in rest if flag in ("--samples", "--tolerance")
    )


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "NOTES.md"),
]
LANGUAGES = {"bash", "python", "yaml", "json", "text", "{toctree}"}
# Programs of others, whose options are not known here.
OTHERS = {".", "cd", "dvc", "eval", "export", "git", "mlflow", "nvidia-smi", "pip", "polygraphy", "trtexec"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_holds_together(page: Path) -> None:
    assert broken_links(page) == []
    made = {step.file for step in steps(page.read_text())}
    of_images = re.findall(r"truehalf [^`\n]*--samples \S*images\b[^`\n]*", page.read_text().replace("\\\n", " "))
    assert [line for line in of_images if "--size" not in line] == [], "a file without an I/O spec is refused"
    for language, block in code_blocks(page.read_text()):
        assert language in LANGUAGES, f"a block of {language!r}: {block}"
        if language == "python":
            assert missing_names(block) == []
        if language == "yaml":
            yaml.safe_load(block)
        if language == "bash":
            assert [(words, why) for words in command_lines(block) if (why := wrong(words, made))] == []


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("truehalf convert model.onnx --sample x.npz", "--sample"),
        ("truehalf check model.onnx", "check"),
        ("python -m pipeline precision=fp8", "precision=fp8"),
        ("python -m pipeline -m decoder=dfine,none precision.data_maximum=1", "precision.data_maximum"),
        ("python -m pipeline.compared", "pipeline.compared"),
        ("python docs/generated.py", "docs/generated.py"),
        ("python -c 'from truehalf import converts'", "converts"),
        ("make documents", "documents"),
        ("polygraph run model.onnx", "polygraph"),
    ],
)
def test_what_is_wrong_with_a_command_is_named(command: str, named: str) -> None:
    (words,) = command_lines(f"A=1 {command}  # why")
    assert named in wrong(words)


def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One two\n```bash\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#one-two) [b](other.md#no-heading) [c](none.md) [d](#here) [e](https://x.org/none.md)")
    assert broken_links(page) == ["other.md#no-heading", "none.md", "#here"]


def missing_names(program: str) -> list[str]:
    """What a program takes from this project and is not there."""
    found = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "truehalf":
            module = importlib.import_module(node.module or "")
            found += [name.name for name in node.names if not hasattr(module, name.name)]
    return found


def wrong(words: list[str], made: Collection[str] = ()) -> str:
    """What is wrong with a command of a page that holds some files itself, "" where nothing is."""
    program, *rest = words
    if program == "truehalf":
        return wrong_options(rest)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return ", ".join(word for word in rest if "=" not in word and word not in targets)
    if program == "python" and rest[0] == "-m":
        if importlib.util.find_spec(rest[1]) is None:
            return f"no module {rest[1]}"
        return wrong_keys(rest[2:]) if rest[1] == "pipeline" else ""
    if program == "python" and rest[0] == "-c":
        return ", ".join(missing_names(rest[1]))
    if program == "python":
        return "" if rest[0] in made or (ROOT / rest[0]).exists() else f"no file {rest[0]}"
    return "" if program in OTHERS else f"unknown program {program}"


def wrong_options(words: list[str]) -> str:
    if words[0] not in app.list_commands(click.Context(app)):
        return "" if words[0].startswith("--") else f"no command {words[0]}"
    command = app.get_command(click.Context(app), words[0])
    assert command is not None
    known = re.findall(r"--?[\w-]+", command.get_help(click.Context(command)))
    return ", ".join(word for word in words[1:] if word.startswith("-") and word.split("=")[0] not in known)


def wrong_keys(words: list[str]) -> str:
    """Choices and keys of `python -m pipeline` that conf/ does not have."""
    told = dict(word.lstrip("+").split("=", 1) for word in words if "=" in word and not word.startswith("hydra"))
    choices = {key: value.split(",")[0] for key, value in told.items() if (ROOT / "conf" / key).is_dir()}
    for group in ("model", "experiment"):  # files that pipeline.init and readers of docs/how-to/keep-a-fix.md write
        if choices.get(group) == "mine":
            choices.pop(group), told.pop(group)
    left = [f"{key}={value}" for key, value in choices.items() if not (ROOT / f"conf/{key}/{value}.yaml").exists()]
    if not left:
        values = composed(*(f"{key}={value}" for key, value in choices.items()))
        left = [key for key in told.keys() - choices.keys() if not has(values, key)]
    return ", ".join(left)


def has(values: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(values, dict):
            return True  # of what may hold anything: options, profiles
        if name not in values:
            return False
        values = values[name]
    return True
