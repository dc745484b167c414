"""truehalf repair: TensorRT-hostile patterns replaced by equal ones."""

from __future__ import annotations

from pathlib import Path

import click

from truehalf.cli import form
from truehalf.config.schema import DEFAULT_PASSES, RepairPass

_EXAMPLES = ("truehalf repair model.onnx -o repaired.onnx", "truehalf repair in.onnx -o out.onnx --only bool_index")
_ONLY = f"run this pass only; may be repeated: {', '.join(RepairPass)}"


@form.command(examples=_EXAMPLES, exits=form.EXITS_OF_WORK)
@click.argument("model", type=form.MODEL, metavar="in.onnx")
@form.file_option("-o", "--out", required=True, is_output=True, help="file to write")
@form.option("--only", multiple=True, type=click.Choice(RepairPass), metavar="PASS", help=_ONLY)
def command(output: form.Output, model: Path, out: Path, only: tuple[str, ...]) -> None:
    """Replace patterns that TensorRT rejects, computes wrongly or runs slowly by equal ones."""
    from truehalf.api import repair

    report = repair(model, out, passes=only or DEFAULT_PASSES).report
    changed = [f"{name} {count}" for name, count in report.counts.items() if count]
    lines = [f"done: {out}: {', '.join(changed) or 'nothing to repair'}"]
    lines += [f"not repaired: {each['node']} ({each['pass']}): {each['reason']}" for each in report.refused]
    output.give(lines, report.to_json(), [f"changed: {name} {count}" for name, count in report.counts.items()])
