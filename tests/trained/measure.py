"""Convert one trained model as a user would, and compare what its FP16 file does with what the FP32 file does.

    python -m tests.trained.measure NAME      prints one row as JSON

The library is used through `truehalf.convert` and `truehalf.compare` alone, with default options, and through
`half_session`, which runs an FP16 file.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.trained.corpus import MODELS
from tests.trained.model import CALIBRATION, Arrays, Opened, judged
from tests.trained.running import ROOT
from tests.trained.sounds import NoSpeech
from tests.trained.wheels import NotFetched

Row = dict[str, Any]


def half_session(file: Path) -> Callable[[Arrays], Arrays]:
    """Run a file with FP16 rounded as hardware rounds it, on the CPU; outputs are float32."""
    from truehalf.emulation.sessions import EmulatedSession

    opened = EmulatedSession(file)
    return lambda feeds: opened.run(feeds)


def measured(name: str) -> Row:
    """One row: task, verdict, checks, share of FP16, figures, cost; `skipped` or `error` where there is none."""
    from truehalf import compare, convert

    trained = MODELS[name]
    try:
        opened = Opened(trained)
        samples = trained.samples(opened)
    except (NotFetched, NoSpeech) as error:
        return {"model": name, "skipped": str(error)}
    feeds, verifying = [each.feeds for each in samples], samples[CALIBRATION:]
    row: Row = {"model": name, "task": trained.task, "package": trained.package, "samples": len(verifying)}
    with tempfile.TemporaryDirectory() as folder:
        made, start = Path(folder, "fp16.onnx"), time.perf_counter()
        try:
            report = convert(opened.file, made, samples=feeds[:CALIBRATION]).report
            converted = time.perf_counter()
            row["valid"] = valid(made)
            verdict = compare(opened.file, made, feeds[CALIBRATION:], locate=False)
        except Exception as error:  # a model that the library breaks on is a row, not the end of the table
            return row | {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:300]}
        compared = time.perf_counter()
        row |= {"verdict": verdict.verdict, "codes": codes(verdict), "fp16": report.fp16.fp16_arithmetic}
        row["check"] = report.check.state if report.check else None
        row["pins"] = len(report.check.node_block_list) if report.check else 0
        reference = [opened.run(each.feeds) for each in verifying]
        run = half_session(made)
        candidate = [run(each.feeds) for each in verifying]
    judgement = judged(trained, opened, verifying, reference, candidate)
    row |= {"same": judgement.same, "figures": judgement.figures}
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {"convert s": converted - start, "compare s": compared - converted}
    return row | {"cost": cost | {"processor s": used.ru_utime + used.ru_stime, "peak MB": used.ru_maxrss / 1024}}


def codes(report: Any) -> list[str]:
    """What did not pass: the codes of its reasons, or the check where a reason has no code."""
    wrong = [each for each in report.findings if each.reason in report.reasons]
    return sorted({code for each in wrong for code in (each.as_dict()["codes"] or [each.check])})


_LOADS = """
import sys, onnx
from tests.trained.model import session
onnx.checker.check_model(sys.argv[1], full_check=True)
session(sys.argv[1])
"""


def valid(file: Path) -> str:
    """Return "yes", or why onnx's checker or ONNX Runtime refuses a file.

    A process of its own asks, for ONNX Runtime may crash.
    """
    done = subprocess.run([sys.executable, "-c", _LOADS, str(file)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode < 0:
        return f"ONNX Runtime crashes on it (signal {-done.returncode})"
    return "yes" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["refused"])[-1][:200]


def plain(value: Any, digits: int = 4) -> Any:
    """For JSON: numbers of Python, floats with so many significant digits, those of `figures` with two."""
    if isinstance(value, dict):
        return {str(key): plain(each, 2 if key == "figures" else digits) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, digits) for each in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.{digits}g}")
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    print(json.dumps(plain(measured(sys.argv[1])), sort_keys=True))
