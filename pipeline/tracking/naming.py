"""Names and descriptions of tracked runs, with the overrides of their command lines."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.forms import Params
from pipeline.tracking.record import ASIDE, NO_EFFECT, Record, flat_params, in_effect, run_name
from truehalf.report.numbers import worded

PAGE = "index.html"  # the report among a run's artifacts, which are listed by name
_SHOWN = 3  # overrides in a name
_UNNAMED = ("model.classes", "model.inputs", "model.outputs")  # of one's own model: all its runs have them
_WIDTH = 24  # characters of a value in a name
_IN_TITLE = ("model", "decoder", "precision", "model.name", "precision.dtype", "precision.method")
_PLACES = {"precision": 0, "model": 2, "decoder": 2, "data": 2}  # in a name; 1 for others; the title says what is 2
_FIGURES = (
    "AP50-95 {ap50_95:.4f}",
    "AP50-95 in FP32 {ap50_95_fp32:.4f}",
    "detections matched {matched_fraction:%2}",
    "same class {top1_agreement:%2}",
    "box error p99 {box_error_px_p99:.3g} px",
    "score error p99 {score_error_p99:.3g}",
    "tensor error {tensor_error:.3g}",
)


def distinct_name(params: Params, told: Mapping[str, str]) -> str:
    """The name of `run_name` and some of a run's `overrides`: ltdetr_nano-dfine-fp16-data_max=128."""
    changed = {key: value for key, value in told.items() if key not in _UNNAMED}
    keys = sorted(changed, key=lambda key: _PLACES.get(key.split(".")[0], 1))
    last = [key.rpartition(".")[2] for key in keys]
    named = [key if last.count(name) > 1 else name for key, name in zip(keys, last, strict=True)]
    shown = [f"{name}={_short(changed[key])}" for name, key in zip(named, keys, strict=True)][:_SHOWN]
    return "-".join([run_name(params), *shown, *([f"+{len(keys) - _SHOWN}"] if len(keys) > _SHOWN else [])])


def overrides(record: Record) -> dict[str, str]:
    """Values by key or group of a run's command line; what the name says, tracking, and keys without effect are left
    out.
    """
    idle = [key for key, value in in_effect(flat_params(record.params)).items() if value == NO_EFFECT]
    pairs = (each.lstrip("+~").partition("=")[::2] for each in record.overrides)
    named = {key.partition("@")[0]: value for key, value in pairs}
    return {
        key: value
        for key, value in named.items()
        if key not in (*_IN_TITLE, *idle) and key.partition(".")[0] not in ASIDE
    }


def description(record: Record, told: Mapping[str, str]) -> str:
    """Markdown for the run's page in MLflow: verdict, main figures, its `overrides`."""
    tags, reports = record.tags, record.reports
    how = f" in {record.failed_stage}" if record.failed_stage else f" ({tags['evaluation']}), engine: {tags['engine']}"
    listed = ", ".join(f"`{key}={value}`" for key, value in told.items())
    verdict = "failed" if record.failed and tags["verdict"] == "passed" else tags["verdict"]  # by the engine
    figures = worded(_FIGURES, reports.get("verify", {}))
    figures += worded(["{fp16_arithmetic:%1} of the arithmetic in FP16"], reports.get("fp16", {}))
    lines = [f"**{verdict}**{how}", ", ".join(figures)]
    lines += [f"Overrides: {listed}"] if told else []
    lines += [f"Report: artifact `{PAGE}`"] if record.page else []
    return "\n\n".join(line for line in lines if line)


def _short(value: str) -> str:
    """A value that fits into a name; of a longer list how many entries it has."""
    if value.startswith("["):
        joined = value.strip("[]").replace(" ", "")
        return joined if len(joined) <= _WIDTH else f"{joined.count(',') + 1} entries"
    text = value.rpartition("/")[2]
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
