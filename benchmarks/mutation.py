"""Which of the drawn mutants `make test` and `make test-all` kill.

    python -m benchmarks.covering test; python -m benchmarks.covering rest    first: which tests run which lines
    python -m benchmarks.mutation run [2]          so many at a time; goes on where it was stopped
    python -m benchmarks.mutation table            for docs/explanation/testing.md

For each mutant a copy of the project with that one change runs the tests that run the mutant's line, fast ones first,
until one fails: those of `make test`, and where none of them does, those that `make test-all` runs beyond it. The test
that failed has to pass without the change. A tier that has not ended after five minutes counts as survived, with that
reason. Results are committed, one a mutant.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import Any

from benchmarks.covering import SELECTED, is_measured, lines_of, notes_of
from benchmarks.mutants import DRAWN, ROOT, Mutant, mutated

RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"
LIMIT_S = 300
KILLED, SURVIVED, TOO_LONG, NOT_RUN = "killed", "survived", "survived (limit)", "survived (no test runs it)"
_lock = Lock()
_sound: set[str] = set()  # tests that were seen to pass without a change


class Covering:
    """The tests of a tier that run a line, fast ones first."""

    def __init__(self, tier: str) -> None:
        self._lines, self._notes = lines_of(tier), notes_of(tier)
        self._readers: dict[str, list[str]] = {}
        for test, note in self._notes.items():
            for fixture in note["fixtures"]:
                self._readers.setdefault(fixture, []).append(test)

    def tests_of(self, module: str, lines: range | None) -> list[str]:
        """Those that run one of these lines; None: one of any function's, as for what runs when it is imported."""
        measured = self._lines.get(module, {})
        contexts = {context for line in lines or measured for context in measured.get(line, ())}
        tests = {test for context in contexts for test in self._readers.get(context, [context])}
        return sorted(tests & self._notes.keys(), key=lambda test: (self._notes[test]["seconds"], test))


def lines_of_mutant(text: str, mutant: Mutant) -> range | None:
    """The lines of the statement that holds the change, from 1: coverage notes the first line of a statement. None
    where it runs when the module is imported.
    """
    changed = mutated(text, mutant)
    same = next(i for i, (a, b) in enumerate(zip(text, changed, strict=False)) if a != b)
    line = text.count("\n", 0, same) + 1
    holding = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not any(isinstance(node, ast.FunctionDef) for node in holding):
        return None
    smallest = min(holding, key=lambda node: (node.end_lineno or node.lineno) - node.lineno)
    if isinstance(smallest, (ast.If, ast.For, ast.While, ast.With)):
        return range(line, line + 1)
    return range(smallest.lineno, (smallest.end_lineno or line) + 1)


def first_failure(folder: Path, tests: list[str], tier: str) -> tuple[str, str | None]:
    """How the tests end, and the first that fails."""
    if not tests:
        return NOT_RUN, None
    listed = folder / "tests.txt"
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", f"@{listed}", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-m", SELECTED[tier], *(["--hypothesis-profile", "all"] if tier == "rest" else [])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    output = folder / "pytest.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return TOO_LONG, None
    if code == 0:
        return SURVIVED, None
    said = output.read_text()
    failed = re.search(r"^(?:FAILED|ERROR) (.+)", said, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"pytest ended with {code}: {said[-2000:]}")
    # a test's name may hold blanks, and a reason may follow it
    named = [test for test in tests if f"{failed[1]} - ".startswith(f"{test} - ")]
    return KILLED, named[0] if named else failed[1].split()[0]


def judged(
    mutant: Mutant, folder: Path, tiers: Mapping[str, Covering], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What becomes of a mutant in a copy of the project; of a tier that is `known` it is not asked again.

    Raises:
        RuntimeError: a test that fails with the change fails without it, too.
    """
    file = folder / mutant.module
    sound = file.read_text()
    result = dict(known or {})
    for tier, covering in tiers.items():
        if tier in result:
            continue
        tests = covering.tests_of(mutant.module, lines_of_mutant(sound, mutant))
        started = time.perf_counter()
        file.write_text(mutated(sound, mutant))
        try:
            outcome, test = first_failure(folder, tests, tier)
        finally:
            file.write_text(sound)
        result[tier] = {"outcome": outcome, "by": test, "tests": len(tests)}
        result[tier]["seconds"] = round(time.perf_counter() - started, 1)
        if outcome == KILLED:
            assert test is not None
            _check_sound(folder, test, tier)
            break
    return result


def _check_sound(folder: Path, test: str, tier: str) -> None:
    if test not in _sound:
        outcome, _ = first_failure(folder, [test], tier)
        if outcome != SURVIVED:
            raise RuntimeError(f"{test} does not pass without the change: {outcome}")
        _sound.add(test)


def key_of(mutant: Mutant) -> str:
    return f"{mutant.module} {mutant.function} {mutant.line} #{mutant.nth}.{mutant.column} -> {mutant.after}"


def copy_of_project(folder: Path) -> Path:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


def run(side_by_side: int = 2) -> int:
    """Judge every mutant that has no result yet, of the tiers whose coverage was measured."""
    mutants = [Mutant(**each) for each in json.loads(DRAWN.read_text())]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tiers = {tier: Covering(tier) for tier in SELECTED if is_measured(tier)}
    with tempfile.TemporaryDirectory(prefix="truehalf-mutants-") as name:
        folders: Queue[Path] = Queue()
        for number in range(side_by_side):
            folders.put(copy_of_project(Path(name) / str(number)))

        def one(mutant: Mutant) -> None:
            folder = folders.get()
            try:
                found = judged(mutant, folder, tiers, results.get(key_of(mutant)))
            finally:
                folders.put(folder)
            with _lock:
                results[key_of(mutant)] = found
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
                print(key_of(mutant), *(f"{tier}: {each['outcome']}" for tier, each in found.items()), flush=True)

        with ThreadPoolExecutor(side_by_side) as pool:
            list(pool.map(one, [mutant for mutant in mutants if not _is_done(results.get(key_of(mutant), {}))]))
    return 0


def _is_done(result: Mapping[str, Any]) -> bool:
    return result.keys() == SELECTED.keys() or any(tier["outcome"] == KILLED for tier in result.values())


def table() -> str:
    """Killed mutants by module, and those that no test kills."""
    mutants = [Mutant(**each) for each in json.loads(DRAWN.read_text())]
    results = json.loads(RESULTS.read_text())
    lines = ["| module | mutants | killed by `make test` | by `make test-all` |", "|---|---|---|---|"]
    survivors, totals = [], [0, 0, 0]
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        of = [results[key_of(mutant)] for mutant in mutants if mutant.module == module]
        test = sum(each["test"]["outcome"] == KILLED for each in of)
        every = sum(any(tier["outcome"] == KILLED for tier in each.values()) for each in of)
        lines.append(f"| {module} | {len(of)} | {test} | {every} |")
        totals = [a + b for a, b in zip(totals, (len(of), test, every), strict=True)]
    lines.append(f"| all | {totals[0]} | {totals[1]} | {totals[2]} |")
    for mutant in mutants:
        found = results[key_of(mutant)]
        if not any(tier["outcome"] == KILLED for tier in found.values()):
            said = ", ".join(f"{tier}: {each['outcome']}" for tier, each in found.items())
            survivors.append(f"- `{mutant.module}`, {mutant.function}: `{mutant.before}` -> `{mutant.after}` ({said})")
    return "\n".join([*lines, "", *survivors])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["run"] and len(arguments) <= 2 and all(each.isdecimal() for each in arguments[1:]):
        return run(*map(int, arguments[1:]))
    if arguments == ["table"]:
        print(table())
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
