"""Which tests run which lines: coverage by test, in this process and in those that tests start.

    python -m benchmarks.covering test             make test, measured
    python -m benchmarks.covering rest             what make test-all runs beyond it
    python -m benchmarks.covering table            statements that they run, by room, for docs/explanation/testing.md

A line's context is the test that ran it, or the fixture of more than one test that did; of each test it is noted which
of those fixtures it reads, and of both how long they took. All of it lies in benchmarks/build/coverage/.

Tests that look for tracebacks of Hydra fail here, which prints them where Python is traced, and tests that act as
another user, who cannot write into that folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "benchmarks" / "build" / "coverage"
ROOMS = ("pipeline", "stages", "truehalf")
SELECTED = {"test": "not gpu and not slow", "rest": "not gpu and (slow or hypothesis)"}
_CONTEXT = "TRUEHALF_TEST"  # what processes that a test starts note as their lines' context
_NOTES = "TRUEHALF_NOTES"
_SETTINGS = """\
[run]
parallel = true
data_file = {folder}/data
context = ${{TRUEHALF_TEST-}}
disable_warnings = no-data-collected
source =
    {rooms}
[paths]
{paths}
"""


# --- a plugin of pytest: -p benchmarks.covering ---------------------------------------------------------------------


def _switch(name: str) -> None:
    from coverage import Coverage

    os.environ[_CONTEXT] = name
    if (current := Coverage.current()) is not None:
        current.switch_context(name)


def _shared(item: Any) -> list[str]:
    """The fixtures of more than one test that a test reads."""
    definitions = getattr(item, "_fixtureinfo", None)
    named = definitions.name2fixturedefs if definitions else {}
    return sorted(_name(each[-1]) for each in named.values() if each and each[-1].scope != "function")


def _name(definition: Any) -> str:
    return f"fixture {definition.baseid}::{definition.argname}"


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    if fixturedef.scope == "function":
        return (yield)
    before = os.environ.get(_CONTEXT, "")
    _switch(_name(fixturedef))
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        _switch(before)
        _write({"fixture": _name(fixturedef), "seconds": round(time.perf_counter() - started, 3)})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    _switch(item.nodeid)
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        seconds = round(time.perf_counter() - started, 3)
        _switch("")
        _write({"test": item.nodeid, "seconds": seconds, "fixtures": _shared(item)})


def _write(note: dict[str, Any]) -> None:
    with Path(os.environ[_NOTES]).open("a") as file:
        file.write(json.dumps(note) + "\n")


# --- the measurement ------------------------------------------------------------------------------------------------


def measure(tier: str) -> int:
    """Run the tests of a tier; the exit code of pytest."""
    folder = BUILD / tier
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    folder.mkdir(parents=True)
    settings = folder / "settings.ini"
    # lines of copies of the project, in which chains run, count as the project's
    paths = "\n".join(f"{room} =\n    {ROOT / room}\n    */{room}" for room in ROOMS)
    settings.write_text(_SETTINGS.format(folder=folder, rooms="\n    ".join(ROOMS), paths=paths))
    environment = os.environ | {"COVERAGE_PROCESS_START": str(settings), _NOTES: str(folder / "notes.jsonl")}
    profile = ["--hypothesis-profile", "all"] if tier == "rest" else []
    command = [sys.executable, "-m", "pytest", "-p", "benchmarks.covering", "-q", "-m", SELECTED[tier], *profile]
    command += ["--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
    done = subprocess.run(command, cwd=ROOT, env=environment)
    combine = [sys.executable, "-m", "coverage", "combine", "-q", "--rcfile", str(settings)]
    subprocess.run(combine, cwd=ROOT, check=True, env=os.environ | {_CONTEXT: ""})
    return done.returncode


def is_measured(tier: str) -> bool:
    return (BUILD / tier / "data").exists()


def lines_of(tier: str) -> dict[str, dict[int, list[str]]]:
    """By module and line, the contexts that ran it."""
    from coverage import CoverageData

    data = CoverageData(str(BUILD / tier / "data"))
    data.read()
    found = {}
    for name in data.measured_files():
        if Path(name).is_relative_to(ROOT):
            contexts = data.contexts_by_lineno(name)
            found[str(Path(name).relative_to(ROOT))] = {line: list(each) for line, each in contexts.items()}
    return found


def notes_of(tier: str) -> dict[str, dict[str, Any]]:
    """By test: the fixtures of more than one test that it reads, and its seconds when it has to make them itself."""
    notes = [json.loads(line) for line in (BUILD / tier / "notes.jsonl").read_text().splitlines()]
    made = {
        note["fixture"]: note["seconds"]
        for note in sorted(notes, key=lambda note: note["seconds"])
        if "fixture" in note
    }
    tests = {note["test"]: note for note in notes if "test" in note}
    for note in tests.values():
        note["seconds"] = max(note["seconds"], *(made.get(fixture, 0) for fixture in note["fixtures"]), 0)
    return tests


def table() -> str:
    """By room, the statements that there are, and those that `make test` runs; and, where it was measured, all tests.

    What `make test` runs of all statements is at most what it runs of those that any test runs.
    """
    measured = [tier for tier in SELECTED if is_measured(tier)]
    run = {tier: _run_lines(tier) for tier in measured}
    if "test" not in run:
        raise SystemExit("nothing is measured yet: python -m benchmarks.covering test")
    lines = ["| room | statements | `make test` runs |", "|---|---|---|"]
    if "rest" in run:
        lines = [lines[0] + " all tests run |", lines[1] + "---|"]
    totals: list[int] = []
    for room in ROOMS:
        counts = [0, 0, 0]
        for file in sorted((ROOT / room).rglob("*.py")):
            statements, some = _statements(file), run["test"].get(str(file), set())
            every = some | run.get("rest", {}).get(str(file), set())
            counts = [
                a + len(b) for a, b in zip(counts, (statements, statements & some, statements & every), strict=True)
            ]
        totals = [a + b for a, b in zip(totals or [0, 0, 0], counts, strict=True)]
        lines.append(_row(room, counts[: 1 + len(run)]))
    return "\n".join([*lines, _row("all", totals[: 1 + len(run)])])


def _row(name: str, counts: list[int]) -> str:
    shares = [f"{count} ({count / counts[0]:.1%})" for count in counts[1:]]
    return f"| {' | '.join([name, str(counts[0]), *shares])} |"


def _run_lines(tier: str) -> dict[str, set[int]]:
    """By file, the lines that ran."""
    from coverage import CoverageData

    data = CoverageData(str(BUILD / tier / "data"))
    data.read()
    return {name: set(data.lines(name) or ()) for name in data.measured_files()}


def _statements(file: Path) -> set[int]:
    from coverage import Coverage

    return set(Coverage(data_file=None, config_file=False).analysis2(str(file))[1])


def main(arguments: list[str]) -> int:
    if arguments in (["test"], ["rest"]):
        return measure(arguments[0])
    if arguments == ["table"]:
        print(table())
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
