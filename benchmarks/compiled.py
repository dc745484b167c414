"""What a compiler makes of each converter's file: attentions in one kernel, and the share of FP16 in the arithmetic.

    make bench-peers
    python -m benchmarks.models benchmarks/build/models dfine640
    python -m benchmarks.compiled benchmarks/build/models/dfine640.onnx

Each converter of the README makes its file as in benchmarks.converters; TensorRT for RTX compiles it without a GPU
(`truehalf engine`). Writes benchmarks/results/compiled.json, one entry per model and converter; others stay. A machine
with a GPU builds and runs an engine instead, which this program does not read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.converters import PEERS, SUBJECTS, Subject, command_of
from truehalf.files import write_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "compiled.json"
NAMES = ("AutoCast", "onnxconverter-common", "ONNX Runtime, lightly-train's list, fixed", "truehalf")
SHOWN = "dfine640"  # the model of the README's table
_KEYS = ("compiler", "targets", "fused_attention", "attention_regions", "half_arithmetic", "file_half_arithmetic")


def entry(model: Path, subject: Subject) -> dict[str, Any]:
    """The facts of one converter's file; `failed` and why, where no file or nothing compiled came out."""
    found: dict[str, Any] = {"model": model.stem, "subject": subject.name, "failed": None}
    with tempfile.TemporaryDirectory() as folder:
        target, report = Path(folder) / "model.onnx", Path(folder) / "engine.json"
        options = {"keep_io_types": False} | dict(subject.options)
        where = ROOT if subject.tool == "truehalf" else folder
        done = subprocess.run(command_of(subject, model, target, options), cwd=where, capture_output=True, text=True)
        if not target.exists():
            return found | {"failed": (done.stderr.strip().splitlines() or ["no file"])[-1]}
        engine = [sys.executable, "-m", "truehalf", "engine", str(target), "--no-gates", "--json", str(report)]
        done = subprocess.run([*engine, "--out", str(Path(folder) / "engine")], cwd=ROOT, capture_output=True, text=True)
        compiled = json.loads(report.read_text()).get("compiled") if report.exists() else None
        if compiled is None:
            return found | {"failed": (done.stderr.strip().splitlines() or ["not compiled"])[-1]}
        return found | {key: compiled[key] for key in _KEYS}


def merged(known: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The new rows in place of the old ones of the same model and converter."""
    again = {(row["model"], row["subject"]) for row in rows}
    return [*(row for row in known if (row["model"], row["subject"]) not in again), *rows]


def of(entries: Sequence[Mapping[str, Any]], model: str, subject: str) -> Mapping[str, Any]:
    """The entry of a model and a converter; empty where there is none."""
    return next((each for each in entries if (each["model"], each["subject"]) == (model, subject)), {})


def peers(measured: Sequence[Mapping[str, Any]]) -> str:
    """Markdown for the README, one model: a row for each converter, from its entry of converters.json and from
    compiled.json; a dash where nothing was compiled.
    """
    entries = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    lines = ["| | casts | Half as compiled | attentions fused | score error | seconds |", "|---" * 6 + "|"]
    for name in NAMES:
        row, facts = of(measured, SHOWN, name), of(entries, SHOWN, name)
        half, fused = facts.get("half_arithmetic"), facts.get("fused_attention")
        rounds = row["wall_s_of_each_round"]
        cells = [
            *(name, str(row["casts"]), "–" if half is None else f"{half:.1%}"),
            "–" if fused is None else f"{fused} of {facts['attention_regions']}",
            *(f"{row['score_error']['max']:.2g}", f"{min(rounds):.1f} to {max(rounds):.1f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path, nargs="+", help="FP32 files of benchmarks.models")
    arguments = parser.parse_args()
    needs_peers = ("autocast", "onnxconverter")
    chosen = [each for each in SUBJECTS if each.name in NAMES and (PEERS.exists() or each.tool not in needs_peers)]
    for model in arguments.models:
        for subject in chosen:
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
            row = entry(model.resolve(), subject)
            print(row, flush=True)
            write_json(RESULTS, merged(known, [row]))


if __name__ == "__main__":
    main()
