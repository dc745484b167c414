"""truehalf repair: TensorRT-hostile patterns replaced by equal ones."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli.form import EXITS_OF_WORK, FILE, Command, check_places, guarded, option, output_of, output_options
from truehalf.config.schema import DEFAULT_PASSES, REPAIR_PASSES

_EXAMPLES = ("truehalf repair model.onnx -o repaired.onnx", "truehalf repair in.onnx -o out.onnx --only squeeze_if")


@click.command(cls=Command, examples=_EXAMPLES, exits=EXITS_OF_WORK)
@click.argument("model", type=FILE, metavar="in.onnx")
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="file to write")
@option(
    "--only",
    multiple=True,
    type=click.Choice(REPAIR_PASSES),
    metavar="PASS",
    help=f"run this pass only; may be repeated: {', '.join(REPAIR_PASSES)}",
)
@output_options
def command(**given: Any) -> int:
    """Replace patterns that TensorRT rejects, computes wrongly or runs slowly by equal ones."""
    return guarded("repair", lambda: _repair(given))


def _repair(given: dict[str, Any]) -> int:
    from truehalf.api import repair

    model, out, output = given["model"], given["out"], output_of(given)
    check_places({"--out": out, "--json": output.file}, {"in.onnx": model})
    report = repair(model, out, passes=given["only"] or DEFAULT_PASSES).report
    changed = [f"{name} {count}" for name, count in report.counts.items() if count]
    lines = [f"done: {out}: {', '.join(changed) or 'nothing to repair'}"]
    lines += [f"not repaired: {each['node']} ({each['pass']}): {each['reason']}" for each in report.refused]
    output.give(lines, report.to_json(), [f"changed: {name} {count}" for name, count in report.counts.items()])
    return 0
