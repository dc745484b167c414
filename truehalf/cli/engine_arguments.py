"""The command line of the engine: a plan, carried out where it can be."""

from __future__ import annotations

import argparse
from typing import Any


def arguments(argv: list[str]) -> dict[str, Any]:
    """Keywords for stages.engine.execute_plan; what is not given is not there."""
    parser = argparse.ArgumentParser(
        prog="python -m stages.engine",
        usage="%(prog)s --plan plan.json [--out folder]",
        description="Build the engine of a plan on this machine, prove it, and print the report.",
        epilog="Exit code: 0 built, or planned where this machine cannot build it either; 1 failed, or a fault. "
        "Without arguments it is the stage `engine`: it reads params.yaml and artifacts/ of the workspace.",
        argument_default=argparse.SUPPRESS,  # what is not given is the door's default
    )
    parser.add_argument("--plan", metavar="plan.json", required=True, help="as the stage has written it")
    parser.add_argument("--out", metavar="folder", help="for the engine and engine.json; by default the plan's folder")
    return vars(parser.parse_args(argv))
