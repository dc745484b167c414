"""Names and descriptions of tracked runs: what a run was told beyond the defaults of conf/."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pipeline.forms import Params
from pipeline.tracking.record import NO_EFFECT, Record, flat_params, in_effect, run_name
from pipeline.workspace import CONF
from truehalf.files import read_yaml
from truehalf.report.numbers import worded

PAGE = "index.html"  # the report among a run's artifacts, which are listed by name
_SHOWN = 3  # overrides in a name
_INTERFACE = {"model.classes", "model.inputs", "model.outputs"}  # of one's own model: all its runs have them
_WIDTH = 24  # characters of a value in a name
_IN_TITLE = ("model.name", "decoder.name", "precision.dtype", "precision.method")
_NEAREST = ("repair", "data", "verify", "engine")  # groups whose choice params.yaml does not name
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


def distinct_name(params: Params, told: Mapping[str, Any]) -> str:
    """The name of `run_name` and what a run was told, its `overrides`: ltdetr_nano-dfine-fp16-data_max=128."""
    changed = {key: value for key, value in told.items() if key not in _INTERFACE}
    keys = sorted(changed, key=lambda key: _PLACES.get(key.split(".")[0], 1))
    last = [key.rpartition(".")[2] for key in keys]
    named = [key if last.count(name) > 1 else name for key, name in zip(keys, last, strict=True)]
    shown = [f"{name}={_short(changed[key])}" for name, key in zip(named, keys, strict=True)][:_SHOWN]
    return "-".join([run_name(params), *shown, *([f"+{len(keys) - _SHOWN}"] if len(keys) > _SHOWN else [])])


def overrides(params: Params) -> dict[str, Any]:
    """Choices and dotted keys, with their values, that differ from the defaults; what the name says and keys without
    effect are left out.
    """
    config = dict(_file(CONF / "config.yaml"))
    usual = _choices(config.pop("defaults"))
    model = _file_of_model(params["model"])
    usual |= _choices(model.get("defaults", []))
    config = {key: value for key, value in config.items() if key != "hydra"} | {"model": model}
    for group, choice in (("decoder", params["decoder"]["name"]), ("precision", "fp16")):
        config[group] = _file(CONF / group / f"{choice}.yaml")
    found: dict[str, Any] = {}
    for group in _NEAREST:
        choice, config[group] = _nearest(group, params, usual[group])
        found |= {} if choice == usual[group] else {group: choice}
    idle = {key for key, value in in_effect(flat_params(params)).items() if value == NO_EFFECT} | set(_IN_TITLE)
    for section, values in config.items():
        differing = _differing(section, params, values)
        found |= {key: value for key, value in differing if not any(f"{key}.".startswith(f"{each}.") for each in idle)}
    return found


def description(record: Record, told: Mapping[str, Any]) -> str:
    """Markdown for the run's page in MLflow: verdict, main figures, its `overrides`."""
    tags, reports = record.tags, record.reports
    how = f" in {record.failed_stage}" if record.failed_stage else f" ({tags['evaluation']}), engine: {tags['engine']}"
    listed = ", ".join(f"`{key}={_text(value)}`" for key, value in told.items())
    verdict = "failed" if record.failed and tags["verdict"] == "passed" else tags["verdict"]  # by the engine
    figures = worded(_FIGURES, reports.get("verify", {}))
    figures += worded(["{fp16_arithmetic:%1} of the arithmetic in FP16"], reports.get("fp16", {}))
    lines = [f"**{verdict}**{how}", ", ".join(figures)]
    lines += [f"Differs from the defaults in: {listed}"] if told else []
    lines += [f"Report: artifact `{PAGE}`"] if record.page else []
    return "\n\n".join(line for line in lines if line)


def _file_of_model(model: Params) -> dict[str, Any]:
    """The shipped file of a model's name; of a name of the user's own, that of its source."""
    files = [_file(file) for file in sorted((CONF / "model").glob("*.yaml"))]
    for key in ("name", "source"):
        for file in files:
            if file.get(key) == model[key]:
                return file
    return {}


def _nearest(group: str, params: Params, usual: str) -> tuple[str, dict[str, Any]]:
    """The choice of a group that fewest keys differ from, the usual one where several do; and its values."""
    choices = {file.stem: _file(file) for file in sorted((CONF / group).glob("*.yaml"))}
    best = min(choices, key=lambda name: (len(list(_differing(group, params, choices[name]))), name != usual))
    return best, choices[best]


def _differing(section: str, params: Params, usual: Any) -> Iterator[tuple[str, Any]]:
    """Keys of a section, and their values, that are not as a file of conf/ has them."""
    if not isinstance(usual, dict):
        if params.get(section) != usual:
            yield section, params.get(section)
        return
    if "${" in json.dumps(usual):  # OmegaConf is slow
        whole = OmegaConf.create({**params, section: {key: value for key, value in usual.items() if key != "defaults"}})
        usual = OmegaConf.to_container(whole[section], resolve=True)
    yield from _walked(section, params.get(section, {}), usual)


def _walked(prefix: str, values: Any, usual: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(values, dict) and isinstance(usual, dict):
        for key, value in values.items():
            yield from _walked(f"{prefix}.{key}", value, usual.get(key))
    elif values != usual and (values or usual):
        yield prefix, values


def _choices(defaults: list[Any]) -> dict[str, Any]:
    """Group and choice of a list of defaults: `decoder: dfine`, or `override /decoder@_global_.decoder: none`."""
    entries = (entry for entry in defaults if isinstance(entry, dict))
    return {key.removeprefix("override /").split("@")[0]: choice for entry in entries for key, choice in entry.items()}


@functools.cache
def _file(path: Path) -> dict[str, Any]:
    """A file of conf/, on top of the one of its group that its defaults name."""
    content: dict[str, Any] = read_yaml(path)
    defaults = content.get("defaults", [])
    for name in (each for each in defaults if isinstance(each, str) and each != "_self_"):
        below = _file(path.with_name(f"{name}.yaml"))
        content = OmegaConf.to_container(OmegaConf.merge(below, content))  # type: ignore[assignment]
        content["defaults"] = [*below.get("defaults", []), *defaults]
    return content


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _short(value: Any) -> str:
    """A value that fits into a name; of a longer list how many entries it has."""
    if isinstance(value, list):
        joined = ",".join(map(_text, value))
        return joined if len(joined) <= _WIDTH else f"{len(value)} entries"
    text = _text(value).rpartition("/")[2]
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
