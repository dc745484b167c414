"""truehalf engine: a build plan carried out on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import FAILED, PASSED, Command, as_text, guarded, option, show

_EXAMPLES = ("truehalf engine artifacts/engine/plan.json", "truehalf engine plan.json --out built/")
_EXITS = (
    "Exit codes: 0 built, or planned where this machine cannot build it either, 1 failed, 2 bad input, 130 stopped."
)


@click.command(cls=Command, examples=_EXAMPLES, exits=_EXITS)
@click.argument("plan", type=click.Path(path_type=Path), metavar="plan.json")
@option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="for the engine and engine.json; by default the plan's",
)
@option(
    "--workspace",
    type=click.Path(path_type=Path),
    default=".",
    metavar="FOLDER",
    help="a project whose reference the engine is compared with",
)
def command(**given: Any) -> int:
    """Build the engine of a plan on this machine, prove it, and print the report."""
    return guarded("engine", lambda: _engine(**given))


def _engine(plan: Path, out: Path | None, workspace: Path) -> int:
    from truehalf.engines.build import execute_plan

    report = execute_plan(plan, out, workspace=workspace)
    show(as_text({key: value for key, value in report.items() if key != "layer_table"}))  # engine.json has it
    return FAILED if report["status"] == "failed" else PASSED
