"""The README's commands do what it says."""

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, SWEEP, in_workspace
from tests.test_chain import AGAIN, EXPERIMENT, NO_OVERFLOW, OVERFLOW

README = (ROOT / "README.md").read_text()
NOT_RUN_HERE = {
    "make test": "it is this very test suite",
    "make ui": "a server; it does not end",
    ". .venv/bin/activate": "the tests run in the environment already",
} | dict.fromkeys((SWEEP, AGAIN, EXPERIMENT, OVERFLOW, NO_OVERFLOW), "tests/test_chain.py runs it")
# Each runs a chain, or needs one that does.
DEAR = {
    "python -m pipeline precision=fp16 decoder=dfine",
    "python -m pipeline precision=fp32 engine=onnxruntime engine.provider=cpu engine.latency.runs=20 "
    "verify.require=[engine]",
    "truehalf engine artifacts/engine/plan.json --out artifacts/carried_out",
}
PRINTED = (r"\d+\npassed 0\.\d+ None \[.*\]",)  # by the programs in Python, in their order


def blocks() -> list[tuple[str, list[str]]]:
    """The README's commands and programs, in its order: the language, and a block's lines or its one program."""
    found = re.findall(r"^```(bash|python)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [(language, [block] if language == "python" else lines_of(block)) for language, block in found]


def lines_of(block: str) -> list[str]:
    return [line for line in (line.split("#")[0].strip() for line in block.splitlines()) if line]


def commands() -> list[str]:
    return [command for language, block in blocks() if language == "bash" for command in block]


def run(workspace: Path, command: str) -> None:
    if command.startswith("make "):  # the environment is there already: this one
        command = command.replace("make ", f"make VENV={sys.prefix} -o {sys.prefix}/.installed ", 1)
    done = in_workspace(workspace, "bash", "-c", command)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"


def test_the_first_commands_are_make_run_and_make_test() -> None:
    assert commands()[:2] == ["make run", "make test"]


def test_what_is_named_here_is_in_the_readme() -> None:
    assert NOT_RUN_HERE.keys() | DEAR <= set(commands()), "an exemption without its command"


def test_quick_commands_and_programs_from_top_to_bottom(after_chain: Path) -> None:
    printed = iter(PRINTED)
    for language, block in blocks():
        for code in block:
            if language == "python":
                done = in_workspace(after_chain, "python", "-c", code)
                assert done.returncode == 0, f"{code}: {done.stderr[-3000:]}"
                assert re.fullmatch(next(printed), done.stdout.strip()), done.stdout
            elif code not in NOT_RUN_HERE and code not in DEAR:
                run(after_chain, code)
    assert list(printed) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", [each for _, each in blocks() if DEAR & set(each)], ids=lambda block: block[-1][:40])
def test_dear_commands_by_block(after_chain: Path, block: list[str]) -> None:
    for command in block:
        if command in DEAR:
            run(after_chain, command)


def test_every_file_it_names_exists() -> None:
    for name in re.findall(r"`((?:conf|stages|docs|tests|examples|pipeline)/[\w./-]*)`", README):
        assert (ROOT / name).exists(), name


def test_docs_do_not_speak_of_what_is_not_there() -> None:
    for page in [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name in re.findall(r"`((?:conf|stages|docs|tests|examples|pipeline)/[\w./-]*\w)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"
