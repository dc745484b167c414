"""Line that a stage prints when it has ended: its name, some of its report, its seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truehalf.report.numbers import worded

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
}


def line(stage: str, report: Mapping[str, Any], seconds: float) -> str:
    """The line of a stage.

    Args:
        stage: its name in dvc.yaml.
        report: the content of reports/<stage>.json.
        seconds: that it took.
    """
    return f"{stage:<12}  {_found(stage, report):<{_WIDTH}} {seconds:>5.1f} s"


def _found(stage: str, report: Mapping[str, Any]) -> str:
    if stage == "fp16" and report.get("status") == "skipped":
        return "FP32: nothing is converted"
    known = dict(report) | ({"compiled": "not run"} if "compiled" in report else {})
    if stage == "inputs":
        used = worded(("{calibration[samples]} calibration", "{verification[samples]} verification"), report)
        known |= {"used": ", ".join(used)} if used else {}
    if "casts_after" in report:
        known["removed"] = report["casts_before"] - report["casts_after"]
    if stage == "probe":
        known["gpus"] = ", ".join(gpu["name"] for gpu in report.get("gpus") or []) or "no GPU"
    return ", ".join(worded(_SAID.get(stage, ()), known))
