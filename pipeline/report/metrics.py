"""Metrics of a run for `dvc metrics`, reports/metrics.json: figures to compare runs by, with flat keys.

    python -m pipeline.report.metrics

is the stage `report`. The page shows the difference to the run before, so it is no out of a stage: `pipeline.track`
draws it in every run.
"""

from __future__ import annotations

import json
from typing import TypedDict

from pipeline.caveats import has_failed
from pipeline.forms import Params, Reports, model_of, of_stage
from pipeline.workspace import read_reports, root
from truehalf.config.params import read_params
from truehalf.files import write_text
from truehalf.report.terminal import parser_of, run_program


class Metrics(TypedDict):
    """Ten figures to compare runs by; None: not measured in this run. Each key is a column of `dvc metrics show`.

    Attributes:
        ap: AP50-95 of the final file, 0 to 1.
        ap_drop: by how much it is below the FP32 model's.
        matched: share of the FP32 detections that are found again.
        box_p99, score_p99: 99th percentile of the errors of boxes, in pixels, and of scores.
        fp16: share of the arithmetic in FP16, 0 to 1; as compiled where there is a compiled engine.
        casts: casts of the final file beyond those of the FP32 graph.
        fused: attentions in a fused kernel, where compiled.
        mb: size of the final file, 10^6 bytes.
        verdict: "passed", "failed" or "not verified".
    """

    ap: float | None
    ap_drop: float | None
    matched: float | None
    box_p99: float | None
    score_p99: float | None
    fp16: float | None
    casts: int | None
    fused: int | None
    mb: float | None
    verdict: str


def main() -> None:
    folder = root()
    metrics = metrics_of(read_reports(folder), read_params(folder))
    write_text(folder / "reports" / "metrics.json", json.dumps(metrics, indent=2) + "\n")


def metrics_of(reports: Reports, params: Params) -> Metrics:
    verify, compiled = reports.get("verify", {}), reports.get("engine", {}).get("compiled")
    before, after = (model_of(of_stage(reports, stage)) for stage in ("slim", "cast_cleanup"))
    share = compiled["half_arithmetic"] if compiled else None
    if share is None:
        share = reports.get("fp16", {}).get("fp16_arithmetic")
    return {
        "ap": _rounded(verify.get("ap50_95"), 4),
        "ap_drop": _rounded(verify.get("ap50_95_drop"), 4),
        "matched": _rounded(verify.get("matched_fraction"), 4),
        "box_p99": _rounded(verify.get("box_error_px_p99"), 4),
        "score_p99": _rounded(verify.get("score_error_p99"), 4),
        "fp16": _rounded(share, 4),
        "casts": after["casts"] - before["casts"] if "casts" in before and "casts" in after else None,
        "fused": compiled["fused_attention"] if compiled else None,
        "mb": _rounded(after.get("size_mb"), 2),
        "verdict": "failed" if has_failed(reports, params) else verify.get("verdict", "not verified"),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits) + 0.0  # no -0.0


if __name__ == "__main__":
    parser_of("pipeline.report.metrics", __doc__).parse_args()
    run_program(main)
