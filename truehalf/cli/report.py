"""truehalf report: the page of a result."""

from __future__ import annotations

from pathlib import Path

import click

from truehalf.cli import form

_EXAMPLES = ("truehalf report convert.json -o report.html", "truehalf report verify.json -o report.html")


@form.command(examples=_EXAMPLES, exits=form.EXITS_OF_WORK)
@click.argument("result", type=form.FILE, metavar="result.json")
@form.file_option("-o", "--out", required=True, is_output=True, help="HTML file to write")
def command(output: form.Output, result: Path, out: Path) -> None:
    """Draw the HTML page of a result that `convert --json` or `verify --json` wrote."""
    from jinja2 import TemplateError

    from truehalf.errors import StageError
    from truehalf.files import read_json, write_text
    from truehalf.report.result import result_page

    try:
        content = read_json(result)
        page = result_page(content, str(result))
    except (KeyError, TypeError, ValueError, AttributeError, TemplateError) as error:
        message = f"{result}: expected a result as truehalf wrote it, got one that lacks parts ({error})"
        raise StageError("wrong-file", message) from error
    write_text(out, page)
    lines, made = [f"done: {out}"], {"out": str(out), "result": str(result), "verdict": content["verdict"]}
    output.give(lines, made, [f"verdict of {result}: {content['verdict']}"])
