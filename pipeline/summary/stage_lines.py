"""Progress of a run on the terminal: a line for each stage, with its number, what it found and its seconds. Stages that
had nothing to do share a line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pipeline.workspace import json_of
from truehalf.report.numbers import worded

UNCHANGED, CACHED, FAILED, STOPPED = "unchanged", "from the cache", "failed", "stopped"
_WIDTH = 44  # of what a stage found, so that seconds stand below each other on 80 columns
_SAID: dict[str, tuple[str, ...]] = {  # of a stage's report, in parts; see truehalf.report.numbers.worded
    "inputs": ("samples: {used}",),
    "trace": ("{model[nodes]} nodes", "{parity[status]}"),
    "slim": ("{model[nodes]} nodes", "{parity[status]}"),
    "calibrate": ("{tensors} tensors, {samples} samples",),
    "fp16": ("{model[fp16_fraction]:%1} FP16", "{costs[placed][casts]} casts added"),
    "cast_cleanup": ("{removed} casts removed", "{model[size_mb]:.2f} MB"),
    "reference": ("FP32 model, {samples} samples",),
    "verify_fp32": ("trace and slim, {samples} samples",),
    "verify": ("{verdict}", "{matched_fraction:%2} matched"),
    "probe": ("{gpus}",),
    "engine": ("{status}", "{compiled}"),
    "report": ("reports/metrics.json",),
    "track": ("reports/report.html", "MLflow: {status}"),
}


class StageLines:
    """Lines of one run, printed as its stages end.

    Args:
        total: number of stages.
        folder: the workspace, whose reports say what a stage found.
        stream: where lines go to; on a terminal the stage that works is shown until its own progress takes the place.
    """

    def __init__(self, total: int, folder: Path, stream: TextIO | None = None) -> None:
        self._total, self._folder, self._stream = total, folder, stream or sys.stdout
        self._number = 0
        self._idle: list[tuple[int, str, str]] = []  # number, stage, why it had nothing to do

    def begin(self, stage: str) -> str:
        """A stage is looked at next; its place in the run, in words."""
        self._number += 1
        place = f"{self._place(self._number)} {stage}"
        if self._stream.isatty():
            print(f"\r{place} ...\x1b[K", end="\r", file=self._stream, flush=True)
        return place

    def idle(self, stage: str, why: str) -> None:
        """It had nothing to do: UNCHANGED or CACHED."""
        if self._idle and self._idle[-1][2] != why:
            self.flush()
        self._idle.append((self._number, stage, why))

    def starts(self, verdict: bool) -> None:
        """Its command starts; that of the last stage prints the verdict below what stands here."""
        self.flush()
        if verdict:
            self._print(self._place(self._number), "verdict")

    def end(self, stage: str, seconds: float, badly: str = "") -> None:
        """Its command has ended: well, or FAILED or STOPPED."""
        what = badly or found(stage, json_of(self._folder / "reports" / f"{stage}.json") or {})
        self._print(self._place(self._number), f"{stage:<12}  {what:<{_WIDTH}} {seconds:>5.1f} s")

    def flush(self) -> None:
        """Print the stages that had nothing to do since the last line."""
        if not self._idle:
            return
        numbers, stages, reasons = zip(*self._idle, strict=True)
        self._idle = []
        several = len(stages) > 1
        place = self._place(numbers[-1], f"{numbers[0]}-" if several else "")
        names = ", ".join(stages) if len(stages) < 3 else f"{stages[0]} to {stages[-1]}"
        self._print(place, f"{names}: {reasons[0]}" if several else f"{names:<12}  {reasons[0]}")

    def _place(self, number: int, first: str = "") -> str:
        return f"[{first + str(number):>{len(str(self._total))}}/{self._total}]"

    def _print(self, place: str, text: str) -> None:
        clear = "\r\x1b[K" if self._stream.isatty() else ""
        print(f"{clear}{place} {text}", file=self._stream, flush=True)


def found(stage: str, report: Mapping[str, Any]) -> str:
    """What a stage found, in a few words, by its report; empty where there is nothing to say.

    Args:
        stage: its name in dvc.yaml.
        report: reports/<stage>.json, of any version; {} where there is none.
    """
    if stage == "fp16" and report.get("status") == "skipped":
        return "FP32: nothing is converted"
    known = dict(report) | ({"compiled": "not run"} if "compiled" in report else {})
    if stage == "inputs":
        used = worded(("{calibration[samples]} calibration", "{verification[samples]} verification"), report)
        known |= {"used": ", ".join(used)} if used else {}
    if "casts_after" in report:
        known["removed"] = report["casts_before"] - report["casts_after"]
    if stage == "probe" and report:
        known["gpus"] = ", ".join(gpu["name"] for gpu in report.get("gpus") or []) or "no GPU"
    return ", ".join(worded(_SAID.get(stage, ()), known))
