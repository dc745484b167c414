"""reports/verify.html: what a verification found, as one page that opens anywhere.

The page is made of the stage's own facts; it loads nothing, runs nothing and holds no date, so equal results give an
equal file.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truehalf.report.drawings import BLUE, ORANGE, error_growth, histogram
from truehalf.verification.gates import detects
from truehalf.verification.pinning.as_argument import pins_argument

_TEMPLATE = "verify.html.j2"
_LISTED = 300  # nodes that stay FP32
WORST_NODES = 10
_SENTENCES = {
    "passed": "The final file finds what the FP32 model finds.",
    "failed": "The final file does not do what the FP32 model does, or what had to be verified was not.",
    "not verified": "Whether the final file does what the FP32 model does is open.",
}
_EVALUATIONS = {
    "emulated-fp16": "FP16 rounding, emulated on the CPU",
    "emulated-fp16-pessimistic": "FP16 rounding, emulated on the CPU, the sums inside nodes rounded, too",
    "cuda": "ONNX Runtime's CUDA provider",
    "fp32-cpu": "ONNX Runtime's CPU provider; the file holds no FP16",
}


def render(
    report: Mapping[str, Any],
    verdict: Mapping[str, Any],
    details: Mapping[str, Any],
    folder: Path,
    *,
    profile: Sequence[Mapping[str, Any]] = (),
    no_profile: str = "",
    pinned: Sequence[str] = (),
    decisions: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """The page.

    Args:
        report, verdict, details: the content of reports/verify.json, verdict.json and details.json.
        folder: where the images lie that `details` names.
        profile: in graph order {node, op_type, tensor, precision, growth, error} of the final file; None: not
            finite.
        no_profile: why there is none, where there might be one.
        pinned: entries of precision.node_block_list in force.
        decisions: rows of the conversion: {node, op, precision, rule, reason}; None where there are none.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": percent, "count": count}
    stages = [{"name": name} | stage for name, stage in report["stages"].items()]
    return environment.get_template(_TEMPLATE).render(
        verdict=verdict,
        sentence=_SENTENCES[verdict["verdict"]],
        report=report,
        evaluation=_EVALUATIONS.get(report["evaluation"], report["evaluation"]),
        stages=stages,
        detects=detects(verdict["gates"]),
        classifies=any(stage.get("top1_agreement") is not None for stage in stages),
        outputs=sorted({name for stage in stages for name in stage.get("max_abs_error", {})}),
        histograms=_histograms(details["stages"]),
        growth=_growth(profile, pinned),
        no_profile=no_profile,
        suspects=(verdict.get("place") or {}).get("suspects", []),
        suggestion=verdict.get("suggestion"),
        images=[_image(folder, item) for item in details["images"]],
        islands=_islands(decisions),
        left_out=report.get("left_out", []),
    )


def worst_nodes(profile: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of the nodes that make the largest errors by themselves, the largest first."""
    made = [i for i, row in enumerate(profile) if row["growth"] != 0]
    return sorted(made, key=lambda i: -_error(profile[i]["growth"]))[:WORST_NODES]


def selector(row: Mapping[str, Any], pinned: Sequence[str] = ()) -> str:
    """What pins a node beside `pinned`, for the command line; empty for a node without a name of its own."""
    import re

    if not row["node"] or " -> " in row["node"]:
        return ""
    return pins_argument("node_block_list", [f"^{re.escape(row['node'])}$"], pinned)


def _growth(profile: Sequence[Mapping[str, Any]], pinned: Sequence[str]) -> dict[str, Any] | None:
    from markupsafe import Markup

    rows = [dict(row) | {key: _error(row[key]) for key in ("growth", "error")} for row in profile]
    if not rows:
        return None
    worst = worst_nodes(rows)
    return {
        "wide": Markup(error_growth(rows, worst, 1080, 380, titles=True)),
        "narrow": Markup(error_growth(rows, worst, 400, 320, titles=False)),
        "worst": [rows[i] | {"position": i, "selector": selector(rows[i], pinned)} for i in worst],
        "nodes": len(rows),
        "exact": sum(row["growth"] == 0 for row in rows),
        "nonfinite": sum(not math.isfinite(row["error"]) for row in rows),
    }


def _error(value: Any) -> float:
    """A profile says None where an error is not finite."""
    return math.inf if value is None else float(value)


def _histograms(stages: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One per output: the final file as bars, the FP32 file before conversion as an outline."""
    from markupsafe import Markup

    final = stages["cast_cleanup"]["histograms"]
    before = stages.get("slim", {}).get("histograms", {})
    found = []
    for name, data in final.items():
        series = [("final file", ORANGE, data)] + ([("FP32 file", BLUE, before[name])] if name in before else [])
        svg = histogram(series)
        found.append({"output": name, "svg": Markup(svg) if svg else None} | dict(data))
    return found


def _image(folder: Path, item: Mapping[str, Any]) -> dict[str, Any]:
    encoded = base64.b64encode((folder / item["file"]).read_bytes()).decode()
    return dict(item) | {"uri": f"data:image/png;base64,{encoded}"}


def _islands(decisions: Sequence[Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Nodes that stay FP32, by the rule that keeps them."""
    if not decisions:
        return None
    kept = [row for row in decisions if row.get("precision") == "fp32"]
    rules: dict[str, int] = {}
    for row in kept:
        rules[str(row.get("rule"))] = rules.get(str(row.get("rule")), 0) + 1
    return {"total": len(decisions), "fp32": len(kept), "rules": rules, "rows": kept[:_LISTED]}


# --- numbers ----------------------------------------------------------------------------------------------------------


def number(value: Any) -> str:
    """Three significant figures; a dash for None; infinities as such."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return {"inf": "∞", "-inf": "−∞"}.get(value, value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return count(round(value)) if abs(value) >= 1000 else f"{value:.3g}".replace("-", "−")


def percent(value: Any) -> str:
    """A fraction in percent with two digits, never rounded up to 100."""
    if value is None:
        return "–"
    if value == 1:
        return "100 %"
    return f"{min(math.floor(10000 * value + 0.5), 9999) / 100:.2f} %"


def count(value: Any) -> str:
    """A whole number with thin spaces between the thousands."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")
