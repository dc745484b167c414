"""Page contents for a result of the command: a conversion, or a comparison of two files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truehalf.errors import StageError
from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.numbers import count, number, percent
from truehalf.report.page import page, verification_sections
from truehalf.report.text import COLUMNS, computed_by

WORDS = {"passed": "Verified", "failed": "Failed", "stopped": "Stopped", "unknown": "Not verified"}


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
    found = comparison or {}
    state = result["verdict"] if result["verdict"] in WORDS else "unknown"
    conversion, reasons = result.get("conversion"), found.get("reasons", [])
    sentence = "Nothing was compared."
    if found:
        sentence = f"{count(found['samples'])} samples, {computed_by(found['evaluation'], found['provider'])}."
    if conversion and state == "passed":
        share = percent(conversion["fp16"].get("fp16_arithmetic"))
        made = f"{number(conversion['cast_cleanup']['model']['size_mb'])} MB, {share} of its arithmetic in FP16"
        sentence = f"{Path(result['out']).name} ({made}) is the file to ship. {sentence}"
    return page(
        {
            "title": Path(result.get("out", named)).name,
            "headline": {"state": state, "word": WORDS[state], "sentence": sentence, "reasons": reasons},
            "warnings": result.get("notes"),
            "not_verified": found.get("not_verified", []),
            "comparison": comparison,
            "columns": COLUMNS,
            **verification_sections(found, {}, Path()),
            "fix": found.get("pins"),  # as flags of `truehalf convert`
            "conversion": {"path": result["model"], **conversion} if conversion else None,
            "decisions": kept_in_fp32(result["decisions"]) if result.get("decisions") else None,
        }
    )
