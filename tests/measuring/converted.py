"""Conversions as tests and benchmarks state them: options of Precision as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truehalf.config.precision import Precision
from truehalf.conversion import fp16_file
from truehalf.ir.selectors import Lists

_OFF = {
    "fp16_ops": [],
    "safety_factor": 1.0,
    "data_max": None,
    "init_max": None,
    "inner": False,
    "integers": False,
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
) -> dict[str, Any]:
    return fp16_file.to_fp16(
        model_path,
        out_path,
        Precision(**options),
        calibration=calibration,
        ranges=ranges,
        input_shapes=input_shapes,
        decisions_path=decisions_path,
    )


def only(block: Lists | None = None, include: Lists | None = None, **options: Any) -> Precision:
    """Every rule off but those that are given; `block` and `include` in place of the eight lists."""
    lists = {"block": block or Lists(), "include": include or Lists()}
    entries = {
        f"{kind}_{use}_list": getattr(each, kind)
        for use, each in lists.items()
        for kind in ("op", "node", "scope", "pattern")
    }
    return Precision(**_OFF | entries | options)
