"""Faults planted at random nodes of real networks: is the node named?

    python -m benchmarks.models benchmarks/build/models
    .venv-lightly/bin/python -P benchmarks/lightly.py benchmarks/build/models
    python -m benchmarks.planted_faults benchmarks/build/models

Six networks, five kinds of fault (tests/measuring/faults.py), one node each, drawn by the seed.

Which fault counts, and what is found: tests/measuring/planted.py.

Writes benchmarks/results/planted_faults.json, one row a seed (others stay), and prints the table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.measuring.faults import KINDS, Network
from tests.measuring.planted import searched

RESULTS = Path(__file__).resolve().parent / "results" / "planted_faults.json"
MODELS = ("nano_dfine", "nano_rtdetrv2", "dfine640", "rtdetrv2640", "vitt16_dfine", "vitt16_rtdetrv2")


def planned(seed: int) -> tuple[str, str]:
    """Model and kind of a seed: each pair once in thirty."""
    return MODELS[seed % len(MODELS)], KINDS[seed // len(MODELS) % len(KINDS)]


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | fault | node | effect | found | rank | s |", "|---|---|---|---:|---|---:|---:|"]
    for row in rows:
        effect = row["effect"] if isinstance(row["effect"], str) else f"{100 * row['effect']:.2g} %"
        found = {"node": "yes", "reader": "its reader", "no": "no"}[row["found"]]
        node = f"`{row['node']}` ({row['op']})"
        rank = row["rank"] if row["rank"] is not None else "-"
        lines.append(f"| {row['model']} | {row['kind']} | {node} | {effect} | {found} | {rank} | {row['seconds']} |")
    hits = sum(row["found"] != "no" for row in rows)
    redraws = sum(row["redraws"] for row in rows)
    return "\n".join([*lines, "", f"{hits} of {len(rows)} found; {redraws} draws without effect were drawn anew."])


def _store(row: dict[str, Any]) -> None:
    """Put a row among the results; those of other seeds stay."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = sorted([each for each in rows if each["seed"] != row["seed"]] + [row], key=lambda each: each["seed"])
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_faults", description="Plant faults, find them.")
    parser.add_argument("folder", type=Path, help="what benchmarks.models and benchmarks/lightly.py made")
    parser.add_argument("--first-seed", type=int, default=0, help="not 0: rows are printed, and not written")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + len(MODELS) * len(KINDS))
    rows = []
    for name in arguments.models:
        network = Network.load(arguments.folder, name)
        for seed in (seed for seed in seeds if planned(seed)[0] == name):
            rows.append(searched(network, planned(seed)[1], seed))
            print(json.dumps(rows[-1]), flush=True)
            if arguments.first_seed == 0:
                _store(rows[-1])
    if arguments.first_seed == 0:
        rows = json.loads(RESULTS.read_text())
    print(table(sorted(rows, key=lambda row: row["seed"])))


if __name__ == "__main__":
    main()
