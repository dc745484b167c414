"""truehalf lint: TensorRT compatibility of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli.form import FILE, Output, check_places, file_option, option
from truehalf.cli.form import command as command_of
from truehalf.errors import StageError
from truehalf.report.terminal import terminal_width

if TYPE_CHECKING:
    from truehalf.linting.report import LintReport

_EXAMPLES = (
    "truehalf lint model.onnx",
    "truehalf lint model.onnx --format sarif --out lint.sarif",
    "truehalf lint model.onnx --fail-on warning --ignore grid-sample@^/decoder/",
    "truehalf lint --explain grid-sample",
)
_WIDTH_OF_FILES = 120
_EXITS = (
    "Exit codes: 0 nothing at or above --fail-on, 1 a finding that is, 2 bad input, 70 defect of truehalf, 130 stopped."
)


@command_of(examples=_EXAMPLES, exits=_EXITS)
@click.argument("model", type=FILE, metavar="[model.onnx]", required=False)
@option(
    "--fail-on",
    type=click.Choice(("never", "error", "warning")),
    default="error",
    help="lowest severity of exit code 1 [error]",
)
@option("--ignore", multiple=True, metavar="RULE[@REGEX]", help="leave out a rule, or its matches; may be repeated")
@option("--format", "form", type=click.Choice(("text", "sarif")), default="text", group="Form", help="[text]")
@file_option("--out", group="Form", help="write the findings there, print the first line")
@option("--tensorrt", metavar="VERSION", group="Checks", help="10, 11, 11.4, ... [10.16 and 11.4]")
@option("--explain", metavar="RULE", group="Checks", help="print what a rule means, and what to write instead")
@option("--plugin-ops", multiple=True, metavar="OP", group="Checks", help="operator of a plugin; may be repeated")
def command(output: Output, **given: Any) -> int:
    """Find what TensorRT refuses, computes wrongly or runs slowly, in a file."""
    from truehalf.api import lint
    from truehalf.linting import RULES
    from truehalf.linting.report import PLACES_SHOWN, explained, text
    from truehalf.output_files import write_text

    model, out, form = given["model"], given["out"], given["form"]
    if given["explain"] is not None:
        rule_text = explained(given["explain"], RULES)
        output.give(rule_text.splitlines(), {"rule": given["explain"], "text": rule_text})
        return 0
    if model is None:
        raise StageError("needs-value", "expected model.onnx, or --explain RULE; got neither")
    check_places({"--out": out, "--json": output.file}, {"model.onnx": model})
    report = lint(model, **{name: given[name] for name in ("tensorrt", "ignore", "plugin_ops")})
    places = None if output.is_verbose else PLACES_SHOWN
    lines = text(report, terminal_width(), places).splitlines()
    if out is not None:
        write_text(out, _formatted(report, form, _WIDTH_OF_FILES, places) + "\n")
        lines = lines[:1]
    elif form == "sarif" and not output.is_quiet:
        lines = [_formatted(report, form, terminal_width(), places)]
    output.give(lines, report.to_json())
    return int(report.reaches(given["fail_on"]))


def _formatted(report: LintReport, form: str, width: int, places: int | None) -> str:
    from truehalf.linting import RULES
    from truehalf.linting.report import sarif, text

    return text(report, width, places) if form == "text" else json.dumps(sarif(report, RULES), indent=2)
