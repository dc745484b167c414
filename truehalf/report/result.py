"""Page contents for a result of the command: a conversion, or a comparison of two files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truehalf.errors import StageError
from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.page import page, verification_sections
from truehalf.report.text import COLUMNS

_STATES = {"passed": "passed", "failed": "failed"}


def result_page(result: Any, named: str = "the result") -> str:
    """The page of a result.

    Args:
        result: JSON of `truehalf convert --json` or `truehalf verify --json`.
        named: how messages call it.

    Raises:
        StageError: when it is neither.
    """
    if not isinstance(result, Mapping) or not {"conversion", "outputs"} & set(result):
        raise StageError("wrong-file", f"{named}: expected the JSON of `truehalf convert` or `verify`, it is neither")
    comparison = result.get("comparison") if "conversion" in result else result
    sentence = "Nothing was compared."
    if comparison:
        measured = f"{comparison['samples']} samples, {comparison['evaluation']}, {comparison['provider']}"
        sentence = f"{measured}. FP16 was emulated on the CPU unless it says cuda; no engine was run."
    found = comparison or {}
    return page(
        {
            "title": Path(result.get("out", named)).name,
            "headline": {
                "state": _STATES.get(result["verdict"], "unknown"),
                "word": result["verdict"],
                "sentence": sentence,
                "reasons": found.get("reasons", []),
            },
            "not_verified": found.get("not_verified", []),
            "comparison": comparison,
            "columns": COLUMNS,
            **verification_sections(found, {}, Path()),
            "conversion": _conversion(result),
            "decisions": kept_in_fp32(result["decisions"]) if result.get("decisions") else None,
        }
    )


def _conversion(result: Mapping[str, Any]) -> dict[str, Any] | None:
    made = result.get("conversion")
    if not made:
        return None
    return {
        "model": result["model"],
        "fp16_arithmetic": made["fp16"].get("fp16_arithmetic"),
        "casts": made["cast_cleanup"]["casts_after"],
        "size_mb": made["cast_cleanup"]["model"]["size_mb"],
    }
