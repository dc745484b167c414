"""truehalf report: the page of a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import EXITS_OF_WORK, FILE, Command, Output, guarded, option, output_of, output_options

_EXAMPLES = ("truehalf report convert.json -o report.html", "truehalf report verify.json -o report.html")


@click.command(cls=Command, examples=_EXAMPLES, exits=EXITS_OF_WORK)
@click.argument("result", type=FILE, metavar="result.json")
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="HTML file to write")
@output_options
def command(**given: Any) -> int:
    """Draw the HTML page of a result that `convert --json` or `verify --json` wrote."""
    return guarded("report", lambda: _report(given["result"], given["out"], output_of(given)))


def _report(result: Path, out: Path, output: Output) -> int:
    from jinja2 import TemplateError

    from truehalf.errors import StageError
    from truehalf.files import read_json
    from truehalf.output_files import write_text
    from truehalf.output_paths import check_outputs
    from truehalf.report.result import result_page

    check_outputs({"--out": out, "--json": output.file}, {"result.json": result})
    try:
        content = read_json(result)
        page = result_page(content, str(result))
    except (KeyError, TypeError, ValueError, AttributeError, TemplateError) as error:
        message = f"{result}: expected a result as truehalf wrote it, got one that lacks parts ({error})"
        raise StageError("wrong-file", message) from error
    write_text(out, page)
    lines, made = [f"done: {out}"], {"out": str(out), "result": str(result), "verdict": content["verdict"]}
    output.give(lines, made, [f"verdict of {result}: {content['verdict']}"])
    return 0
