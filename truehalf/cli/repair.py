"""truehalf repair: TensorRT-hostile patterns replaced by equal ones."""

from __future__ import annotations

from pathlib import Path

import click

from truehalf.cli.form import FILE, Command, check_places, guarded, option, save_json, show_lines
from truehalf.config.schema import REPAIR_PASSES

_EXAMPLES = ("truehalf repair model.onnx -o repaired.onnx", "truehalf repair in.onnx -o out.onnx --only squeeze_if")


@click.command(cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("model", type=FILE, metavar="in.onnx")
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="file to write")
@option(
    "--only",
    multiple=True,
    type=click.Choice(REPAIR_PASSES),
    metavar="PASS",
    help=f"run this pass only; may be repeated: {', '.join(REPAIR_PASSES)}",
)
@option("--json", "json_path", type=FILE, metavar="FILE", help="write the report, for machines")
@option("--quiet", is_flag=True, help="print one line")
def command(model: Path, out: Path, only: tuple[str, ...], json_path: Path | None, quiet: bool) -> int:
    """Replace patterns that TensorRT rejects, computes wrongly or runs slowly by equal ones."""

    def body() -> int:
        from truehalf.api import repair

        check_places({"--out": out, "--json": json_path}, {"in.onnx": model})
        report = repair(model, out, passes=only or REPAIR_PASSES).report
        save_json(json_path, report)
        changed = [f"{name} {count}" for name, count in report["counts"].items() if count]
        lines = [f"done: {out}: {', '.join(changed) or 'nothing to repair'}"]
        lines += [f"not repaired: {each['node']} ({each['pass']}): {each['reason']}" for each in report["refused"]]
        show_lines(lines, quiet)
        return 0

    return guarded("repair", body)
