"""truehalf report: the page of a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import Command, guarded, option, show

_EXAMPLES = ("truehalf report convert.json -o report.html", "truehalf report verify.json -o report.html")


@click.command(cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("result", type=click.Path(path_type=Path), metavar="result.json")
@option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="HTML file to write")
def command(**given: Any) -> int:
    """Draw the page of what `convert --json` or `verify --json` has written."""
    return guarded("report", lambda: _report(**given))


def _report(result: Path, out: Path) -> int:
    from truehalf.files import read_json
    from truehalf.output_files import write_text
    from truehalf.output_paths import check_outputs
    from truehalf.report.result import result_page

    check_outputs({"--out": out}, {"result.json": result})
    write_text(out, result_page(read_json(result), str(result)))
    show(f"done: {out}")
    return 0
