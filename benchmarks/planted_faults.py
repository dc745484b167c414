"""Faults planted at random nodes of real networks: is the node named?

    python -m benchmarks.models benchmarks/build/models
    .venv-lightly/bin/python -P benchmarks/lightly.py benchmarks/build/models
    python -m benchmarks.planted_faults benchmarks/build/models

Six networks, five kinds of fault (benchmarks.faults), one node each, drawn by the seed.

A fault counts when it moves the outputs (relative RMS, rows in order of size) by at least 2 %, and by four times what
the FP16 file without it does. Where that one is off by 2 % itself (random weights at 640x640 score thousands of places
alike, and rounding chooses others), the fault must move the FP16 file's outputs by 2 % instead. Else the next node is
drawn (`redraws`). Files are converted with one sample and searched with another. Found: the first of the suspects is
the node or one that reads its output (Casts between them aside).

Writes benchmarks/results/planted_faults.json, one row a seed (others stay), and prints the table.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.faults import KINDS, LEAST_EFFECT, PLANT, Fault, Network, NoSite, named
from stages.ort.emulated import EmulatedSession
from stages.ort.session import Session
from stages.parity.locate import find_suspects
from stages.parity.query_rows import outputs_apart

RESULTS = Path(__file__).resolve().parent / "results" / "planted_faults.json"
MODELS = ("nano_dfine", "nano_rtdetrv2", "dfine640", "rtdetrv2640", "vitt16_dfine", "vitt16_rtdetrv2")
LEAST_RATIO = 4.0
_ATTEMPTS = 200


def draw(network: Network, kind: str, seed: int) -> tuple[Fault, float, int]:
    """A fault that has an effect; the effect, and how many draws before had none."""
    for attempt in range(_ATTEMPTS):
        try:
            fault = PLANT[kind](network, np.random.default_rng((seed, attempt)))
        except NoSite:
            continue
        own = fault.reference is network.model
        expected = network.outputs if own else Session(fault.reference).run(network.check)
        found = EmulatedSession(fault.candidate).run(network.check)
        effect = outputs_apart(expected, found)
        if effect < LEAST_EFFECT:
            continue
        healthy = EmulatedSession(fault.healthy).run(network.check) if fault.healthy else network.halved_outputs
        rounding = outputs_apart(expected, healthy)
        least = LEAST_RATIO * rounding
        if rounding >= LEAST_EFFECT:
            effect, least = outputs_apart(healthy, found), LEAST_EFFECT
        if effect < least:
            continue
        return fault, effect, attempt
    raise RuntimeError(f"{network.name}, {kind}, seed {seed}: no draw of {_ATTEMPTS} has an effect")


def searched(network: Network, kind: str, seed: int) -> dict[str, Any]:
    """One row of the results."""
    fault, effect, redraws = draw(network, kind, seed)
    start = time.perf_counter()
    suspects = find_suspects(fault.reference, fault.candidate, network.check)
    seconds = time.perf_counter() - start
    meant = [fault.node, *_readers(fault.candidate, fault.node)]
    ranks = [i for i, suspect in enumerate(suspects, 1) if suspect.node in meant]
    first = suspects[0].node if suspects else None
    return {
        "seed": seed,
        "model": network.name,
        "kind": kind,
        "node": fault.node,
        "op": named(fault.candidate, fault.node).op_type,
        "detail": fault.detail,
        "effect": effect if math.isfinite(effect) else "nonfinite",
        "redraws": redraws,
        "named": first,
        "found": "node" if first == fault.node else "reader" if first in meant else "no",
        "rank": ranks[0] if ranks else None,
        "seconds": round(seconds, 1),
    }


def _readers(model: ir.Model, name: str) -> list[str]:
    found, waiting = [], list(named(model, name).outputs)
    for value in waiting:
        for reader in value.consumers():
            if reader.op_type in ("Cast", "Identity"):
                waiting += reader.outputs
            else:
                found.append(str(reader.name))
    return found


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
