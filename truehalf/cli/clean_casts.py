"""truehalf clean-casts: clean-up of the Casts of any ONNX file."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli.form import EXITS_OF_WORK, FILE, Command, check_places, guarded, option, output_of, output_options

_EXAMPLES = (
    "truehalf clean-casts any_tools_fp16.onnx -o clean.onnx",
    "truehalf clean-casts in.onnx -o out.onnx --strict     (changes no value)",
)


@click.command("clean-casts", cls=Command, examples=_EXAMPLES, exits=EXITS_OF_WORK)
@click.argument("model", type=FILE, metavar="in.onnx")
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="file to write")
@option("--strict", is_flag=True, help="keep f32 -> f16 -> f32, which rounds")
@option("--fold-max-bytes", type=click.IntRange(1), metavar="N", help="leave Casts of larger constants to the runtime")
@output_options
def command(**given: Any) -> int:
    """Remove the needless Casts of an ONNX file."""
    return guarded("clean-casts", lambda: _clean_casts(given))


def _clean_casts(given: dict[str, Any]) -> int:
    from truehalf.api import clean_casts

    model, out, output = given["model"], given["out"], output_of(given)
    check_places({"--out": out, "--json": output.file}, {"in.onnx": model})
    report = clean_casts(model, out, strict=given["strict"], fold_max_bytes=given["fold_max_bytes"]).report
    applied = ", ".join(f"{rule} {count}" for rule, count in report.rules.items()) or "none"
    repeated, facts = report.repeated_nodes_dropped, report.model
    lines = [f"done: {out}: {report.casts_before} casts before, {report.casts_after} after"]
    lines += [f"rules: {applied}", *([f"duplicate nodes dropped: {repeated}"] if repeated else [])]
    output.give(lines, report.to_json(), [f"file: {facts['nodes']} nodes, {facts['size_mb']:.1f} MB"])
    return 0
