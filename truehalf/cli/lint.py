"""truehalf lint: TensorRT compatibility of a file, and of the torch source behind it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli.form import Command, check_files, guarded, option, show
from truehalf.errors import StageError

if TYPE_CHECKING:
    from truehalf.linting.report import LintReport

_EXAMPLES = (
    "truehalf lint model.onnx",
    "truehalf lint model.onnx --torch detector:build --format sarif --out lint.sarif",
    "truehalf lint model.onnx --tensorrt 11 --fail-on warning --ignore grid-sample@^/decoder/",
)
_WIDTH_OF_FILES = 120
_EXITS = "Exit codes: 0 nothing at or above --fail-on, 1 a finding that is, 2 bad input, 130 stopped."


@click.command(cls=Command, examples=_EXAMPLES, exits=_EXITS)
@click.argument("model", type=click.Path(path_type=Path), metavar="[model.onnx]", required=False)
@option("--torch", metavar="MODULE:FACTORY", help="look at the source of this torch module, or of what it returns")
@option("--tensorrt", metavar="VERSION", help="10, 11, 11.4, ...: will build it; by default 10.16 and 11.4")
@option("--format", "form", type=click.Choice(("text", "json", "sarif")), default="text", show_default=True)
@option(
    "--ignore", multiple=True, metavar="RULE[@REGEX]", help="leave out a rule, or where the regex is found; repeats"
)
@option("--plugin-ops", multiple=True, metavar="OP", help="an operator of a plugin; may be repeated")
@option("--fail-on", type=click.Choice(("never", "error", "warning")), default="error", show_default=True)
@option("--out", type=click.Path(path_type=Path), metavar="FILE", help="write there, and not to stdout")
def command(**given: Any) -> int:
    """Find what TensorRT refuses, computes wrongly or runs slowly. docs/lint.md explains each rule."""
    return guarded("lint", lambda: _lint(given))


def _lint(given: dict[str, Any]) -> int:
    from truehalf.api import lint
    from truehalf.output_files import write_text

    model, out = given["model"], given["out"]
    if model is None and given["torch"] is None:
        raise StageError("needs-value", "expected model.onnx, --torch MODULE:FACTORY, or both; got neither")
    check_files({"--out": out}, {"the model": model}, model)
    options = {name: given[name] for name in ("torch", "tensorrt", "ignore", "plugin_ops")}
    report = lint(model, **options)
    written = _formatted(report, given["form"], out)
    if out is None:
        show(written)
    else:
        write_text(out, written + "\n")
    return int(report.reaches(given["fail_on"]))


def _formatted(report: LintReport, form: str, out: Path | None) -> str:
    from truehalf.linting import RULES
    from truehalf.linting.report import sarif, text

    if form == "text":
        return text(report, shutil.get_terminal_size().columns if out is None else _WIDTH_OF_FILES)
    if form == "sarif":
        from truehalf.exporting.source_lint import RULES as SOURCE_RULES

        return json.dumps(sarif(report, RULES | SOURCE_RULES), indent=2)
    return json.dumps(report.as_dict(), indent=2)
