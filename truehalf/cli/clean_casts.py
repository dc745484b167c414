"""truehalf clean-casts: clean-up of the Casts of any ONNX file."""

from __future__ import annotations

from pathlib import Path

import click

from truehalf.cli.form import FILE, Command, check_places, guarded, option, save_json, show_lines

_EXAMPLES = (
    "truehalf clean-casts any_tools_fp16.onnx -o clean.onnx",
    "truehalf clean-casts in.onnx -o out.onnx --strict     (changes no value)",
)


@click.command("clean-casts", cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("model", type=FILE, metavar="in.onnx")
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="file to write")
@option("--strict", is_flag=True, help="keep f32 -> f16 -> f32, which rounds")
@option("--fold-max-bytes", type=click.IntRange(1), metavar="N", help="leave Casts of larger constants to the runtime")
@option("--json", "json_path", type=FILE, metavar="FILE", help="write the report, for machines")
@option("--quiet", is_flag=True, help="print one line")
def command(
    model: Path, out: Path, strict: bool, fold_max_bytes: int | None, json_path: Path | None, quiet: bool
) -> int:
    """Remove the needless Casts of an ONNX file."""

    def body() -> int:
        from truehalf.api import clean_casts

        check_places({"--out": out, "--json": json_path}, {"in.onnx": model})
        report = clean_casts(model, out, strict=strict, fold_max_bytes=fold_max_bytes).report
        save_json(json_path, report)
        applied = ", ".join(f"{rule} {count}" for rule, count in report["rules"].items()) or "none"
        repeated = report["repeated_nodes_dropped"]
        lines = [f"done: {out}: {report['casts_before']} casts before, {report['casts_after']} after"]
        lines += [f"rules: {applied}", *([f"duplicate nodes dropped: {repeated}"] if repeated else [])]
        show_lines(lines, quiet)
        return 0

    return guarded("clean-casts", body)
