"""truehalf lint: TensorRT compatibility of a file, and of the torch source it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from truehalf.cli.form import FILE, Output, check_places, option
from truehalf.cli.form import command as command_of
from truehalf.errors import StageError
from truehalf.report.terminal import terminal_width

if TYPE_CHECKING:
    from truehalf.linting.base import Rule

_EXAMPLES = (
    "truehalf lint model.onnx",
    "truehalf lint model.onnx --torch detector:build",
    "truehalf lint model.onnx --fail-on warning --ignore grid-sample@^/decoder/",
    "truehalf lint --explain grid-sample",
)
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
@option("--tensorrt", metavar="VERSION", group="Checks", help="10, 11, 11.4, ... [10.16 and 11.4]")
@option("--torch", metavar="MODULE:FACTORY", group="Checks", help="check the source of this torch module, too")
@option("--explain", metavar="RULE", group="Checks", help="print what a rule means, and what to write instead")
@option("--plugin-ops", multiple=True, metavar="OP", group="Checks", help="operator of a plugin; may be repeated")
def command(output: Output, **given: Any) -> int:
    """Find what TensorRT refuses, computes wrongly or runs slowly, in a file and in torch source."""
    from truehalf.api import lint
    from truehalf.linting.report import PLACES_SHOWN, explained, text

    model = given["model"]
    if given["explain"] is not None:
        rule_text = explained(given["explain"], _all_rules())
        output.give(rule_text.splitlines(), {"rule": given["explain"], "text": rule_text})
        return 0
    if model is None and given["torch"] is None:
        raise StageError("needs-value", "expected model.onnx, --torch MODULE:FACTORY, or both; got neither")
    check_places({"--json": output.file}, {} if model is None else {"model.onnx": model})
    report = lint(model, **{name: given[name] for name in ("torch", "tensorrt", "ignore", "plugin_ops")})
    lines = text(report, terminal_width(), None if output.is_verbose else PLACES_SHOWN).splitlines()
    output.give(lines, report.to_json())
    return int(report.reaches(given["fail_on"]))


def _all_rules() -> dict[str, type[Rule]]:
    """By id, of graphs and of torch source."""
    from truehalf.exporting.source_lint import RULES as SOURCE_RULES
    from truehalf.linting import RULES

    return {**RULES, **SOURCE_RULES}
