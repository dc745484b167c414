"""Figures of a run: the one table of keys, labels, formats and sources.

Terminal, page, reports/metrics.json, MLflow and the difference of two runs show these and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.run_record import Run
from truehalf.report.numbers import count, number, percent, precision

LOW_AP = 0.2  # AP50-95 below which labels or preprocessing are more likely wrong than the model weak


def percent_2(value: Any) -> str:
    return percent(value, 2)


@dataclass(frozen=True)
class Figure:
    """A figure of a run.

    Attributes:
        key: in metrics.json, and the name of MLflow's metric.
        label: in words, with the unit.
        source: path in the run's reports, such as verify.ap50_95, or the name of a function of _COMPUTED.
        shown: number to text.
        better: "more" or "less"; "" where neither is better.
        headline: True for the figures of metrics.json, by which runs are compared first.
    """

    key: str
    label: str
    source: str
    shown: Callable[[Any], str]
    better: str = ""
    headline: bool = False


FIGURES = (
    Figure("ap", "AP50-95", "verify.ap50_95", precision, "more", headline=True),
    Figure("ap_drop", "AP50-95 lost", "verify.ap50_95_drop", precision, "less", headline=True),
    Figure("matched", "detections matched", "verify.matched_fraction", percent_2, "more", headline=True),
    Figure("same_class", "best class unchanged", "verify.top1_agreement", percent_2, "more", headline=True),
    Figure("tensor_rms", "largest error of an output (rms)", "verify.tensor_rms", number, "less", headline=True),
    Figure("box_p99", "box error p99, pixels", "verify.box_error_px_p99", number, "less", headline=True),
    Figure("score_p99", "score error p99", "verify.score_error_p99", number, "less", headline=True),
    Figure("fp16", "arithmetic (FLOPs) in FP16", "fp16.fp16_arithmetic", percent, "more", headline=True),
    Figure("casts", "casts added", "casts_added", count, "less", headline=True),
    Figure("fused", "attentions fused", "engine.compiled.fused_attention", count, "more", headline=True),
    Figure("mb", "file, MB", "cast_cleanup.model.size_mb", number, "less", headline=True),
    Figure("ap_fp32", "AP50-95 of the FP32 model", "verify.ap50_95_fp32", precision),
    Figure("ap50", "AP50", "verify.ap50", precision, "more"),
    Figure("self_ap", "AP50-95 against the FP32 model's detections", "verify.self_ap50_95", precision, "more"),
    Figure("missed", "detections missed", "verify.missed", count, "less"),
    Figure("extra", "detections without a partner", "verify.extra", count, "less"),
    Figure("label_flips", "classes changed", "verify.label_flips", count, "less"),
    Figure("box_max", "largest box error, pixels", "verify.box_error_px_max", number, "less"),
    Figure("score_max", "largest score error", "verify.score_error_max", number, "less"),
    Figure("rank_p99", "error of the i-th best scores, p99", "verify.rank_error_p99", number, "less"),
    Figure("nonfinite", "NaN and Inf in the outputs", "nonfinite", count, "less"),
    Figure("fp16_nodes", "nodes in FP16", "cast_cleanup.model.fp16_fraction", percent, "more"),
    Figure("casts_naive", "casts without optimal placement", "fp16.costs.naive.casts", count),
    Figure("mb_fp32", "FP32 file, MB", "slim.model.size_mb", number),
    Figure("attentions", "attentions", "engine.compiled.attention_regions", count),
    Figure("fp16_compiled", "arithmetic in Half, as compiled", "engine.compiled.half_arithmetic", percent, "more"),
    Figure("engine_mb", "engine, MB", "engine.engine_mb", number, "less"),
    Figure("engine_device_mb", "device memory, MB", "engine.device_memory_mb", number, "less"),
    Figure("build_s", "build, seconds", "engine.build_seconds", number, "less"),
    Figure("p50_ms", "latency p50, ms", "latency", number, "less"),
    Figure("seconds", "seconds of all stages", "seconds", number, "less"),
)


def figures_of(run: Run, figures: Iterable[Figure] = FIGURES) -> dict[str, float | None]:
    """Figures by key; None where the run has not measured one."""
    return {figure.key: value_of(run, figure) for figure in figures}


def metrics_of(run: Run) -> dict[str, Any]:
    """Content of reports/metrics.json: the headline figures, four digits after the point, and the verdict."""
    figures = figures_of(run, (figure for figure in FIGURES if figure.headline))
    rounded = {key: value if value is None else round(value, 4) + 0.0 for key, value in figures.items()}  # no -0.0
    return {**rounded, "verdict": run.verdict}


def mlflow_metrics(run: Run) -> dict[str, float]:
    """Metrics of MLflow: all figures, the user's own metrics, and seconds by stage; only those that were measured."""
    metrics: dict[str, Any] = dict(figures_of(run))
    verify = run.reports.verify
    for name, value in (verify.metrics if verify else {}).items():
        metrics[f"own/{name.replace(':', '.')}"] = value
    metrics |= {f"seconds/{stage}": facts.seconds for stage, facts in run.stages.items()}
    return {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}


def value_of(run: Run, figure: Figure) -> float | None:
    """Value of a figure; None where it was not measured, or is not finite."""
    if figure.source in _COMPUTED:
        return _COMPUTED[figure.source](run)
    value: Any = run.json
    for name in figure.source.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, (int, float)) else None


def accuracy_sentence(run: Run) -> str:
    """How well the final file does what the FP32 model does, such as "1,585 of 1,585 detections matched on 500 images,
    AP50-95 0.8072 against 0.8074"; "nothing was compared" where verify compared nothing.
    """
    verify = run.reports.verify
    if verify is None:
        return "nothing was compared"
    parts = []
    if verify.matched_fraction is not None:
        detections = f"{count(verify.matched)} of {count(verify.reference)} detections matched"
        parts.append(f"{detections} on {count(verify.samples)} images")
    if verify.ap50_95 is not None:
        parts.append(f"AP50-95 {precision(verify.ap50_95)} against {precision(verify.ap50_95_fp32)}")
    if verify.top1_agreement is not None:
        parts.append(
            f"the FP32 model's best class in {percent_2(verify.top1_agreement)} of {count(verify.samples)} samples"
        )
    if verify.tensor_rms is not None:
        parts.append(f"outputs differ by at most {percent_2(verify.tensor_rms)} (rms)")
    if broken := _nonfinite(run):
        parts.append(f"{count(int(broken))} NaN or Inf in its outputs")
    return ", ".join(parts) or "nothing was compared"


def low_precision_note(run: Run) -> str | None:
    """Note where the FP32 model itself finds little on the labelled samples, so that equal AP says little."""
    verify = run.reports.verify
    if verify is None or verify.ap50_95_fp32 is None or verify.ap50_95_fp32 >= LOW_AP:
        return None
    return (
        f"the FP32 model itself reaches AP50-95 {precision(verify.ap50_95_fp32)} on these labels: check that labels, "
        "order of classes and preprocessing are those of the model"
    )


# --- computed figures -------------------------------------------------------------------------------------------------


def _casts_added(run: Run) -> float | None:
    before, after = (run.model_facts(stage).get("casts") for stage in ("slim", "cast_cleanup"))
    return None if before is None or after is None else after - before


def _nonfinite(run: Run) -> float | None:
    verify = run.reports.verify
    return None if verify is None else (verify.nan or 0) + (verify.inf or 0)


def _latency(run: Run) -> float | None:
    """At the first point of the first profile."""
    rows = (run.reports.engine.latency if run.reports.engine else None) or []
    return rows[0]["p50_ms"] if rows else None


def _seconds(run: Run) -> float | None:
    times = [facts.seconds for facts in run.stages.values() if facts.seconds is not None]
    return sum(times) if times else None


_COMPUTED = {"casts_added": _casts_added, "nonfinite": _nonfinite, "latency": _latency, "seconds": _seconds}
