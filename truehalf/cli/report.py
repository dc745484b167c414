"""truehalf report: the page of a result."""

from __future__ import annotations

from pathlib import Path

import click

from truehalf.cli.form import FILE, Command, guarded, option, show

_EXAMPLES = ("truehalf report convert.json -o report.html", "truehalf report verify.json -o report.html")


@click.command(cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("result", type=FILE, metavar="result.json")
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="HTML file to write")
def command(result: Path, out: Path) -> int:
    """Draw the HTML page of a result that `convert --json` or `verify --json` wrote."""

    def body() -> int:
        from jinja2 import TemplateError

        from truehalf.errors import StageError
        from truehalf.files import read_json
        from truehalf.output_files import write_text
        from truehalf.output_paths import check_outputs
        from truehalf.report.result import result_page

        check_outputs({"--out": out}, {"result.json": result})
        try:
            page = result_page(read_json(result), str(result))
        except (KeyError, TypeError, ValueError, AttributeError, TemplateError) as error:
            fault = f"{result}: expected a result as truehalf wrote it, got one that lacks parts ({error})"
            raise StageError("wrong-file", fault) from error
        write_text(out, page)
        show(f"done: {out}")
        return 0

    return guarded("report", body)
