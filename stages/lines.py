"""Line that a stage prints when it has ended: its name, some of its report, its seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truehalf.report.numbers import worded

_WIDTH = 44  # columns of the report's figures, so that seconds stand below each other on 80 columns
FIGURES: dict[str, tuple[str, ...]] = {  # by stage; see truehalf.report.numbers.worded
    "inputs": ("samples: {calibration[samples]} calibration, {verification[samples]} verification",),
    "trace": ("{model[nodes]} nodes", "{parity[status]}"),
    "slim": ("{model[nodes]} nodes", "{parity[status]}"),
    "calibrate": ("{tensors} tensors, {samples} samples",),
    "fp16": ("{model[fp16_fraction]:%1} FP16", "{costs[placed][casts]} casts added"),
    "cast_cleanup": ("{casts_before} casts, {casts_after} after it", "{model[size_mb]:.2f} MB"),
    "reference": ("FP32 model, trace and slim, {samples} samples",),
    "verify": ("{verdict}", "{matched_fraction:%2} matched"),
    "engine": ("{status}",),
}


def line(stage: str, report: Mapping[str, Any], seconds: float) -> str:
    """The line of a stage.

    Args:
        stage: its name in dvc.yaml.
        report: the content of reports/<stage>.json.
        seconds: that it took.
    """
    if report.get("status") == "skipped":
        summary = "skipped"
    elif report.get("status") == "compiled":  # its engine cannot run on this machine
        summary = "compiled, not run"
    else:
        summary = ", ".join(worded(FIGURES.get(stage, ()), report))
    return f"{stage:<12}  {summary:<{_WIDTH}} {seconds:>5.1f} s"
