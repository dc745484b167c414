"""Reference pages of forms and passes: keys of reports from the classes that hold them, repairs from their modules."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator

FORMS = {  # heading -> the classes whose keys stand there
    "reports/trace.json": ("truehalf.exporting.trace_report.TraceReport",),
    "reports/fp16.json": ("truehalf.conversion.report.Fp16Report",),
    "reports/verify.json, truehalf verify --json": ("truehalf.verification.report.Report",),
    "reports/engine.json": ("truehalf.engines.engine_report.EngineReport",),
    "compiled (in engine.json)": ("truehalf.engines.engine_report.CompilerFacts",),
    "Metrics of tensors": ("truehalf.verification.metrics.outputs.OutputErrors",),
    "Metrics of detections": ("truehalf.verification.metrics.detections.DetectionSummary",),
    "Metrics of classes": ("truehalf.verification.metrics.kinds.ClassAgreement",),
}


def report_keys() -> str:
    """Keys of reports and metrics with their meaning, from "Attributes:" of docstrings."""
    parts = [
        "# Report keys and metrics",
        "Generated from docstrings by `make docs`. r is the reference, o the candidate.",
    ]
    parts += ["## reports/metrics.json", *_figures()]
    for heading, names in FORMS.items():
        parts.append(f"## {heading}")
        for name in names:
            module, _, cls = name.rpartition(".")
            said = inspect.cleandoc(getattr(importlib.import_module(module), cls).__doc__ or "")
            first, _, attributes = said.partition("\n\nAttributes:\n")
            rows = [f"| {names} | {meaning} |" for names, meaning in _attributes(attributes)]
            parts += [first, "\n".join(["| key | meaning |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _figures() -> Iterator[str]:
    """The figures of runs: those of metrics.json, and the others that MLflow has."""
    from pipeline.figures import FIGURES

    yield "Figures by which runs are compared; null: not measured. `verdict` is passed, failed or not verified."
    for is_headline in (True, False):
        rows = [f"| `{each.key}` | {each.label} |" for each in FIGURES if each.headline is is_headline]
        yield "\n".join(["| key | figure |", "|---|---|", *rows])
        if is_headline:
            yield "MLflow has these, and:"


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """Names, as code, and their meaning in one line, of a docstring's section."""
    joined = re.sub(r"\n {5,}", " ", text.partition("\n\n")[0])
    for line in joined.splitlines():
        names, _, meaning = line.strip().replace("|", "\\|").partition(": ")
        yield ", ".join(f"`{name}`" for name in names.split(", ")), meaning


def repair_passes() -> str:
    """Each pass of truehalf.patterns with its docstring; indented lines are its algebra."""
    from truehalf.patterns import PASSES

    parts = []
    for name, made in PASSES.items():
        said = inspect.cleandoc(made.__doc__ or "")
        parts.append(f"### {name}\n\n{re.sub(_INDENTED, _block, said, flags=re.MULTILINE)}")
    return "\n\n".join(parts)


_INDENTED = r"(?:^ {4}.*\n?(?:\n(?= {4}))?)+"


def _block(match: re.Match[str]) -> str:
    return f"```text\n{textwrap.dedent(match[0]).strip()}\n```\n"
