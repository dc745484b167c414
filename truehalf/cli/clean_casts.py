"""truehalf clean-casts: clean-up of the Casts of any ONNX file."""

from __future__ import annotations

from pathlib import Path

import click

from truehalf.cli import form
from truehalf.report.numbers import number

_EXAMPLES = (
    "truehalf clean-casts any_tools_fp16.onnx -o clean.onnx",
    "truehalf clean-casts in.onnx -o out.onnx --strict     (changes no value)",
)


@form.command(examples=_EXAMPLES, exits=form.EXITS_OF_WORK)
@click.argument("model", type=form.MODEL, metavar="in.onnx")
@form.file_option("-o", "--out", required=True, is_output=True, help="file to write")
@form.option("--strict", is_flag=True, help="keep f32 -> f16 -> f32, which rounds")
@form.option(
    "--fold-max-bytes", type=click.IntRange(1), metavar="N", help="leave Casts of larger constants to the runtime"
)
def command(output: form.Output, model: Path, out: Path, strict: bool, fold_max_bytes: int | None) -> None:
    """Remove the needless Casts of an ONNX file."""
    from truehalf.api import clean_casts

    report = clean_casts(model, out, strict=strict, fold_max_bytes=fold_max_bytes).report
    applied = ", ".join(f"{rule} {count}" for rule, count in report.rules.items()) or "none"
    repeated, facts = report.repeated_nodes_dropped, report.model
    lines = [f"done: {out}: {report.casts_before} casts before, {report.casts_after} after"]
    lines += [f"rules: {applied}", *([f"duplicate nodes dropped: {repeated}"] if repeated else [])]
    output.give(lines, report.to_json(), [f"file: {facts['nodes']} nodes, {number(facts['size_mb'])} MB"])
