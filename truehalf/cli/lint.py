"""truehalf lint: TensorRT compatibility of a file."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli.form import MODEL, Output, option
from truehalf.cli.form import command as command_of
from truehalf.errors import StageError

_EXAMPLES = (
    "truehalf lint model.onnx",
    "truehalf lint model.onnx --fail-on warning --ignore grid-sample@^/decoder/",
    "truehalf lint --explain grid-sample",
)
_EXITS = (
    "Exit codes: 0 nothing at or above --fail-on, 1 a finding that is, 2 bad input, 70 defect of truehalf, 130 stopped."
)


@command_of(examples=_EXAMPLES, exits=_EXITS)
@click.argument("model", type=MODEL, metavar="[model.onnx]", required=False)
@option(
    "--fail-on",
    type=click.Choice(("never", "error", "warning")),
    default="error",
    help="lowest severity of exit code 1 [error]",
)
@option("--ignore", multiple=True, metavar="RULE[@REGEX]", help="leave out a rule, or its matches; may be repeated")
@option("--tensorrt", metavar="VERSION", group="Checks", help="10, 11, 11.4, ... [10.16 and 11.4]")
@option("--explain", metavar="RULE", group="Checks", help="print what a rule means, and what to write instead")
@option("--plugin-ops", multiple=True, metavar="OP", group="Checks", help="operator of a plugin; may be repeated")
def command(output: Output, **given: Any) -> int:
    """Find what TensorRT refuses, computes wrongly or runs slowly, in a file."""
    from truehalf.api import lint
    from truehalf.patterns import RULES
    from truehalf.patterns.report import PLACES_SHOWN, explained, text

    model = given["model"]
    if given["explain"] is not None:
        rule_text = explained(given["explain"], RULES)
        output.give(rule_text.splitlines(), {"rule": given["explain"], "text": rule_text})
        return 0
    if model is None:
        raise StageError("needs-value", "expected model.onnx, or --explain RULE; got neither")
    report = lint(model, **{name: given[name] for name in ("tensorrt", "ignore", "plugin_ops")})
    lines = text(report, output.screen.width, None if output.is_verbose else PLACES_SHOWN).splitlines()
    output.give(lines, report.to_json())
    return int(report.reaches(given["fail_on"]))
