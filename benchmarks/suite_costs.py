"""Where the seconds of the test suite go, by cause and by file.

    python -m benchmarks.suite_costs "not gpu and not slow"     the tests that this selects, in one process
    python -m benchmarks.suite_costs table                      the table for docs/explanation/testing.md

A test's seconds are those of its fixtures, too. What it spends waiting for a process goes to that process's command,
what it spends inside an export or a copy of the project to that; the rest is its own computing.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "benchmarks" / "build" / "suite_costs.jsonl"
OWN = "computing in the test itself"
FILES_SHOWN = 25
# The first that is found in a process's command.
COMMANDS = (
    (r"-m pipeline( |$)", "`python -m pipeline`"),
    (r"-m pipeline\.", "`python -m pipeline.*`"),
    (r"-m stages\.", "`python -m stages.*`"),
    (r"\bdvc exp\b", "`dvc exp`"),
    (r"\bdvc repro\b", "`dvc repro`"),
    (r"\bdvc\b", "other `dvc` commands"),
    (r"^git\b", "git"),
)


class Clock:
    """Seconds and calls by cause; of what happens inside another the outer one is charged."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._inside = False

    def charged(self, function: Callable[..., Any], cause: Callable[..., str]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            if self._inside:
                return function(*arguments, **keywords)
            self._inside, started = True, time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self._inside = False
                self.seconds[cause(*arguments)] += time.perf_counter() - started
                self.calls[cause(*arguments)] += 1

        return timed


def cause_of(process: subprocess.Popen[Any], *_: Any) -> str:
    command = process.args if isinstance(process.args, str) else " ".join(map(str, process.args))  # type: ignore[arg-type]
    return next((cause for pattern, cause in COMMANDS if re.search(pattern, command)), "other processes")


CLOCK = Clock()


def pytest_collection_finish() -> None:
    """Nothing is timed before the first test, so that imports are charged to nobody."""
    import torch

    import tests.conftest

    subprocess.Popen.communicate = CLOCK.charged(subprocess.Popen.communicate, cause_of)  # type: ignore[method-assign]
    subprocess.Popen.wait = CLOCK.charged(subprocess.Popen.wait, cause_of)  # type: ignore[method-assign]
    torch.onnx.export = CLOCK.charged(torch.onnx.export, lambda *_: "`torch.onnx.export`")
    tests.conftest.shutil.copytree = CLOCK.charged(  # type: ignore[attr-defined]
        tests.conftest.shutil.copytree,  # type: ignore[attr-defined]
        lambda *_: "copies of the project",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    started = time.perf_counter()
    CLOCK.seconds.clear()
    CLOCK.calls.clear()
    try:
        return (yield)
    finally:
        own = time.perf_counter() - started - sum(CLOCK.seconds.values())
        note = {"test": item.nodeid, "seconds": dict(CLOCK.seconds) | {OWN: own}, "calls": dict(CLOCK.calls)}
        with BUILD.open("a") as file:
            file.write(json.dumps(note) + "\n")


def measure(selected: str) -> int:
    BUILD.parent.mkdir(parents=True, exist_ok=True)
    BUILD.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "benchmarks.suite_costs", "-q", "-m", selected]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode


def table() -> str:
    notes = [json.loads(line) for line in BUILD.read_text().splitlines()]
    calls: Counter[str] = Counter()
    causes: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    for note in notes:
        calls.update(note["calls"])
        for cause, seconds in note["seconds"].items():
            causes[cause] += seconds
            files[note["test"].partition("::")[0]] += seconds
    shown = _dearest(files)[:FILES_SHOWN]
    rest = sum(files.values()) - sum(seconds for _, seconds in shown)
    return "\n".join(
        [
            *("| cause | times | seconds |", "|---|---|---|"),
            *(f"| {cause} | {calls[cause] or ''} | {seconds:.0f} |" for cause, seconds in _dearest(causes)),
            *("", "| file | seconds |", "|---|---|"),
            *(f"| `{file}` | {seconds:.0f} |" for file, seconds in shown),
            f"| {len(files) - len(shown)} others | {rest:.0f} |",
            f"| **all, {len(notes)} tests** | {sum(files.values()):.0f} |",
        ]
    )


def _dearest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda pair: -pair[1])


def main(arguments: list[str]) -> int:
    if arguments == ["table"]:
        print(table())
        return 0
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        return measure(arguments[0])
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
