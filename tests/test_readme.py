"""The README's commands do what it says."""

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, in_workspace

pytestmark = pytest.mark.slow

README = (ROOT / "README.md").read_text()
NOT_RUN_HERE = {
    "make test": "it is this very test suite",
    "make ui": "a server; it does not end",
    ". .venv/bin/activate": "the tests run in the environment already",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_first_commands_are_make_run_and_make_test() -> None:
    assert commands()[:2] == ["make run", "make test"]


def test_what_is_not_run_is_in_the_readme() -> None:
    assert set(NOT_RUN_HERE) <= set(commands()), "an exemption without its command"


PRINTED = (r"\d+", r"passed 0\.\d+ None \[.*\]")


# Before the commands: some of them read what the examples write.
@pytest.mark.parametrize(("code", "printed"), zip(blocks("python"), PRINTED, strict=True))
def test_python(swept, code: str, printed: str) -> None:  # type: ignore[no-untyped-def]
    workspace: Path = swept[0]
    done = in_workspace(workspace, "python", "-c", code)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.fullmatch(printed, done.stdout.strip()), done.stdout


@pytest.mark.parametrize("command", [command for command in commands() if command not in NOT_RUN_HERE])
def test_command(swept, command: str) -> None:  # type: ignore[no-untyped-def]
    workspace: Path = swept[0]
    if command.startswith("make "):  # the environment is there already: this one
        command = command.replace("make ", f"make VENV={sys.prefix} -o {sys.prefix}/.installed ", 1)
    expected = 1 if "overflow_naive" in command else 0
    done = in_workspace(workspace, "bash", "-c", command)
    assert done.returncode == expected, done.stdout[-3000:] + done.stderr[-3000:]


def anchors_of(page: Path) -> set[str]:
    """The addresses of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_file_it_names_exists() -> None:
    for name in re.findall(r"`((?:conf|stages|docs|tests|examples|pipeline)/[\w./-]*)`", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(((?!http)[^)]+)\)", README):
        page, _, anchor = name.partition("#")
        assert (ROOT / page).exists(), name
        assert not anchor or anchor in anchors_of(ROOT / page), name


def test_docs_do_not_speak_of_what_is_not_there() -> None:
    for page in [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for name in re.findall(r"`((?:conf|stages|docs|tests|examples|pipeline)/[\w./-]*\w)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"
