"""The measures of the verification, one after the other, each in a process of its own; prints their tables.

    python -m benchmarks.verification benchmarks/build/models
    python -m benchmarks.verification benchmarks/build/models --only blind_spot planted_faults --faults-in nano_dfine

    emulation        what emulated FP16 costs beside FP32 (two 640 detectors, then the embedded ones), and how far it is
                     from torch
    blind_spot       what plain ONNX Runtime reports of files that overflow, and the truth
    planted_faults   thirty planted faults: is the node named? (hours, most of them for the four large models)

The folder holds what benchmarks.models and benchmarks/lightly.py make. Each writes benchmarks/results/<name>.json. A
measure that fails does not stop those behind it; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.planted_faults import MODELS

ROOT = Path(__file__).resolve().parent.parent
MEASURES = ("emulation", "blind_spot", "planted_faults")


def commands(
    folder: Path, only: Sequence[str] = MEASURES, faults_in: Sequence[str] = MODELS
) -> list[tuple[str, list[str]]]:
    """Modules of this package with their arguments, in order.

    Args:
        only: some of MEASURES.
        faults_in: models in which faults are planted.
    """
    large, embedded = (
        [str(folder / f"{name}.onnx") for name in names]
        for names in (("dfine640", "rtdetrv2640"), ("nano_dfine", "nano_rtdetrv2"))
    )
    every = [
        ("emulation", [*large, "--networks"]),
        ("emulation", [*embedded, "--subjects", "fp32", "emulated", "pessimistic"]),
        ("blind_spot", []),
        ("planted_faults", [str(folder), "--models", *faults_in]),
    ]
    return [(name, arguments) for name, arguments in every if name in only]


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verification", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="what benchmarks.models and benchmarks/lightly.py made")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=MEASURES)
    parser.add_argument("--faults-in", nargs="+", choices=MODELS, default=MODELS, help="models to plant faults in")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    failed = []
    for name, rest in commands(chosen.folder.resolve(), chosen.only, chosen.faults_in):
        print(f"\n## {name}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *rest], cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
