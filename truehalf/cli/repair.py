"""truehalf repair: TensorRT-hostile patterns replaced by equal ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import Command, check_files, guarded, option, save_json, show
from truehalf.config.schema import REPAIR_PASSES

_EXAMPLES = ("truehalf repair model.onnx -o repaired.onnx", "truehalf repair in.onnx -o out.onnx --only squeeze_if")


@click.command(cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("model", type=click.Path(path_type=Path), metavar="in.onnx")
@option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="file to write")
@option(
    "--only", multiple=True, type=click.Choice(REPAIR_PASSES), metavar="PASS", help="may be repeated; by default all"
)
@option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="the report, for machines")
def command(**given: Any) -> int:
    """Replace patterns that TensorRT rejects, computes wrongly or runs slowly by equal ones."""
    return guarded("repair", lambda: _repair(**given))


def _repair(model: Path, out: Path, only: tuple[str, ...], json_path: Path | None) -> int:
    from truehalf.api import repair

    check_files({"--out": out, "--json": json_path}, {"in.onnx": model}, model)
    report = repair(model, out, passes=only or REPAIR_PASSES).report
    save_json(json_path, report)
    changed = {name: count for name, count in report["counts"].items() if count}
    show(f"done: {out}: {', '.join(f'{name} {count}' for name, count in changed.items()) or 'nothing to repair'}")
    for each in report["refused"]:
        show(f"left as it is: {each['node']} ({each['pass']}): {each['reason']}")
    return 0
