"""truehalf clean-casts: clean-up of the Casts of any ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import Command, check_files, guarded, option, save_json, show

_EXAMPLES = (
    "truehalf clean-casts any_tools_fp16.onnx -o clean.onnx",
    "truehalf clean-casts in.onnx -o out.onnx --strict       (changes no value at all)",
)


@click.command("clean-casts", cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("model", type=click.Path(path_type=Path), metavar="in.onnx")
@option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="file to write")
@option("--strict", is_flag=True, help="keep f32 -> f16 -> f32, which rounds")
@option("--fold-max-bytes", type=int, metavar="N", help="leave Casts of larger constants to the runtime")
@option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="the report, for machines")
def command(**given: Any) -> int:
    """Remove the Casts of an ONNX file that can go."""
    return guarded("clean-casts", lambda: _clean(**given))


def _clean(model: Path, out: Path, strict: bool, fold_max_bytes: int | None, json_path: Path | None) -> int:
    from truehalf.api import clean_casts

    check_files({"--out": out, "--json": json_path}, {"in.onnx": model}, model)
    report = clean_casts(model, out, strict=strict, fold_max_bytes=fold_max_bytes).report
    save_json(json_path, report)
    applied = ", ".join(f"{rule} {count}" for rule, count in report["rules"].items()) or "none"
    repeated = report["repeated_nodes_dropped"]
    lines = [f"done: {out}: {report['casts_before']} casts before, {report['casts_after']} after", f"rules: {applied}"]
    show("\n".join(lines + ([f"nodes that stood twice, dropped: {repeated}"] if repeated else [])))
    return 0
