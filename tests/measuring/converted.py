"""Conversions as tests and benchmarks state them: options of Precision as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truehalf.config.precision import Precision
from truehalf.conversion.convert import convert_model
from truehalf.conversion.report import Fp16Report
from truehalf.files import write_json
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model, save_model
from truehalf.ir.selectors import Lists

_OFF = {
    "fp16_ops": [],
    "safety_factor": 1.0,
    "data_max": None,
    "init_max": None,
    "inner": False,
    "masks": False,
    "epsilons": False,
}


def to_fp16(
    model_path: Path | str,
    out_path: Path | str,
    *,
    calibration: Any = None,
    ranges: Mapping[str, Any] | Path | str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    decisions_path: Path | str | None = None,
    **options: Any,
) -> Fp16Report:
    """Convert a file to another one, its decisions beside it; the report."""
    model = load_model(model_path)
    made = convert_model(model, Precision(**options), ranges, calibration=calibration, input_shapes=input_shapes)
    save_model(made.model, out_path)
    if decisions_path is not None:
        write_json(Path(decisions_path), made.decisions)
    report = made.report()
    return replace(report, model=model_facts(made.model, out_path) if made.is_converted else report.model)


def only(block: Lists | None = None, include: Lists | None = None, **options: Any) -> Precision:
    """Every rule off but those that are given; `block` and `include` in place of the eight lists."""
    lists = {"block": block or Lists(), "include": include or Lists()}
    entries = {
        f"{kind}_{use}_list": getattr(each, kind)
        for use, each in lists.items()
        for kind in ("op", "node", "scope", "pattern")
    }
    return Precision(**_OFF | entries | options)
