"""Comparisons of the test suite that emulate FP16, each made again by ONNX Runtime's CUDA provider: both verdicts.

    python -m pytest -n 0 -p benchmarks.repeated_on_gpu tests/truehalf/conversion tests/truehalf/verification

On a machine with an NVIDIA GPU. Writes benchmarks/results/repeated_on_gpu.json.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from truehalf.config.verification import Evaluation, VerifyConfig
from truehalf.errors import StageError
from truehalf.files import write_json
from truehalf.runtime.machine import probe
from truehalf.verification.chain import compare as compare_module
from truehalf.verification.report import Report

RESULTS = Path(__file__).resolve().parent / "results" / "repeated_on_gpu.json"
module: Any = compare_module
_compare = compare_module.compare
_rows: list[dict[str, str]] = []


def compare_twice(reference: Path, candidate: Path, inputs: Any, **given: Any) -> Report:
    """As truehalf.verification.chain.compare.compare, whose verdict it notes beside that of the GPU."""
    report = _compare(reference, candidate, inputs, **given)
    if report.evaluation == Evaluation.emulated_fp16.value:
        options = replace(given.get("options") or VerifyConfig(), evaluation=Evaluation.cuda)
        try:
            again = _compare(reference, candidate, inputs, **given | {"options": options, "locate": False}).verdict
        except StageError as error:
            again = error.code
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" (")[0]
        _rows.append({"test": test, "emulated": report.verdict, "cuda": again})
    return report


module.compare = compare_twice  # before a test imports it


def pytest_sessionfinish() -> None:
    counts = Counter((row["emulated"], row["cuda"]) for row in _rows)
    different = [row for row in _rows if row["emulated"] != row["cuda"]]
    verdicts = [[*both, count] for both, count in counts.most_common()]
    write_json(RESULTS, {"machine": probe(), "verdicts": verdicts, "different": different})


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a row for each pair of verdicts."""
    lines = ["| emulated | on the GPU | comparisons |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in found["verdicts"])])
